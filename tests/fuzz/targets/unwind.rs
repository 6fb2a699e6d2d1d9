//! Walks of user stacks: unwind information, registers and stack memory that say anything.
#![no_main]

use std::cell::RefCell;
use std::rc::Rc;

use bprof::event::{MappedFile, MappedKind, Pid, Timestamp, prot};
use bprof::record::address_space::{AddressSpace, Mapping};
use bprof::record::unwind::tables::Image;
use bprof::record::unwind::{Code, End, StackCopy, Unwinder};
use libfuzzer_sys::fuzz_target;

/// Registers of a copy, where its first part begins, and the bytes of that.
const HEAD: usize = 23;
/// Of these, where the instruction and stack pointers, the beginning and the bytes are.
const IP: usize = 16;
const SP: usize = 19;
const FROM: usize = 21;
const BYTES: usize = 22;
/// What lies between two parts is smaller.
const GAP: u64 = 1 << 16;
/// Where the file is mapped, and code of no file.
const FILE: u64 = 0x40_0000;
const GENERATED: u64 = 0x7000_0000;
const SIZE: u64 = 0x10_0000;

struct Walker {
    unwinder: Unwinder,
    mapped: Rc<MappedFile>,
    generated: Rc<MappedFile>,
}

thread_local! {
    /// It is made once: what it keeps of one file must not be taken for another's.
    static WALKER: RefCell<Option<Walker>> = RefCell::new(Unwinder::new(None).map(|unwinder| Walker {
        unwinder,
        mapped: file(MappedKind::File),
        generated: file(MappedKind::Anonymous),
    }));
}

fn file(kind: MappedKind) -> Rc<MappedFile> {
    Rc::new(MappedFile {
        kind,
        path: Vec::new(),
        build_id: None,
        inode: None,
        version: None,
        deleted: false,
    })
}

/// One byte for the depth, two for the bytes of stack, which come next with the registers before them; the rest is the file.
fn parts(data: &[u8]) -> Option<(usize, Vec<u64>, &[u8])> {
    let ([depth, low, high], rest) = data.split_first_chunk()?;
    let words = usize::from(u16::from_le_bytes([*low, *high]) % 512);
    let (copy, image) = rest.split_at_checked((HEAD + words) * 8)?;
    let words = copy
        .chunks_exact(8)
        .filter_map(|w| w.first_chunk().map(|w| u64::from_le_bytes(*w)));
    Some((usize::from(*depth), words.collect(), image))
}

fuzz_target!(|data: &[u8]| {
    let Some((depth, mut words, image)) = parts(data) else {
        return;
    };
    // Anything else ends at once.
    words[FROM] &= !7;
    words[IP] = match words[IP] % 4 {
        0 => GENERATED + words[IP] / 4 % SIZE,
        _ => FILE + words[IP] / 4 % SIZE,
    };
    words[SP] = words[FROM].wrapping_add(words[SP] % 256);
    let copied = (words.len() - HEAD) * 2 / 3;
    // In about half of all there is another part, from somewhere above.
    words[BYTES] %= (copied as u64 + 1) * 16;
    let part = HEAD + words[BYTES] as usize / 8;
    if part < HEAD + copied {
        words[part] = words[FROM]
            .wrapping_add(words[BYTES] & !7)
            .wrapping_add(words[part] % GAP)
            & !7;
    }
    let Some(copy) = StackCopy::decode(&words, copied, false) else {
        return;
    };
    let mapping = |start, file: &Rc<MappedFile>| Mapping {
        start,
        end: start + SIZE,
        file_offset: 0,
        prot: prot::READ | prot::EXEC,
        file: file.clone(),
    };
    WALKER.with_borrow_mut(|walker| {
        let Some(walker) = walker else { return };
        let mappings = vec![
            mapping(FILE, &walker.mapped),
            mapping(GENERATED, &walker.generated),
        ];
        let space = AddressSpace::read(mappings, Vec::new());
        let code = Code {
            process: Pid(1),
            space: Some(&space),
            time: Timestamp(1),
            exec_id: 0,
        };
        let unwinder = &mut walker.unwinder;
        unwinder.know(&walker.mapped, Image::Memory(image.to_vec()));
        let mut stack = vec![3];
        let walked = unwinder.walk(&copy, code, depth, &mut stack);
        assert_eq!(stack.remove(0), 3, "what was there stays");
        assert_eq!(stack.first(), Some(&words[IP]));
        assert!(stack.len() <= depth.max(1));
        if walked.end == End::Depth {
            assert_eq!(stack.len(), depth.max(1));
        }
        // A return address may be the one behind all code.
        let is_code = |at: &u64| {
            let within = |start| (start..=start + SIZE).contains(at);
            within(FILE) || within(GENERATED)
        };
        assert!(stack.iter().all(is_code), "{stack:x?}");
        let mut again = Vec::new();
        assert_eq!(walked, unwinder.walk(&copy, code, depth, &mut again));
        assert_eq!(stack, again, "the cache says the same");
    });
});
