//! Kernel modules. They come and go, and the kernel tells of neither: looks at the list have to do.

use std::fs;

/// A loaded module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Where its code begins.
    pub start: u64,
    /// Where it ends at the latest: the size that is told is at least that of the code.
    pub end: u64,
}

impl Module {
    /// Whether `address` may be of its code.
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Modules that are loaded now; none where the kernel has no modules.
pub fn loaded() -> Vec<Module> {
    parse(&fs::read("/proc/modules").unwrap_or_default())
}

/// As [`loaded`], by any text.
#[cfg(fuzzing)]
pub fn fuzz_text(text: &[u8]) -> Vec<Module> {
    parse(text)
}

/// Lines of `/proc/modules`: `NAME SIZE USERS DEPENDENCIES STATE 0xADDRESS`.
fn parse(text: &[u8]) -> Vec<Module> {
    let line = |line: &[u8]| {
        let text = std::str::from_utf8(line).ok()?;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let size: u64 = words.get(1)?.parse().ok()?;
        let start = u64::from_str_radix(words.get(5)?.strip_prefix("0x")?, 16).ok()?;
        Some(Module {
            name: (*words.first()?).to_owned(),
            start,
            end: start.saturating_add(size),
        })
    };
    text.split(|b| *b == b'\n').filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_tell_a_place_are_modules() {
        let text = b"m 8192 2 a,b, Live 0xffffffffc0000000 (OE)\nbad\nm2 x 0 - Live 0x1\n";
        let found = parse(text);
        let expected = Module {
            name: "m".into(),
            start: 0xffff_ffff_c000_0000,
            end: 0xffff_ffff_c000_2000,
        };
        assert_eq!(found, [expected]);
    }
}
