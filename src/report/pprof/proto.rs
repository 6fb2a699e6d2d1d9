//! The messages of `profile.proto` (google/pprof), as far as they are written; prost gives them their bytes.

/// All of a profile.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Profile {
    /// What the values of samples are.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// Stacks with their values.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// Files and what else code is in.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// Addresses.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All text; the first is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// First sample, nanoseconds since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// From the first to the last sample.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// What is between two samples.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// How much of it.
    #[prost(int64, tag = "12")]
    pub period: i64,
    /// Lines for people.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
}

/// Numbers of texts.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ValueType {
    /// What.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// In which unit.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// A stack with its values.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Sample {
    /// Leaf first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// One of each type.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// Where it was seen.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A property of a sample.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Label {
    /// Text: its name.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// Text, or
    #[prost(int64, tag = "2")]
    pub str: i64,
    /// a number.
    #[prost(int64, tag = "3")]
    pub num: i64,
}

/// Something mapped.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Mapping {
    /// Its number, not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// First address.
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    /// Address after the last.
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    /// Offset in the file of the first address.
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    /// Text: path.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// Text: build ID.
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    /// Functions have names.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// And source files.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// And lines.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// Inlined functions are there.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// An address.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Location {
    /// Its number, not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// What it is in; 0: unknown.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// Where.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// Functions, innermost inlined first.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A place in a function.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Line {
    /// Which function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// Line in its file; 0: unknown.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Function {
    /// Its number, not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Text: name for people.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Text: name in the file.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Text: source file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
    /// Its first line; 0: unknown.
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}
