//! Walks through real unwind information, and through what is left of it when its bytes are changed.

use std::rc::Rc;

use gimli::UnwindContext;
use proptest::prelude::*;

use super::tables::{Image, Tables};
use super::*;
use crate::event::{MappedFile, MappedKind, Pid, Timestamp, prot};
use crate::record::address_space::{AddressSpace, Mapping};
use crate::record::kernel_names::own_vdso;
use crate::record::unwind::registers::{RBP, RIP, RSP};

const VDSO: u64 = 0x7fff_0000_0000;

fn space(kind: MappedKind, start: u64, size: u64) -> AddressSpace {
    let file = MappedFile {
        kind,
        path: Vec::new(),
        build_id: None,
        inode: None,
        version: None,
        deleted: false,
    };
    let mapping = Mapping {
        start,
        end: start + size,
        file_offset: 0,
        prot: prot::READ | prot::EXEC,
        file: Rc::new(file),
    };
    AddressSpace::read(vec![mapping], Vec::new())
}

fn walk(
    registers: &[(u8, u64)],
    stack: &[u64],
    space: &AddressSpace,
    depth: usize,
) -> (Vec<u64>, Walked) {
    let words = copies::words(registers, 0x7000, stack);
    let copy = StackCopy::decode(&words, stack.len(), false).expect("a copy");
    let code = Code {
        process: Pid(std::process::id()),
        space: Some(space),
        time: Timestamp(5),
        exec_id: 0,
    };
    let mut out = vec![7];
    let mut unwinder = Unwinder::new(None).expect("this architecture");
    let walked = unwinder.walk(&copy, code, depth, &mut out);
    assert_eq!(out.remove(0), 7, "what was there stays");
    (out, walked)
}

/// A function of the vdso, by its address in the image.
fn vdso_function(image: &[u8]) -> u64 {
    use object::{Object, ObjectSymbol};
    let elf = object::File::parse(image).expect("an ELF file");
    let mut symbols = elf.dynamic_symbols();
    let found = symbols.find(|s| s.name() == Ok("__vdso_clock_gettime"));
    found.expect("clock_gettime").address()
}

/// At its first instruction a function has pushed nothing: the return address is on top. It is nobody's code here.
#[test]
fn the_first_instruction_of_a_function() {
    let image = own_vdso().expect("a vdso");
    let at = VDSO + vdso_function(&image);
    let space = space(MappedKind::Vdso, VDSO, image.len() as u64);
    let registers = [(RIP, at), (RSP, 0x7000)];
    let (stack, walked) = walk(&registers, &[at + 8, 0x1234], &space, 10);
    assert_eq!(stack[..2], [at, at + 8]);
    assert_ne!(walked.end, End::Root);
    assert!(!walked.by_frame_pointer);
    let (stack, walked) = walk(&registers, &[0x1234], &space, 10);
    assert_eq!((stack, walked.end), (vec![at], End::Unmapped));
    let (stack, walked) = walk(&registers, &[0], &space, 10);
    assert_eq!((stack, walked.end), (vec![at], End::Root));
    let (stack, walked) = walk(&registers, &[], &space, 10);
    assert_eq!((stack, walked.end), (vec![at], End::Window));
    let (stack, walked) = walk(&registers, &[at + 8], &space, 1);
    assert_eq!((stack, walked.end), (vec![at], End::Depth));
    // As many frames as are kept, and no more that there are.
    let (stack, walked) = walk(&registers, &[0], &space, 1);
    assert_eq!((stack, walked.end), (vec![at], End::Root));
}

/// Code of no file: by frame pointers as long as they go up, and told.
#[test]
fn generated_code_by_frame_pointers() {
    let space = space(MappedKind::Anonymous, 0x1000, 0x1000);
    let registers = [(RIP, 0x1100), (RSP, 0x7000), (RBP, 0x7008)];
    let stack = [0, 0x7018, 0x1200, 0, 0x1300];
    let (frames, walked) = walk(&registers, &stack, &space, 10);
    assert_eq!(frames, [0x1100, 0x1200, 0x1300]);
    assert_eq!((walked.end, walked.by_frame_pointer), (End::Root, true));
    let (frames, walked) = walk(&registers, &stack[..4], &space, 10);
    assert_eq!((frames.len(), walked.end), (2, End::Window));
    for (saved, end) in [
        (0x7000, End::BadFrame),
        (0x7008, End::BadFrame),
        (0x7013, End::BadFrame),
        (0, End::Root),
    ] {
        let (frames, walked) = walk(&registers, &[0, saved, 0x1200, 0], &space, 10);
        assert_eq!((frames.len(), walked.end), (2, end), "{saved:x}");
    }
    let (frames, walked) = walk(&registers, &[0, 0x7018, 0x9999, 0], &space, 10);
    assert_eq!((frames, walked.end), (vec![0x1100], End::Unmapped));
}

/// A large frame: what lies above it was copied too, or it ends there and says where that would be.
#[test]
fn a_walk_goes_on_beyond_a_gap() {
    let image = own_vdso().expect("a vdso");
    let at = VDSO + vdso_function(&image);
    let space = space(MappedKind::Vdso, VDSO, image.len() as u64);
    let code = Code {
        process: Pid(std::process::id()),
        space: Some(&space),
        time: Timestamp(5),
        exec_id: 0,
    };
    let go = |sp: u64, part: Option<(u64, &[u64])>| {
        let mut words = copies::words(&[(RIP, at), (RSP, sp)], 0x7000, &[at + 8, 0, 0, 0]);
        let more = part.map_or(0, |(from, stack)| copies::add_part(&mut words, from, stack));
        let copy = StackCopy::decode(&words, 4 + more, false).expect("a copy");
        let mut out = Vec::new();
        let walked = Unwinder::new(None)
            .expect("this architecture")
            .walk(&copy, code, 10, &mut out);
        (out, walked.end, walked.is_beyond, walked.needed, walked.gap)
    };
    // Not a gap, only the end.
    let ended = (vec![at], End::Window, false, 0x20, None);
    assert_eq!(go(0x7020, None), ended);
    assert_eq!(go(0x7020, Some((0x9_0000, &[0]))), ended);
    // The stack goes on elsewhere, as that of a signal handler does.
    let whole = (vec![at], End::Root, true);
    let (frames, end, is_beyond, ..) = go(0x9_0008, Some((0x9_0000, &[at + 8, 0])));
    assert_eq!((frames, end, is_beyond), whole);
}

/// What the kernel has found goes on where there is nothing to be read, if it is the same up to there.
#[test]
fn the_kernels_walk_goes_on_where_unwind_information_ends() {
    let space = space(MappedKind::Anonymous, 0x1000, 0x1000);
    let go = |stack: &[u64], by_kernel: &[u64], depth| {
        let mut words = copies::words(
            &[(RIP, 0x1100), (RSP, 0x7000), (RBP, 0x7008)],
            0x7000,
            stack,
        );
        words.extend_from_slice(by_kernel);
        let copy = StackCopy::decode(&words, stack.len(), false).expect("a copy");
        let code = Code {
            process: Pid(std::process::id()),
            space: Some(&space),
            time: Timestamp(5),
            exec_id: 0,
        };
        let mut out = vec![7];
        let walked = Unwinder::new(None)
            .expect("this architecture")
            .walk(&copy, code, depth, &mut out);
        (out.split_off(1), walked.end)
    };
    let stack = [0, 0x7018, 0x1200];
    let whole = vec![0x1100, 0x1200, 0x1300, 0x1400];
    assert_eq!(go(&stack, &whole, 10), (whole.clone(), End::Window));
    assert_eq!(go(&stack, &whole, 3), (whole[..3].to_vec(), End::Depth));
    assert_eq!(go(&stack, &[], 10), (whole[..2].to_vec(), End::Window));
    let other = [0x1100, 0x1208, 0x1300];
    assert_eq!(go(&stack, &other, 10), (whole[..2].to_vec(), End::Window));
    let no_code = [0x1100, 0x1200, 0x1300, 0x9300, 0x1400];
    assert_eq!(go(&stack, &no_code, 10), (whole[..3].to_vec(), End::Window));
    // The kernel has not seen the leaf's caller, nor its caller's.
    let stack = [0, 0x7018, 0x1180, 0x7028, 0x1190, 0x7038, 0x1200];
    let all = vec![0x1100, 0x1180, 0x1190, 0x1200, 0x1300];
    let by_kernel = [0x1100, 0x1200, 0x1300];
    let by_kernel_less = [0x1100, 0x1190, 0x1200, 0x1300];
    assert_eq!(go(&stack, &by_kernel, 10).0, all);
    assert_eq!(go(&stack, &by_kernel_less, 10).0, all);
    assert_eq!(go(&stack, &[0x1100, 0x1300], 10).0, all[..4]);
}

/// Nothing is known of what is mapped, or the file cannot be had.
#[test]
fn unknown_code_has_no_caller() {
    let registers = [(RIP, 0x1100), (RSP, 0x7000), (RBP, 0x7008)];
    let stack = [0x1110; 8];
    let none = AddressSpace::default();
    let (frames, walked) = walk(&registers, &stack, &none, 10);
    assert_eq!((frames, walked.end), (vec![0x1100], End::Unmapped));
    let gone = space(MappedKind::File, 0x1000, 0x1000);
    let (frames, walked) = walk(&registers, &stack, &gone, 10);
    assert_eq!((frames, walked.end), (vec![0x1100], End::NoInfo));
}

/// The first function of a process need not say that it is: nothing lies above it.
#[test]
fn where_the_kernel_has_entered_is_the_root() {
    let mapped = space(MappedKind::File, 0x1000, 0x1000);
    let file = mapped.until(Timestamp::MAX).0[0].file.clone();
    // An ELF header, one executable PT_LOAD of 4 KiB, and no unwind information.
    let mut image = vec![0; 0x1000];
    image[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0");
    for (at, value) in [
        (20, 1),
        (32, 64),
        (52, 64),
        (54, 56),
        (56, 1),
        (64, 1),
        (68, 5),
    ] {
        image[at] = value;
    }
    image[64 + 32..64 + 34].copy_from_slice(&[0, 0x10]);
    let go = |sp: u64, rbp: u64| {
        let words = copies::words(&[(RIP, 0x1100), (RSP, sp), (RBP, rbp)], 0x7000, &[1, 2]);
        let copy = StackCopy::decode(&words, 2, false).expect("a copy");
        let code = Code {
            process: Pid(std::process::id()),
            space: Some(&mapped),
            time: Timestamp(5),
            exec_id: 0,
        };
        let mut unwinder = Unwinder::new(None).expect("this architecture");
        unwinder.know(&file, Image::Memory(image.clone()));
        unwinder.walk(&copy, code, 10, &mut Vec::new()).end
    };
    assert_eq!(go(0x7010, 0), End::Root);
    assert_eq!(go(0x7008, 0), End::NoInfo);
    assert_eq!(go(0x7010, 0x7020), End::NoInfo);
}

/// Where files that tests make are mapped.
const MAPPED: u64 = 0x40_0000;

/// Walks `words`, of which `count` are stack, through a file of this code, of which this is told.
fn walk_made(
    code: &[u8],
    functions: &[made::Function<'_>],
    words: &[u64],
    count: usize,
) -> (Vec<u64>, Walked) {
    let mapped = space(MappedKind::File, MAPPED, made::SIZE as u64);
    let file = mapped.until(Timestamp::MAX).0[0].file.clone();
    let copy = StackCopy::decode(words, count, false).expect("a copy");
    let now = Code {
        process: Pid(std::process::id()),
        space: Some(&mapped),
        time: Timestamp(5),
        exec_id: 0,
    };
    let mut unwinder = Unwinder::new(None).expect("this architecture");
    unwinder.know(&file, Image::Memory(made::image(code, functions)));
    let mut stack = Vec::new();
    let walked = unwinder.walk(&copy, now, 10, &mut stack);
    (stack, walked)
}

/// A place in such code.
const fn made_at(at: u64) -> u64 {
    MAPPED + made::CODE + at
}

/// While a handler returns, the kernel finds what it has interrupted on top of the stack; its own instruction is the last of its function.
#[test]
fn a_sample_in_the_system_call_that_ends_a_signal() {
    let mut code = [0x90; 64];
    code[40..49].copy_from_slice(b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05");
    let mut stack = [0; 34];
    // rsp, rip, and what was interrupted: its caller, which has none.
    stack[5 + 15] = 0x7100;
    stack[5 + 16] = made_at(4);
    stack[32] = made_at(8);
    let registers = [(RIP, made_at(49)), (RSP, 0x7000), (RBP, 0x7008)];
    let mut words = copies::words(&registers, 0x7000, &stack);
    let ordinary = (0, 16, made::PLAIN);
    let all: [&[made::Function<'_>]; 2] = [&[ordinary], &[ordinary, (39, 10, made::SIGNAL)]];
    for functions in all {
        // It has run there, but is in no system call: nobody knows how.
        let (frames, walked) = walk_made(&code, functions, &words, stack.len());
        assert_eq!((frames, walked.end), (vec![made_at(49)], End::NoInfo));
    }
    copies::enter_system_call(&mut words, 15);
    for functions in all {
        let (frames, walked) = walk_made(&code, functions, &words, stack.len());
        // Its own function is in front of the address, what was interrupted is behind.
        let expected = vec![made_at(48), made_at(4) + 1, made_at(8)];
        assert_eq!((frames, walked.end), (expected, End::Root));
        let (frames, walked) = walk_made(&code, functions, &words[..23 + 20], 20);
        assert_eq!((frames, walked.end), (vec![made_at(48)], End::Window));
    }
}

/// A leaf of which nothing is known may have anything for a frame pointer, also where that leads to code behind a call.
#[test]
fn the_kernels_walk_is_not_taken_where_only_the_leaf_agrees() {
    let mut code = [0x90; 64];
    code[3] = 0xe8;
    let registers = [(RIP, made_at(40)), (RSP, 0x7000), (RBP, 0x7100)];
    let mut words = copies::words(&registers, 0x7000, &[]);
    words.extend([made_at(40), made_at(8)]);
    let caller = (0, 16, made::PLAIN);
    let (frames, walked) = walk_made(&code, &[caller], &words, 0);
    assert_eq!((frames, walked.end), (vec![made_at(40)], End::NoInfo));
    assert!(!walked.by_frame_pointer && !walked.went_on);
    // rbp + 16, and that of the caller below the return address.
    let keeps = made::Left::Called(&[0x0c, 6, 16, 0x86, 2]);
    let (frames, walked) = walk_made(&code, &[caller, (32, 16, keeps)], &words, 0);
    assert_eq!(frames, [made_at(40), made_at(8)]);
    assert_eq!((walked.end, walked.went_on), (End::Window, true));
}

/// As the stack of a coroutine does: it was made to return to the first byte of a function.
#[test]
fn a_stack_that_ends_at_the_beginning_of_a_function() {
    let functions = [(0, 16, made::PLAIN), (32, 16, made::FIRST)];
    let registers = [(RIP, made_at(4)), (RSP, 0x7000)];
    let stack = [made_at(32), made_at(8)];
    let words = copies::words(&registers, 0x7000, &stack);
    let (frames, walked) = walk_made(&[0x90; 64], &functions, &words, stack.len());
    // The byte in front of it belongs to nobody.
    assert_eq!(frames, [made_at(4), made_at(32) + 1]);
    assert_eq!(walked.end, End::Root);
}

/// All of the vdso's code has unwind information, or none is made up.
#[test]
fn every_address_of_the_vdso() {
    let image = own_vdso().expect("a vdso");
    let function = vdso_function(&image);
    let size = image.len() as u64;
    let tables = Tables::new(Image::Memory(image));
    let mut context = UnwindContext::new();
    let mut found = 0;
    for offset in 0..size {
        let Some(address) = tables.address_at(offset) else {
            continue;
        };
        let row = tables.row(address, &mut context, |_, _, _| ());
        found += u64::from(row.is_ok());
        assert_ne!(row, Err(true), "no generated code in there");
    }
    assert!(found > 100, "{found}");
    assert!(tables.row(function, &mut context, |_, _, _| ()).is_ok());
}

/// As many bytes changed as are given: place, value.
fn changed(mut image: Vec<u8>, changes: &[(u16, u8)]) -> Vec<u8> {
    for (place, value) in changes {
        let place = usize::from(*place) % image.len();
        image[place] = *value;
    }
    image
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the file says: walks end, go up only, and keep to mapped code.
    #[test]
    fn broken_unwind_information_does_no_harm(
        changes in prop::collection::vec((any::<u16>(), any::<u8>()), 1..200),
        cut in any::<u16>(),
        stack in prop::collection::vec(any::<u16>(), 64),
        sp in 0u64..64,
    ) {
        let mut image = changed(own_vdso().expect("a vdso"), &changes);
        if cut % 4 == 0 {
            image.truncate(usize::from(cut));
        }
        let size = image.len() as u64;
        let tables = Tables::new(Image::Memory(image));
        let mut context = UnwindContext::new();
        let values: Vec<u64> = stack.iter().map(|v| 0x7000 + u64::from(*v) % 0x400).collect();
        let words = copies::words(&[(RSP, 0x7000 + sp), (RBP, 0x7000 + sp * 4), (RIP, 1)], 0x7000, &values);
        let copy = StackCopy::decode(&words, values.len(), false).expect("a copy");
        for offset in (0..size).step_by(3) {
            let Some(address) = tables.address_at(offset) else { continue };
            let _ = tables.may_follow_call(address);
            let _ = tables.row(address, &mut context, |row, bytes, entry| {
                let is_signal = entry.is_signal;
                if let rule::Step::Rule(rule) = rule::compile(row, bytes) {
                    let mut registers = copy.registers();
                    if rule.apply(&mut registers, &copy).is_ok() {
                        assert!(registers.sp() > copy.registers().sp());
                    }
                }
                let mut registers = copy.registers();
                let done = eval::apply(row, bytes, is_signal, &mut registers, &copy);
                assert!(done.is_err() || is_signal || registers.sp() > copy.registers().sp());
            });
        }
    }
}
