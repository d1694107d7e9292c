//! Resource attributes, from the labels of a recording.

use std::collections::BTreeMap;
use std::sync::Arc;

use flightline_consumer::live::{Event, Value};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// Attributes by name.
pub type Attributes = BTreeMap<String, String>;

/// Processes whose labels are stored. The labels of further processes are left out.
const MOST_PROCESSES: usize = 10_000;

/// OpenTelemetry's names for the labels that the recorder adds itself.
const NAMES: &[(&str, &str)] = &[
    ("service", "service.name"),
    ("version", "service.version"),
    ("host", "host.name"),
    ("container", "container.id"),
];

/// Labels of processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    by_pid: BTreeMap<i64, Attributes>,
    /// Attributes given by the user; they override those of the recording.
    given: Attributes,
}

impl Resources {
    pub(crate) fn new(given: Attributes) -> Self {
        Self { by_pid: BTreeMap::new(), given }
    }

    /// Stores a `flightline.Label`.
    pub(crate) fn take(&mut self, event: &Event) {
        let text = |name| event.field(name).and_then(Value::text);
        let (Some(pid), Some(name), Some(value)) =
            (event.field("pid").and_then(Value::integer), text("name"), text("value"))
        else {
            return;
        };
        if self.by_pid.len() >= MOST_PROCESSES && !self.by_pid.contains_key(&pid) {
            return;
        }
        let name = NAMES.iter().find(|(ours, _)| *ours == name).map_or(name, |(_, theirs)| theirs);
        self.by_pid.entry(pid).or_default().insert(name.to_owned(), value.to_owned());
    }

    /// Returns the resource for a thread's group: `name (pid)` in recordings of Flightline.
    pub(crate) fn get(&self, group: Option<&str>) -> Resource {
        let process = group.and_then(process);
        // In a recording of one process, samples without a known thread belong to that process.
        let labels = match process {
            Some((_, pid)) => self.by_pid.get(&pid),
            None if self.by_pid.len() == 1 => self.by_pid.values().next(),
            None => None,
        };
        let mut all = labels.cloned().unwrap_or_default();
        let mut attributes = Vec::new();
        if let Some((name, pid)) = process {
            all.entry("service.name".into()).or_insert_with(|| name.to_owned());
            all.insert("process.executable.name".into(), name.to_owned());
            attributes.push(attribute("process.pid", any_value::Value::IntValue(pid)));
        }
        all.extend(self.given.clone());
        // OpenTelemetry requires `service.name`.
        all.entry("service.name".into()).or_insert_with(|| "unknown_service".into());
        attributes.extend(all.into_iter().map(|(name, value)| text_attribute(&name, value)));
        Resource { attributes, ..Resource::default() }
    }
}

/// Returns the group of a thread if it names a process, which determines the resource. Java's thread
/// groups do not.
pub(crate) fn group(of: Option<&Arc<str>>) -> Group {
    of.filter(|group| process(group).is_some()).cloned()
}

/// Splits `name (pid)` into the name and id of a process.
fn process(group: &str) -> Option<(&str, i64)> {
    let (name, pid) = group.strip_suffix(')')?.rsplit_once(" (")?;
    Some((name, pid.parse().ok().filter(|&pid| pid > 0)?))
}

pub(crate) fn attribute(name: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

pub(crate) fn text_attribute(name: &str, value: impl Into<String>) -> KeyValue {
    attribute(name, any_value::Value::StringValue(value.into()))
}

/// The instrumentation scope: this program and its version.
pub(crate) fn scope() -> opentelemetry_proto::tonic::common::v1::InstrumentationScope {
    opentelemetry_proto::tonic::common::v1::InstrumentationScope {
        name: "flightline".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    }
}

/// `name (pid)` of a process, used as a key.
pub(crate) type Group = Option<Arc<str>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_group_is_parsed_into_name_and_pid() {
        assert_eq!(process("a (b) (12)"), Some(("a (b)", 12)));
        for none in ["main", "x (y)", "x (-1)", "x (12", "(12)", "x (99999999999999999999)"] {
            assert_eq!(process(none), None, "{none}");
        }
    }

    #[test]
    fn given_service_name_takes_precedence_over_detected_names() {
        let name = |resource: Resource| {
            let found = resource.attributes.into_iter().find(|a| a.key == "service.name");
            match found.and_then(|a| a.value?.value) {
                Some(any_value::Value::StringValue(name)) => name,
                other => panic!("{other:?}"),
            }
        };
        let mut resources = Resources::default();
        assert_eq!(name(resources.get(None)), "unknown_service");
        assert_eq!(name(resources.get(Some("redis-server (7)"))), "redis-server");
        resources.by_pid.insert(7, [("service.name".to_owned(), "cache".to_owned())].into());
        assert_eq!(name(resources.get(Some("redis-server (7)"))), "cache");
        assert_eq!(name(resources.get(Some("other (8)"))), "other");
        resources.given.insert("service.name".into(), "mine".into());
        assert_eq!(name(resources.get(Some("redis-server (7)"))), "mine");
    }
}
