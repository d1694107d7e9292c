//! A thread as a recording describes it.

use std::sync::Arc;

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Name the operating system has for it.
    pub os_name: Option<Arc<str>>,
    /// Thread id of the operating system.
    pub os_id: i64,
    /// Name in Java.
    pub java_name: Option<Arc<str>>,
    /// Id in Java; 0 if none.
    pub java_id: i64,
    /// Thread group; in recordings of Flightline the process, as `name (pid)`.
    pub group: Option<Arc<str>>,
}

impl Thread {
    /// The name to show.
    pub fn name(&self) -> &str {
        let named = |name: &'_ Option<Arc<str>>| name.as_ref().is_some_and(|n| !n.is_empty());
        match (&self.java_name, &self.os_name) {
            (Some(name), _) if named(&self.java_name) => name,
            (_, Some(name)) if named(&self.os_name) => name,
            _ => "unnamed",
        }
    }

    /// Root frame of the thread's stacks, e.g. `[worker-0 tid=4711]`.
    pub fn label(&self) -> String {
        let name = self.name();
        match (self.os_id, self.java_id) {
            // async-profiler's name of a thread whose name it did not learn.
            _ if name.starts_with("[tid=") && name.ends_with(']') => name.to_owned(),
            (0, 0) => format!("[{name}]"),
            (0, java) => format!("[{name} id={java}]"),
            (os, _) => format!("[{name} tid={os}]"),
        }
    }
}
