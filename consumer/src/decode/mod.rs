//! The decoder of samples: finds the fields of a sample type by their meaning, decodes events to keys and
//! numbers, and resolves keys to names. Its consumers differ in what they make of the result:
//!
//! ```text
//! jfr_format::read ─► decode ─┬─► load: sums by keys, times of samples ─► model
//!                             ├─► live: one item per event
//!                             └─► live::keyed: one row of numbers per sample
//! ```

pub(crate) mod losses;
pub(crate) mod names;
pub(crate) mod resolver;
pub(crate) mod schema;
pub(crate) mod settings;

use jfr_format::read::Class;

/// The event that states a setting.
pub(crate) const SETTING: &str = "jdk.ActiveSetting";

/// The type whose events have variants, and the field that names the variant.
pub(crate) const VARIED: &str = "flightline.EventSample";
pub(crate) const VARIANT: &str = "event";

/// The type of calls. Its stacks begin with the caller, and a field names the called method. Those of
/// async-profiler have no method in the field; their stacks begin with it.
pub(crate) const CALL: &str = "jdk.MethodTrace";
pub(crate) const CALLED: &str = "method";

/// Fields with the class of the object that was allocated, waited for or thrown; the first one of a type
/// is used.
pub(crate) const CLASS_FIELDS: [&str; 4] = ["objectClass", "monitorClass", "parkedClass", "thrownClass"];

/// Types with a stack trace whose events describe the recorder or a request.
const NO_SAMPLES: [&str; 3] = [SETTING, "jdk.ActiveRecording", "datadog.Endpoint"];

/// Returns true if events of a type are samples.
pub fn is_sample(class: &Class) -> bool {
    class.field_index("stackTrace").is_some() && !NO_SAMPLES.contains(&&*class.name)
}

/// An event whose constants may not be known yet.
#[derive(Debug)]
pub(crate) struct StashedEvent {
    pub(crate) type_id: u64,
    pub(crate) payload: Box<[u8]>,
    pub(crate) offset: u64,
}
