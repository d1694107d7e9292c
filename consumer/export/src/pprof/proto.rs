//! The messages of `profile.proto` of github.com/google/pprof, as prost has them: names and numbers are its.

/// A profile.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Profile {
    /// What each of a sample's values is.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// Samples.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// Files.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// Places in code.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All texts; the first is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// Regular expression of functions that are left out with what they call.
    #[prost(int64, tag = "7")]
    pub drop_frames: i64,
    /// Regular expression of functions that are kept although `drop_frames` matches.
    #[prost(int64, tag = "8")]
    pub keep_frames: i64,
    /// Begin, ns since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// Length.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// What is between two samples.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// How much of it.
    #[prost(int64, tag = "12")]
    pub period: i64,
    /// Texts for who reads it.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The type to show first.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// A type and its unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct ValueType {
    /// Type, as index of a text.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// Unit, as index of a text.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// Samples that have all but their values in common.
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
    /// Name, as index of a text.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// Value, as index of a text; or
    #[prost(int64, tag = "2")]
    pub str: i64,
    /// a number.
    #[prost(int64, tag = "3")]
    pub num: i64,
}

/// A file.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Mapping {
    /// From 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Name, as index of a text.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// Its functions are named already; nobody is to look them up.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
}

/// A place in code.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Location {
    /// From 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The file.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// Address in it.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// Function and line.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A line.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Line {
    /// The function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// The line.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Function {
    /// From 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Name, as index of a text.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// The same as the system has it.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Source file, as index of a text.
    #[prost(int64, tag = "4")]
    pub filename: i64,
    /// First line.
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}
