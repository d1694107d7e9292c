//! Threads.

use std::sync::Arc;

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Name in the operating system.
    pub os_name: Option<Arc<str>>,
    /// Thread id of the operating system.
    pub os_id: i64,
    /// Name in Java.
    pub java_name: Option<Arc<str>>,
    /// Id in Java; 0 if none.
    pub java_id: i64,
    /// Thread group; in recordings of Flightline the process, as `name (pid)`.
    pub group: Option<Arc<str>>,
    /// A virtual thread of Java (JEP 444), which has no operating system thread of its own.
    pub is_virtual: bool,
}

/// The name that represents all virtual threads.
const VIRTUAL_THREADS: &str = "virtual threads";

impl Thread {
    /// The name to show.
    pub fn name(&self) -> &str {
        let name = [&self.java_name, &self.os_name].into_iter().flatten().find(|name| !name.is_empty());
        name.map_or("unnamed", |name| name)
    }

    fn has_name(&self) -> bool {
        [&self.java_name, &self.os_name].into_iter().flatten().any(|name| !name.is_empty())
    }

    /// The thread that represents all virtual threads of this one's process, if this is a virtual thread.
    pub(crate) fn all_virtual(&self) -> Option<Self> {
        self.is_virtual.then(|| Self {
            java_name: Some(VIRTUAL_THREADS.into()),
            group: self.group.clone().filter(|group| group.ends_with(')')),
            ..Self::default()
        })
    }

    /// Root frame of the thread's stacks, e.g. `[worker-0 tid=4711]`.
    pub fn label(&self) -> String {
        let name = self.name();
        if self.is_virtual {
            let java = self.java_id;
            return if self.has_name() {
                format!("[{name} virtual #{java}]")
            } else {
                format!("[virtual #{java}]")
            };
        }
        match (self.os_id, self.java_id) {
            // async-profiler's placeholder for a thread whose name it could not read.
            _ if name.starts_with("[tid=") && name.ends_with(']') => name.to_owned(),
            (0, 0) => format!("[{name}]"),
            (0, java) => format!("[{name} id={java}]"),
            (os, _) => format!("[{name} tid={os}]"),
        }
    }
}
