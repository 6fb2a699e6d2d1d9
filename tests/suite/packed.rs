//! Packed symbols, tables and files as bytes: round trips, and noise that must not harm.

use bprof::event::{BuildId, FileVersion};
use bprof::format::aid::Load;
use bprof::format::packed::FileKey;
use bprof::format::packed::file::{self, PieceHead, Role};
use bprof::format::packed::symbols::{AtOffset, Builder, PackedSymbol, PackedSymbols};
use bprof::format::packed::table::{PackedFunction, PackedTable};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

fn key() -> impl Strategy<Value = FileKey> {
    let build_id = vec(1u8.., 1..=64).prop_map(|bytes| (BuildId::new(&bytes), None));
    let version = (any::<u64>(), any::<i64>(), any::<u32>()).prop_map(|(size, sec, nsec)| {
        let version = FileVersion {
            size,
            mtime_sec: sec,
            mtime_nsec: nsec,
        };
        (None, Some(version))
    });
    let path = vec(any::<u8>(), 0..40);
    (path, prop_oneof![build_id, version]).prop_map(|(path, (build_id, version))| FileKey {
        path,
        build_id,
        version,
    })
}

fn source() -> impl Strategy<Value = Option<(String, u32)>> {
    option::of(("[a-c/]{0,5}", any::<u32>()))
}

fn symbol() -> impl Strategy<Value = AtOffset> {
    let inside = || option::of(0..u64::MAX);
    let inlined = vec(("\\PC{0,4}", source()), 0..4);
    let fields = ("\\PC{0,6}", inside(), source(), inlined);
    let symbol = fields.prop_map(|(name, inside, source, inlined)| {
        AtOffset::Symbol(PackedSymbol {
            name,
            inside,
            source,
            inlined,
        })
    });
    prop_oneof![
        3 => symbol,
        1 => inside().prop_map(|inside| AtOffset::Nameless { inside }),
    ]
}

type Symbols = std::collections::BTreeMap<u64, AtOffset>;

fn symbols() -> impl Strategy<Value = Symbols> {
    let offset = prop_oneof![any::<u64>(), 0..3000u64];
    proptest::collection::btree_map(offset, symbol(), 1..40)
}

fn build(key: &FileKey, symbols: &Symbols) -> Vec<u8> {
    let mut builder = Builder::new(key.clone());
    for (offset, symbol) in symbols {
        assert!(builder.push(*offset, symbol));
    }
    assert!(
        !builder.push(0, &AtOffset::Nameless { inside: None }),
        "offsets must ascend"
    );
    let mut out = Vec::new();
    builder.finish().encode(&mut out).unwrap();
    out
}

fn table() -> impl Strategy<Value = PackedTable> {
    let load = (
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
    );
    let load = load.prop_map(|(offset, vaddr, file_size, mem_size, flags)| Load {
        offset,
        vaddr,
        file_size,
        mem_size,
        flags,
    });
    let function = (0..u64::MAX / 2, 0..u64::MAX / 2, "\\PC{0,6}", any::<bool>());
    let function = function.prop_map(|(start, len, name, sized)| PackedFunction {
        start,
        len,
        name,
        sized,
    });
    (key(), vec(load, 0..4), vec(function, 1..40)).prop_map(|(file, loads, mut functions)| {
        functions.sort_by_key(|f| f.start);
        PackedTable {
            file,
            loads,
            functions,
        }
    })
}

proptest! {
    #[test]
    fn symbols_survive((key, symbols) in (key(), symbols())) {
        let bytes = build(&key, &symbols);
        let read = PackedSymbols::decode(&bytes).unwrap();
        prop_assert_eq!(&read.file, &key);
        let found: Symbols = read
            .offsets()
            .iter()
            .enumerate()
            .map(|(i, offset)| (*offset, read.symbol(i).unwrap()))
            .collect();
        prop_assert_eq!(&found, &symbols);
        prop_assert_eq!(read.symbol(symbols.len()), None);
    }

    #[test]
    fn cut_and_changed_symbols_never_panic(
        (key, symbols) in (key(), symbols()), cut in any::<Index>(), at in any::<Index>(), bit in 0..8u8
    ) {
        let bytes = build(&key, &symbols);
        prop_assert!(PackedSymbols::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] ^= 1 << bit;
        if let Ok(read) = PackedSymbols::decode(&changed) {
            for i in 0..read.len() {
                prop_assert!(read.symbol(i).is_some());
            }
        }
    }

    #[test]
    fn tables_survive(table in table(), cut in any::<Index>(), at in any::<Index>(), bit in 0..8u8) {
        let mut bytes = Vec::new();
        table.encode(&mut bytes).unwrap();
        prop_assert_eq!(PackedTable::decode(&bytes).unwrap(), table);
        prop_assert!(PackedTable::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let _ = PackedTable::decode(&bytes);
    }

    #[test]
    fn pieces_survive(
        file in key(), debug in any::<bool>(), offset in 0..1u64 << 30, crc in any::<u32>(),
        bytes in vec(any::<u8>(), 1..200), more in 0..1000u64
    ) {
        let head = PieceHead {
            file,
            role: if debug { Role::Debug } else { Role::Executable },
            size: offset + bytes.len() as u64 + more,
            offset,
            crc,
        };
        let mut content = Vec::new();
        file::encode(&mut content, &head, &bytes).unwrap();
        prop_assert_eq!(file::decode(&content).unwrap(), (head.clone(), &bytes[..]));
        let lie = PieceHead { size: offset + bytes.len() as u64 - 1, ..head };
        content.clear();
        file::encode(&mut content, &lie, &bytes).unwrap();
        prop_assert!(file::decode(&content).is_err());
    }

    #[test]
    fn noise_is_refused_or_harmless(bytes in vec(any::<u8>(), 0..300)) {
        let _ = PackedSymbols::decode(&bytes);
        let _ = PackedTable::decode(&bytes);
        let _ = file::decode(&bytes);
    }
}

fn some_key() -> FileKey {
    FileKey {
        path: b"/x".to_vec(),
        build_id: BuildId::new(&[0xab]),
        version: None,
    }
}

/// A key must say which content it is of, and only once.
#[test]
fn keys_without_an_identity_are_refused() {
    let version = FileVersion {
        size: 1,
        mtime_sec: 2,
        mtime_nsec: 3,
    };
    for bad in [
        FileKey {
            build_id: None,
            ..some_key()
        },
        FileKey {
            version: Some(version),
            ..some_key()
        },
        FileKey {
            path: vec![b'a'; (64 << 10) + 1],
            ..some_key()
        },
    ] {
        let symbols = Symbols::from([(1, AtOffset::Nameless { inside: None })]);
        let err = PackedSymbols::decode(&build(&bad, &symbols)).unwrap_err();
        assert_eq!(err.part, "packed symbols", "{err}");
    }
}

/// Counts and columns that promise more than the bytes hold must not be believed.
#[test]
fn absurd_counts_are_refused_before_they_allocate() {
    let bytes = build(
        &some_key(),
        &Symbols::from([(1, AtOffset::Nameless { inside: None })]),
    );
    // Key: 2 + 2, 1 + 1 + 1, 0; strings: 0; then the count.
    let at = bytes.iter().rposition(|b| *b == 1).unwrap();
    assert!(at > 8);
    let count = 8;
    assert_eq!(bytes[count - 1..=count], [0, 1], "{bytes:?}");
    let mut many = bytes[..count].to_vec();
    many.extend([0xff, 0xff, 0x0f]);
    many.extend(&bytes[count + 1..]);
    assert!(PackedSymbols::decode(&many).is_err());
    // Offsets must not be constant: their bytes are what bounds the number.
    let mut constant = bytes.clone();
    constant[count + 1] = 0;
    assert!(PackedSymbols::decode(&constant).is_err());
}
