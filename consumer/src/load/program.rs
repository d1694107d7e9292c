//! The virtual machine and the host, as events of the JDK and of async-profiler state them.

use std::borrow::Cow;

use jfr_format::event::EventRef;

use crate::model::{Jvm, Model, cut};

const JVM: &str = "jdk.JVMInformation";
const ENVIRONMENT: &str = "jdk.InitialEnvironmentVariable";

/// Returns true if events of this type state the virtual machine or the host.
pub(super) fn knows(name: &str) -> bool {
    name == JVM || name == ENVIRONMENT
}

/// Adds what an event of such a type states. Both recorders write its text into the event itself; text in a pool is not looked up.
pub(super) fn take(model: &mut Model, event: &EventRef<'_>) {
    if &*event.class().name == JVM {
        let pid = event.field("pid").ok().flatten().and_then(|pid| pid.as_i64()).unwrap_or(0);
        let [name, version, arguments] =
            ["jvmName", "jvmVersion", "javaArguments"].map(|name| text(event, name));
        model.add_jvm(Jvm::new(&name, &version, &arguments, pid));
    } else if text(event, "key") == "HOSTNAME" {
        let host = cut(&text(event, "value"));
        if !host.is_empty() {
            model.add_host(host);
        }
    }
}

fn text<'a>(event: &EventRef<'a>, name: &str) -> Cow<'a, str> {
    event.field(name).ok().flatten().and_then(|value| value.text().ok().flatten()).unwrap_or_default()
}
