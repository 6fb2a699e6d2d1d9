use super::*;

/// A section: name, type, flags, address, bytes.
type Section<'a> = (&'a str, u32, u64, u64, &'a [u8]);

const PROGBITS: u32 = 1;
const RELA: u32 = 4;
const TEXT: u64 = 0x40_1000;

/// A little-endian 64-bit ELF file for x86-64 with these sections, of which those of code are loaded.
fn elf(kind: u16, sections: &[Section<'_>]) -> Vec<u8> {
    let mut names = b"\0".to_vec();
    let mut body = vec![0; 0x1000];
    let mut headers = vec![0; 64];
    let mut loads = Vec::new();
    let mut count = 0u16;
    let all = sections.iter().map(|s| (s.0, s.1, s.2, s.3, s.4.to_vec()));
    let last = (".shstrtab", 3, 0, 0, Vec::new());
    for (name, kind, flags, address, mut bytes) in all.chain([last]) {
        let at = names.len() as u32;
        names.extend(name.as_bytes());
        names.push(0);
        if kind == 3 {
            bytes = names.clone();
        }
        let offset = body.len() as u64;
        for word in [at, kind] {
            headers.extend(word.to_le_bytes());
        }
        let entry = if kind == RELA { 24 } else { 0 };
        let size = bytes.len() as u64;
        for word in [flags, address, offset, size, 0, 8, entry] {
            headers.extend(word.to_le_bytes());
        }
        if flags & 4 != 0 {
            loads.extend(1u32.to_le_bytes());
            loads.extend(5u32.to_le_bytes());
            for word in [offset, address, address, size, size, 0x1000] {
                loads.extend(word.to_le_bytes());
            }
            count += 1;
        }
        body.extend(bytes);
        body.resize(body.len().next_multiple_of(16), 0);
    }
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend(kind.to_le_bytes());
    out.extend(62u16.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    for word in [TEXT, 64, body.len() as u64] {
        out.extend(word.to_le_bytes());
    }
    out.extend(0u32.to_le_bytes());
    let total = sections.len() as u16 + 2;
    for half in [64, 56, count, 64, total, total - 1] {
        out.extend(half.to_le_bytes());
    }
    out.extend(loads);
    body.splice(..out.len(), out);
    body.extend(headers);
    body
}

/// (bytes from the beginning of the text, length, name, flags); each is padded to 16.
type Made<'a> = (u64, u32, &'a str, u8);

const FUNCTIONS: [Made<'_>; 4] = [
    (0, 9, "runtime.goexit", 1),
    (0x10, 0x9e, "main.(*shape).spin", 0),
    (0xb0, 0x10, "runtime.morestack", 3),
    (0xc0, 0x1f, "main.apply[...]", 2),
];

/// A table of one of Go's releases, laid out as its linker does: header, names, values, pairs, descriptions.
fn table(magic: u32, text: u64, functions: &[Made<'_>]) -> Vec<u8> {
    let short = matches!(magic, 0xffff_fff0 | 0xffff_fff1);
    let old = magic == 0xffff_fffb;
    let mut names = vec![];
    // No value begins at 0.
    let mut values = vec![0];
    let mut places = vec![];
    for (_, len, name, _) in functions {
        let name_at = names.len();
        names.extend(name.as_bytes());
        names.push(0);
        let values_at = values.len();
        // One change of the value, in two groups of bits, and another before the end.
        let first = 5.min(len - 1);
        values.extend([0x82, 0x01, first as u8]);
        let rest = len - first;
        values.extend([0x07, rest as u8 & 0x7f | 0x80, (rest >> 7) as u8, 0]);
        places.push((name_at, values_at));
    }
    let fields = match (old, short) {
        (true, _) => 1,
        (_, false) => 7,
        (_, true) => 8,
    };
    let header = 8 + 8 * fields;
    let half = if short { 4 } else { 8 };
    let pairs_len = (2 * functions.len() + 1) * half;
    let described = 44;
    let descriptions_len = described * functions.len();
    // Go 1.2 has its pairs behind the header, and counts all from the beginning.
    let (pairs_at, names_at) = match old {
        true => (header, header + pairs_len + descriptions_len),
        false => (header + names.len() + values.len(), header),
    };
    let values_at = names_at + names.len();
    let base = if old { 0 } else { pairs_at };
    let from = |at| if old { at } else { 0 };

    let mut out = magic.to_le_bytes().to_vec();
    out.extend([0, 0, 1, 8]);
    let mut word = |value: u64| out.extend(value.to_le_bytes());
    word(functions.len() as u64);
    if !old {
        word(0);
        if short {
            word(text);
        }
        for at in [names_at, names_at, names_at, values_at, pairs_at] {
            word(at as u64);
        }
    }
    let mut pairs = vec![];
    let mut descriptions = vec![];
    let start = |into: u64| if short { into } else { TEXT + into };
    for (number, (into, _, _, flags)) in functions.iter().enumerate() {
        let at = pairs_at + pairs_len + number * described - base;
        pairs.extend(&start(*into).to_le_bytes()[..half]);
        pairs.extend(&(at as u64).to_le_bytes()[..half]);
        let (name, value) = places[number];
        let mut words = vec![];
        words.extend(&start(*into).to_le_bytes()[..half]);
        let name = (name + from(names_at)) as u32;
        let value = (value + from(values_at)) as u32;
        for word in [name, 0, 0, value, 0, 0, 0, 0] {
            words.extend(word.to_le_bytes());
        }
        if magic == 0xffff_fff1 {
            words.extend(77u32.to_le_bytes());
        }
        if !old {
            words.extend([5, *flags]);
        }
        words.resize(described, 0);
        descriptions.extend(words);
    }
    let (into, len, ..) = functions.last().unwrap();
    pairs.extend(&start(into + u64::from(*len)).to_le_bytes()[..half]);
    match old {
        true => [out, pairs, descriptions, names, values].concat(),
        false => [out, names, values, pairs, descriptions].concat(),
    }
}

/// Code of these functions: `nop`, with padding between them, behind so many bytes of others.
fn code(before: usize, functions: &[Made<'_>]) -> Vec<u8> {
    let mut code = vec![0x90; before];
    for (into, len, ..) in functions {
        code.resize(before + *into as usize, 0xcc);
        code.resize(before + *into as usize + *len as usize, 0x90);
    }
    code
}

fn program(magic: u32) -> Vec<u8> {
    let (code, table) = (code(0, &FUNCTIONS), table(magic, TEXT, &FUNCTIONS));
    let sections = [
        (".text", PROGBITS, 6, TEXT, &*code),
        (".gopclntab", PROGBITS, 2, 0x50_0000, &*table),
    ];
    elf(2, &sections)
}

/// (begins, ends, name, flags), from where the text begins.
fn all(image: &[u8], text: u64) -> Vec<(u64, u64, String, u8)> {
    let functions = GoFunctions::of(image).unwrap();
    let known = functions.iter().map(|function| {
        let name = String::from_utf8(functions.name(&function).to_vec()).unwrap();
        let end = functions.end(&function);
        (function.start - text, end - text, name, function.flags)
    });
    known.collect()
}

fn expected(with_flags: bool) -> Vec<(u64, u64, String, u8)> {
    let all = FUNCTIONS.iter().map(|(into, len, name, flags)| {
        let flags = if with_flags { *flags } else { 0 };
        (*into, into + u64::from(*len), (*name).to_owned(), flags)
    });
    all.collect()
}

#[test]
fn tables_of_every_release_are_read() {
    for (magic, with_flags) in [
        (0xffff_fffb, false),
        (0xffff_fffa, true),
        (0xffff_fff0, true),
        (0xffff_fff1, true),
    ] {
        let image = program(magic);
        assert_eq!(all(&image, TEXT), expected(with_flags), "{magic:#x}");
    }
    assert_eq!(flags::TOP_FRAME | flags::SP_WRITE, FUNCTIONS[2].3);
}

#[test]
fn padding_belongs_to_no_function() {
    let image = program(0xffff_fff1);
    let functions = GoFunctions::of(&image).unwrap();
    let name = |address: u64| {
        let found = functions.find(address)?;
        Some(std::str::from_utf8(functions.name(&found)).unwrap())
    };
    for (into, function) in [
        (0, Some("runtime.goexit")),
        (8, Some("runtime.goexit")),
        (9, None),
        (0xf, None),
        (0x10, Some("main.(*shape).spin")),
        (0xad, Some("main.(*shape).spin")),
        (0xae, None),
        (0xbf, Some("runtime.morestack")),
        (0xde, Some("main.apply[...]")),
        (0xdf, None),
        (0x1000, None),
    ] {
        assert_eq!(name(TEXT + into), function, "{into:#x}");
    }
    for address in [0, TEXT - 1, u64::MAX] {
        assert_eq!(name(address), None);
    }
}

/// As C compilers' linkers lay out a position-independent program: other code in front, the table among other data, and the
/// address of the text in a relocation only.
#[test]
fn the_loader_says_where_the_text_of_a_position_independent_program_begins() {
    let code = code(0x100, &FUNCTIONS);
    let data = [vec![0; 0x40], table(0xffff_fff1, 0, &FUNCTIONS)].concat();
    let relocation = |address: u64, text: u64| {
        let other = [address - 8, 8, 0x1234].map(u64::to_le_bytes);
        [other, [address, 8, text].map(u64::to_le_bytes)]
            .concat()
            .concat()
    };
    let field = 0x50_0000 + 0x40 + 24;
    let right = relocation(field, TEXT + 0x100);
    let wrong = relocation(field, TEXT + 0x80);
    let with = |relocations: &[u8]| {
        let sections = [
            (".text", PROGBITS, 6, TEXT, &*code),
            (".note.go.buildid", PROGBITS, 2, 0x40_0100, &b""[..]),
            (".data.rel.ro", PROGBITS, 3, 0x50_0000, &*data),
            (".rela.dyn", RELA, 2, 0x40_0200, relocations),
        ];
        elf(3, &sections)
    };
    assert_eq!(all(&with(&right), TEXT + 0x100), expected(true));
    assert!(
        GoFunctions::of(&with(&wrong)).is_none(),
        "the padding is elsewhere"
    );
    assert!(
        GoFunctions::of(&with(&[])).is_none(),
        "other code begins .text"
    );
}

/// Go 1.26 does not write it into the table any more.
#[test]
fn the_text_of_new_programs_is_told_by_the_description_of_the_module() {
    let code = code(0x100, &FUNCTIONS);
    let table = table(0xffff_fff1, 0, &FUNCTIONS);
    let mut module = vec![0; 0x200];
    module[22 * 8..23 * 8].copy_from_slice(&(TEXT + 0x100).to_le_bytes());
    let mut sections = vec![
        (".text", PROGBITS, 6, TEXT, &*code),
        (".gopclntab", PROGBITS, 2, 0x50_0000, &*table),
        (".go.module", PROGBITS, 3, 0x60_0000, &*module),
    ];
    assert_eq!(all(&elf(2, &sections), TEXT + 0x100), expected(true));
    sections.pop();
    assert!(GoFunctions::of(&elf(2, &sections)).is_none());
    // Go's own linker begins with its text.
    sections[0].4 = &code[0x100..];
    assert_eq!(all(&elf(2, &sections), TEXT), expected(true));
}

/// Cut short anywhere, and with every byte of the table changed: something or nothing is found, and it ends.
#[test]
fn broken_tables_are_read_as_far_as_they_go() {
    for magic in [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1] {
        let image = program(magic);
        let table = table(magic, TEXT, &FUNCTIONS);
        let at = memchr::memmem::find(&image, &table).unwrap();
        let read = |image: &[u8]| {
            let Some(functions) = GoFunctions::of(image) else {
                return 0;
            };
            for address in (TEXT - 16..TEXT + 0x200).step_by(7) {
                if let Some(found) = functions.find(address) {
                    assert!(found.start <= address && address < functions.end(&found));
                }
            }
            let known = functions.iter().inspect(|function| {
                assert!(functions.end(function) <= function.next);
                let _ = functions.name(function);
            });
            known.count()
        };
        assert_eq!(read(&image), FUNCTIONS.len());
        for cut in 0..table.len() {
            assert!(Layout::of(&table[..cut]).is_none_or(|layout| {
                let cut = GoFunctions { layout, text: TEXT };
                cut.iter().all(|function| cut.name(&function).len() < 32)
            }));
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut image = image.clone();
                image[at + cut] = value;
                assert!(read(&image) <= FUNCTIONS.len());
            }
        }
    }
    assert!(GoFunctions::of(b"").is_none());
    assert!(GoFunctions::of(&std::fs::read("/proc/self/exe").unwrap()).is_none());
}
