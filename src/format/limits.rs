//! The most of everything, as `format-spec.md` states it: a reader refuses more, a writer never writes more.

/// Bytes of a zstd frame, compressed.
pub const FRAME_COMPRESSED: u64 = 64 << 20;
/// Bytes of a zstd frame's content.
pub const FRAME_CONTENT: u64 = 64 << 20;
/// Bytes of the header's facts.
pub const HEADER_FACTS: u64 = 1 << 20;
/// Bytes of one string or path.
pub const STRING: u64 = 64 << 10;
/// Bytes of one metadata record.
pub const RECORD: usize = 16 << 20;
/// Mappings of one mapping list.
pub const SPACE: u64 = 1 << 19;
/// Entries of each table of a segment.
pub const TABLE: u64 = 1 << 22;
/// Bytes of all strings of a segment, and of the paths of its files.
pub const SEGMENT_STRINGS: u64 = 32 << 20;
/// Placed mappings in all mapping lists of a segment.
pub const SEGMENT_PLACED: u64 = 1 << 22;
/// Nodes that a byte of a stack section may stand for: long runs that repeat earlier ones are short.
pub const NODES_PER_BYTE: u64 = 256;
/// Samples of one frame.
pub const FRAME_SAMPLES: u64 = 1 << 20;
/// Times of a frame are counted in 2 to this power nanoseconds at most.
pub const TIME_UNIT: u64 = 20;
/// Loss entries of one frame.
pub const FRAME_LOSSES: u64 = 1 << 16;
/// Frames of one stack: deeper nodes are not written, and not followed when read.
pub const STACK_DEPTH: usize = 4096;
/// Frames an index may list; a longer capture has none.
pub const INDEX_ENTRIES: u64 = 1 << 16;
/// CPU numbers are below this.
pub const CPUS: u64 = 1 << 16;
/// Bytes of the content of one symbol-aid or end frame.
pub const AID: usize = 16 << 20;
/// Bytes of the content of all symbol-aid frames a reader takes; later ones are left out, and said so.
pub const AIDS: u64 = 64 << 20;
/// Entries of each list of a symbol-aid frame: symbols, maps, lines, ended lines, layouts.
pub const AID_ENTRIES: u64 = 1 << 20;
/// Entries of all symbol-aid frames together that a reader takes; later frames are left out, and said so.
pub const AIDS_ENTRIES: u64 = 1 << 21;
/// PT_LOAD program headers of one ELF file.
pub const LOADS: u64 = 1 << 10;
/// Bytes of one name or source path in a pack.
pub const PACKED_STRING: u64 = 1 << 20;
/// Symbols, functions, and strings of one frame of packed symbols.
pub const PACKED_SYMBOLS: u64 = 1 << 18;
/// Inlined functions of one frame of packed symbols.
pub const PACKED_INLINED: u64 = 1 << 20;
/// Bytes of the content of all frames of packed symbols, and of all packed symbol tables, that a reader takes.
pub const PACKED_ALL: u64 = 256 << 20;
/// Symbols, inlined functions and strings together in all frames of packed symbols that a reader takes; functions in all
/// packed symbol tables.
pub const PACKED_ENTRIES: u64 = 1 << 23;
/// Bytes of a packed file in one frame.
pub const PACKED_PIECE: u64 = 16 << 20;
/// Bytes of all packed files that a reader unpacks, whatever the capture's size.
pub const UNPACKED: u64 = 16 << 30;
/// The same by the capture's size: so many bytes, and so many times its own. Programs and debug information shrink to a third, rarely
/// to a tenth.
pub const UNPACKED_BASE: u64 = 64 << 20;
/// See [`UNPACKED_BASE`].
pub const UNPACKED_TIMES: u64 = 64;
/// Bytes of the content of all frames of segments that a reader takes, by the file's size: so many, and so many times its own. What is
/// recorded shrinks to a half, rarely to a tenth.
pub const SEGMENTS_BASE: u64 = 64 << 20;
/// See [`SEGMENTS_BASE`].
pub const SEGMENTS_TIMES: u64 = 64;
/// Bytes of a packed file.
pub const PACKED_FILE: u64 = 4 << 30;
/// Captures in a file of several.
pub const MEMBERS: usize = 4096;
