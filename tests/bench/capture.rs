//! Cost and size of writing and reading captures.
fn main() {}
