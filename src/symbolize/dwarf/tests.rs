use std::fs;
use std::process::Command;

use object::{Object, ObjectSymbol};

use super::*;

/// Three functions and a unit for each: the root of the first says where its code is, that of the second does not, and that of
/// the third says that the linker has thrown all of it away. The first root is not the first in its table of abbreviations.
const UNITS: &str = "
.text
.globl _start, first, second, third
_start:
first: .fill 16, 1, 0x90
second: .fill 16, 1, 0x90
third: .fill 16, 1, 0x90
.section .debug_abbrev
    .uleb128 1; .uleb128 0x11; .byte 1; .uleb128 0x13, 0x0b, 0, 0
    .uleb128 2; .uleb128 0x2e; .byte 0; .uleb128 0x03, 0x08, 0x11, 0x01, 0x12, 0x06, 0, 0
    .uleb128 3; .uleb128 0x11; .byte 1; .uleb128 0x13, 0x0b, 0x11, 0x01, 0x12, 0x06, 0, 0
    .uleb128 4; .uleb128 0x11; .byte 1; .uleb128 0x13, 0x0b, 0x55, 0x17, 0, 0
    .byte 0
.section .debug_ranges
    .quad 0, 0
.section .debug_info
    .long 1f - 0f
0:  .short 4; .long 0; .byte 8
    .uleb128 3; .byte 0xc; .quad first; .long 16
    .uleb128 2; .asciz \"of_the_first\"; .quad first; .long 16
    .byte 0
1:  .long 1f - 0f
0:  .short 4; .long 0; .byte 8
    .uleb128 1; .byte 0xc
    .uleb128 2; .asciz \"of_the_second\"; .quad second; .long 16
    .byte 0
1:  .long 1f - 0f
0:  .short 4; .long 0; .byte 8
    .uleb128 4; .byte 0xc; .long 0
    .uleb128 2; .asciz \"of_the_third\"; .quad third; .long 16
    .byte 0
1:
";

struct Alone;

impl Companions for Alone {
    fn split(&mut self, _: Option<&[u8]>, _: &[u8]) -> Vec<Rc<Sections>> {
        Vec::new()
    }
}

#[test]
fn units_are_found_by_their_roots_and_else_by_their_functions() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("units.s"), dir.path().join("units"));
    fs::write(&source, UNITS).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-nostdlib", "-static", "-o"]).arg(&program);
    assert!(gcc.arg(&source).status().unwrap().success());
    let bytes = fs::read(&program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let address = |name: &str| {
        let found = elf.symbols().find(|s| s.name() == Ok(name));
        found.unwrap().address()
    };
    let mut names = Names::default();
    let sections = Sections::open(&fs::File::open(&program).unwrap(), false).unwrap();
    let mut info = DebugInfo::open(Rc::new(sections), None, Box::new(Alone)).unwrap();
    let mut named = |at: u64| {
        let found = info.find(at, false, &mut names)?;
        let (name, inside) = found.function?;
        Some((names.text(name).to_owned(), inside))
    };
    for (symbol, name) in [("second", "of_the_second"), ("first", "of_the_first")] {
        let begin = address(symbol);
        let expected = |inside| Some((name.to_owned(), Some(inside)));
        assert_eq!(named(begin), expected(0));
        assert_eq!(named(begin + 15), expected(15));
    }
    assert_eq!(named(address("third")), None);
}
