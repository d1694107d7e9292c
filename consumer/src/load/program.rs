//! The virtual machine and the host, as events of the JDK, of async-profiler and of Flightline state them.

use std::borrow::Cow;

use jfr_format::event::EventRef;

use crate::fields;
use crate::model::{Jvm, Model, cut};

const JVM: &str = "jdk.JVMInformation";
const ENVIRONMENT: &str = "jdk.InitialEnvironmentVariable";
const LABEL: &str = "flightline.Label";

/// Returns true if events of this type state the virtual machine or the host.
pub(super) fn knows(name: &str) -> bool {
    [JVM, ENVIRONMENT, LABEL].contains(&name)
}

/// Adds what an event of such a type states. The recorders write its text into the event itself; text in a pool is not looked up.
pub(super) fn take(model: &mut Model, event: &EventRef<'_>) {
    match &*event.class().name {
        JVM => {
            let pid = event.field("pid").ok().flatten().and_then(|pid| pid.as_i64()).unwrap_or(0);
            let [name, version, arguments] =
                ["jvmName", "jvmVersion", "javaArguments"].map(|name| text(event, name));
            model.add_jvm(Jvm::new(&name, &version, &arguments, pid));
        }
        LABEL if text(event, "name") == "host" => host(model, event),
        ENVIRONMENT if text(event, "key") == "HOSTNAME" => host(model, event),
        _ => {}
    }
}

fn host(model: &mut Model, event: &EventRef<'_>) {
    let host = cut(&text(event, "value"));
    if !host.is_empty() {
        model.add_host(host);
    }
}

fn text<'a>(event: &EventRef<'a>, name: &str) -> Cow<'a, str> {
    fields::text(&event.fields(), name).unwrap_or_default()
}
