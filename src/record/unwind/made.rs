//! Files that tests make: code in one page, and unwind information of its functions.

use super::tables::{Image, Tables};

/// Where the code is, in the file and by its address.
pub const CODE: u64 = 0x800;
/// Bytes of the file.
pub const SIZE: usize = 0x1000;
const HEADER: usize = 0x200;
const FRAMES: usize = 0x240;

/// What is said of a function: where it begins behind [`CODE`], its bytes, and how it is left.
pub type Function<'a> = (u64, u32, Left<'a>);

/// How a function is left.
#[derive(Debug, Clone, Copy)]
pub enum Left<'a> {
    /// As at its first instruction, and then as these instructions say.
    Called(&'a [u8]),
    /// What a signal has interrupted goes on, as these say.
    Signal(&'a [u8]),
}

/// As functions are at first: the return address is on top.
pub const PLAIN: Left<'static> = Left::Called(&[]);
/// There is no caller.
pub const FIRST: Left<'static> = Left::Called(&[0x07, 0x10]);
/// As the C library tells of the code that handlers return to: where the stack pointer, the frame pointer and the address are.
pub const SIGNAL: Left<'static> = Left::Signal(&[
    0x0f, 4, 0x77, 0xa0, 0x01, 0x06, // the frame: what is at sp + 160
    0x10, 6, 3, 0x77, 0xf8, 0x00, // rbp: at sp + 120
    0x10, 7, 3, 0x77, 0xa0, 0x01, // rsp
    0x10, 16, 3, 0x77, 0xa8, 0x01, // rip: at sp + 168
]);

/// An ELF file for x86-64 that is mapped as it is.
pub fn image(code: &[u8], functions: &[Function<'_>]) -> Vec<u8> {
    let mut image = vec![0; SIZE];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01");
    for (at, value) in [(32, 64), (52, 64), (54, 56), (56, 2)] {
        put(at, &[value]);
    }
    let mut segment = |number: usize, kind: u32, flags: u32, start: usize, size: usize| {
        let at = 64 + 56 * number;
        put(at, &kind.to_le_bytes());
        put(at + 4, &flags.to_le_bytes());
        for (place, value) in [(8, start), (16, start), (32, size), (40, size)] {
            put(at + place, &(value as u64).to_le_bytes());
        }
    };
    segment(0, 1, 5, 0, SIZE);
    segment(1, 0x6474_e550, 4, HEADER, 12);
    // Where .eh_frame is, and no index.
    put(HEADER, &[1, 0x1b, 0xff, 0xff]);
    put(
        HEADER + 4,
        &(FRAMES as i32 - HEADER as i32 - 4).to_le_bytes(),
    );
    let mut frames: Vec<u8> = Vec::new();
    for (start, size, left) in functions {
        let (letters, code): (&[u8], &[u8]) = match left {
            Left::Called(code) => (b"zR\0\0", code),
            Left::Signal(code) => (b"zRS\0", code),
        };
        let common = frames.len();
        // Both have a multiple of four bytes; nothing is 0.
        let mut entry = vec![0, 0, 0, 0, 1];
        entry.extend(
            letters
                .strip_suffix(b"\0")
                .filter(|l| l.ends_with(b"\0"))
                .unwrap_or(letters),
        );
        // Factors 1 and -8, the return address, pointers relative to where they are, rsp + 8, and the return address below.
        entry.extend([1, 0x78, 0x10, 1, 0x1b, 0x0c, 7, 8, 0x90, 1]);
        entry.resize(entry.len().next_multiple_of(4), 0);
        frames.extend((entry.len() as u32).to_le_bytes());
        frames.extend(entry);
        let begins = frames.len();
        let mut entry = ((begins + 4 - common) as u32).to_le_bytes().to_vec();
        let here = FRAMES + begins + 8;
        let function = i32::try_from(CODE + start).expect("small") - here as i32;
        entry.extend(function.to_le_bytes());
        entry.extend(size.to_le_bytes());
        entry.push(0);
        entry.extend_from_slice(code);
        entry.resize(entry.len().next_multiple_of(4), 0);
        frames.extend((entry.len() as u32).to_le_bytes());
        frames.extend(entry);
    }
    frames.extend([0; 4]);
    assert!(FRAMES + frames.len() <= CODE as usize);
    put(FRAMES, &frames);
    put(CODE as usize, code);
    image
}

/// What is read of it.
pub fn tables(code: &[u8], functions: &[Function<'_>]) -> Tables {
    Tables::new(Image::Memory(image(code, functions)))
}
