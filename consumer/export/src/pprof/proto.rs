//! The messages of `profile.proto` of github.com/google/pprof for prost, with its field names and
//! numbers.

/// A profile.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Profile {
    /// The type of each of a sample's values.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// Samples.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// Executables and libraries.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// Code locations.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All strings; the first is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// Regular expression for functions to remove together with their callees.
    #[prost(int64, tag = "7")]
    pub drop_frames: i64,
    /// Regular expression for functions to retain even if `drop_frames` matches.
    #[prost(int64, tag = "8")]
    pub keep_frames: i64,
    /// Start time, in ns since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// Duration, in ns.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// The unit of the sampling period.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// The sampling period.
    #[prost(int64, tag = "12")]
    pub period: i64,
    /// Comments, as indexes of strings.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The sample type to show first.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// A type and its unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct ValueType {
    /// Type, as index of a string.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// Unit, as index of a string.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// Samples that have everything in common except their values.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Sample {
    /// Ids of locations, leaf first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// A value for each type.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// Labels.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A label.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct Label {
    /// Name, as index of a string.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// Value, as index of a string.
    #[prost(int64, tag = "2")]
    pub str: i64,
    /// Numeric value, if there is no string.
    #[prost(int64, tag = "3")]
    pub num: i64,
}

/// An executable or library.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Mapping {
    /// Id, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// File name, as index of a string.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// True if functions already have names, so that pprof need not symbolize them.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
}

/// A code location.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Location {
    /// Id, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Id of the mapping.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// Address in the mapping.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// Function and line.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A source line.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Line {
    /// Id of the function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// Line number.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Function {
    /// Id, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Name, as index of a string.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Mangled name, as index of a string.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Source file, as index of a string.
    #[prost(int64, tag = "4")]
    pub filename: i64,
    /// Line number of the function's start.
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}
