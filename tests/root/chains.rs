//! Copies of stacks that are shortened to a chain of frames: what is left of them says of each frame what was there.

use std::arch::global_asm;
use std::cell::RefCell;
use std::os::fd::AsFd;

use bprof::event::Pid;
use bprof::record::bpf::{Config, Filter, Program};
use bprof::record::cpus;
use bprof::record::options::{Event, Rate};
use bprof::record::ring::Rings;
use bprof::record::sampler::{SamplingEvents, Where};
use bprof::record::unwind::WINDOW;
use bprof::record::unwind::usual::{self, Usual};
use bprof::record::wire::{Depths, RingSample, decode};

use crate::common::Bench;
use crate::common::workload::SHADOW_FP;

// chain_descend(depth, spins, looked): calls itself `depth` times with the usual frame of 48 bytes besides, then spins. Each frame stores
// its frame pointer in `looked` on its way down.
global_asm!(
    ".globl chain_descend",
    "chain_descend:",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 48",
    "mov [rdx], rbp",
    "add rdx, 8",
    "mov [rbp - 16], rdi",
    "test rdi, rdi",
    "jz 2f",
    "dec rdi",
    "call chain_descend",
    ".globl chain_return",
    "chain_return:",
    "leave",
    "ret",
    "2:",
    "3:",
    "dec rsi",
    "jnz 3b",
    "leave",
    "ret",
);

unsafe extern "C" {
    fn chain_descend(depth: u64, spins: u64, looked: *mut u64);
    fn chain_return();
}

const DEPTHS: Depths = Depths {
    user: 127,
    kernel: 127,
};
const RING: u32 = 16 << 20;

/// What the sampling program does, sample by sample, while this thread is `depth` frames deep.
struct Sampled {
    program: Program,
    rings: Rings,
    usual: Usual,
}

impl Sampled {
    fn start() -> Sampled {
        let online = cpus::online().expect("CPUs");
        let program = Program::load(&Config {
            filter: Filter::None,
            skip_idle: true,
            measured: false,
            depths: DEPTHS,
            window: WINDOW,
            chains: true,
            may_walk: true,
            ring_bytes: RING,
            online: &online,
            possible: cpus::possible_count().expect("CPUs"),
        })
        .expect("the sampling program: these tests need root");
        let mut rings = Rings::new().expect("rings");
        for ring in program.rings() {
            rings.add(ring.as_fd(), RING).expect("a ring");
        }
        let usual = program.usual().expect("shared memory");
        Sampled {
            program,
            rings,
            usual,
        }
    }

    /// Goes so deep, spins there for some 100 ms and gives each sample with a user stack of this code to `each`, with where the frames
    /// are, leaf first.
    fn descend(&mut self, depth: usize, mut each: impl FnMut(&RingSample<'_>, &[u64])) {
        let mut frames = vec![0u64; depth + 1];
        let (bpf, looked) = (self.program.fd(), &mut frames);
        // With little of its own on the stack.
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut sampling = sample_this_thread(bpf);
                // SAFETY: writes one frame pointer for each frame, for which there is room.
                unsafe { chain_descend(depth as u64, 200_000_000, looked.as_mut_ptr()) };
                sampling.disable();
            });
        });
        frames.reverse();
        self.rings.consume(|records| {
            for record in records {
                let sample = decode(record, DEPTHS).expect("a sample");
                // Of a leaf that has all its frames.
                let frame = sample.copy.map(|copy| copy.frame());
                if frame.is_some_and(|at| frames.first() == Some(&at.fp)) {
                    each(&sample, &frames);
                }
            }
        });
    }
}

fn sample_this_thread(bpf: i32) -> SamplingEvents {
    // SAFETY: no arguments, cannot fail.
    let thread = Pid(unsafe { libc::gettid() }.cast_unsigned());
    let (event, rate) = (Event::CpuClock, Rate::Frequency(2000));
    let places = Where::Threads(vec![thread]);
    let sampling = SamplingEvents::open(event, rate, &places, bpf, |_| ());
    let mut sampling = sampling.expect("events");
    sampling.enable().expect("sampling");
    sampling
}

/// Looks at copies of stacks with `depth` usual frames, of which the sampling program is told or not. How many were shortened, and all.
fn in_usual(depth: usize, is_told: bool) -> (usize, usize) {
    let _bench = Bench::new();
    let mut sampled = Sampled::start();
    let program = RefCell::new(None);
    sampled.descend(depth, |sample, _| {
        assert_eq!(
            sample.copy.and_then(|copy| copy.chain),
            None,
            "nothing is known"
        );
        *program.borrow_mut() = Some(usual::Program {
            process: sample.sampled.key.tgid,
            exec_id: sample.sampled.exec_id,
        });
    });
    let program = program.into_inner().expect("samples");
    let back = chain_return as *const () as u64;
    if is_told {
        sampled.usual.begin(program, 1);
        sampled.usual.tell(program, back);
    }
    let (mut chained, mut all) = (0, 0);
    sampled.descend(depth, |sample, frames| {
        all += 1;
        let copy = sample.copy.expect("a copy");
        // Each frame leads to the next and to the return address, whether it was left out or not.
        for (pair, at) in frames.windows(2).zip(0..) {
            let there = copy.read_two(pair[0]);
            assert_eq!(there, Some([pair[1], back]), "frame {at} of {depth}");
        }
        // Of the last frame, whose caller is no such code.
        let above = frames[depth] + 16;
        assert!(copy.read(above).is_some(), "what lies above is there");
        let Some(chain) = copy.chain else {
            return;
        };
        chained += 1;
        assert_eq!(chain.first, frames[0]);
        let addresses: Vec<u64> = chain.addresses().collect();
        let own = addresses.iter().take_while(|address| **address == back);
        assert_eq!(own.count(), depth.min(usual::LONGEST), "{addresses:#x?}");
        // What the functions keep for themselves is left out.
        assert_eq!(copy.read(frames[2] - 16), None);
        assert_eq!(copy.read(frames[0] - 16), Some(0), "but of the leaf");
    });
    assert!(all > 50, "{all} samples");
    (chained, all)
}

/// Every copy is shortened, and holds what walks need.
#[test]
fn a_copy_of_known_frames_is_a_chain() {
    let (chained, all) = in_usual(40, true);
    assert_eq!(chained, all);
}

/// Code of which nothing was told is copied as it is.
#[test]
fn a_copy_of_unknown_frames_is_whole() {
    assert_eq!(in_usual(40, false).0, 0);
}

/// So is a stack with few frames.
#[test]
fn a_copy_of_few_frames_is_whole() {
    assert_eq!(in_usual(5, true).0, 0);
}

/// A chain has so many frames at most; what lies above is copied as it is.
#[test]
fn a_copy_of_many_frames_is_a_chain_in_part() {
    let (chained, all) = in_usual(usual::LONGEST + 5, true);
    assert_eq!(chained, all);
}

/// With frame pointers, mixed with code that finds its caller by other registers, with the C library and signals in between: stacks are
/// what they are without.
#[test]
fn stacks_of_code_with_frame_pointers() {
    super::unwind::check_shadow(SHADOW_FP);
}
