//! Tests that need no privilege: they run anywhere, without recording.

mod format;
