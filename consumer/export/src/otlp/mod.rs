//! OpenTelemetry: profiles (v1development) and traces, as protobuf and as JSON.

mod json;
mod profiles;
mod tables;
mod traces;
pub mod tree;

pub use json::{profiles_json, traces_json};
pub use opentelemetry_proto::tonic::profiles::v1development::ProfilesData;
pub use opentelemetry_proto::tonic::trace::v1::TracesData;
pub use profiles::{parts, profiles};
pub use traces::{trace_parts, traces};
