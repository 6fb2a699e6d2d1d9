//! Walks at every instruction of whole programs, against the truth: a debugger's single steps tell each call and return.
//!
//! So prologues and epilogues, stubs of the PLT, the loader, the C library's functions in assembly, signal frames and stacks of
//! any shape are walked at each of their addresses.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::{io, mem, ptr};

use bprof::event::{Pid, Timestamp};
use bprof::record::address_space::{AddressSpace, Mapping};
use bprof::record::files::Files;
use bprof::record::maps;
use bprof::record::unwind::{Code, End, StackCopy, Unwinder};

use crate::common::workload::{SHADOW_STEPS, SHADOW_STEPS_STATIC};

/// Words of the stack a walk may read, the red zone included.
const WORDS: usize = 4096;
const RED_ZONE: u64 = 128;
/// Steps of one program at most: what is longer is left then.
const STEPS: u64 = 600_000;
/// An address is walked from the first so many times it is come by, and then now and then.
const ALWAYS: u32 = 3;
const OFTEN: u32 = 61;
/// Frames kept.
const DEPTH: usize = 127;

/// One frame that waits for those below it.
#[derive(Debug, Clone, Copy)]
struct Waits {
    /// It goes on once the stack pointer is above this.
    below: u64,
    /// Where.
    at: u64,
}

/// A program that is stepped through, and where its calls return to.
struct Stepped {
    child: Child,
    /// Root first.
    waiting: Vec<Waits>,
    space: AddressSpace,
    files: Files,
    registers: libc::user_regs_struct,
    /// To be delivered with the next step.
    signal: i32,
}

impl Stepped {
    fn start(command: &mut Command) -> Stepped {
        // SAFETY: a system call, and nothing else, between fork and exec.
        let traced = unsafe {
            command.pre_exec(|| {
                let none = ptr::null_mut::<libc::c_void>();
                match libc::ptrace(libc::PTRACE_TRACEME, 0, none, none) {
                    -1 => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                }
            })
        };
        let child = traced.spawn().expect("the program starts");
        let mut stepped = Stepped {
            child,
            waiting: Vec::new(),
            space: AddressSpace::default(),
            files: Files::default(),
            // SAFETY: plain integers.
            registers: unsafe { mem::zeroed() },
            signal: 0,
        };
        assert!(stepped.wait(), "it stops at its first instruction");
        stepped
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn ask(&self, request: libc::c_uint, data: *mut libc::c_void) {
        let none = ptr::null_mut::<libc::c_void>();
        // SAFETY: of a stopped child of ours; `data` is what the request wants.
        let failed = unsafe { libc::ptrace(request, self.pid(), none, data) };
        assert_ne!(failed, -1, "{}", io::Error::last_os_error());
    }

    /// Waits until it stops. `false` when it has ended.
    fn wait(&mut self) -> bool {
        let mut status = 0;
        // SAFETY: a child of ours.
        let waited = unsafe { libc::waitpid(self.pid(), &mut status, 0) };
        assert_eq!(waited, self.pid(), "{}", io::Error::last_os_error());
        if !libc::WIFSTOPPED(status) {
            assert_eq!(libc::WEXITSTATUS(status), 0, "status {status:#x}");
            return false;
        }
        self.signal = match libc::WSTOPSIG(status) {
            libc::SIGTRAP => 0,
            signal => signal,
        };
        let registers = (&raw mut self.registers).cast();
        self.ask(libc::PTRACE_GETREGS, registers);
        true
    }

    /// Memory from `address` on, as far as it is there.
    fn read(&self, address: u64, words: &mut Vec<u64>, count: usize) {
        words.resize(count, 0);
        let local = libc::iovec {
            iov_base: words.as_mut_ptr().cast(),
            iov_len: count * 8,
        };
        // Page by page: up to the first that is not there.
        let mut remote = Vec::new();
        let end = address + count as u64 * 8;
        let mut at = address;
        while at < end {
            let next = (at | 4095) + 1;
            remote.push(libc::iovec {
                iov_base: at as *mut libc::c_void,
                iov_len: (next.min(end) - at) as usize,
            });
            at = next;
        }
        // SAFETY: `local` is as long as it says.
        let read = unsafe {
            let count = remote.len() as libc::c_ulong;
            libc::process_vm_readv(self.pid(), &local, 1, remote.as_ptr(), count, 0)
        };
        words.truncate(usize::try_from(read).unwrap_or(0) / 8);
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut words = Vec::new();
        self.read(address, &mut words, 1);
        words.first().copied()
    }

    /// One instruction. `false` when that was the last.
    fn step(&mut self) -> bool {
        let before = self.registers;
        let signal = mem::take(&mut self.signal);
        self.ask(
            libc::PTRACE_SINGLESTEP,
            signal as usize as *mut libc::c_void,
        );
        if !self.wait() {
            return false;
        }
        let sp = self.registers.rsp;
        self.waiting.retain(|frame| frame.below >= sp);
        if signal != 0 {
            // The handler, which returns to a trampoline; below that lies what was interrupted. Neither has called anything: both are
            // given as if they had, by the address after theirs.
            self.waiting.push(Waits {
                below: before.rsp - 1,
                at: before.rip + 1,
            });
            let trampoline = self.word(sp).expect("a stack");
            self.waiting.push(Waits {
                below: sp,
                at: trampoline + 1,
            });
        } else if sp == before.rsp - 8 {
            // A call pushes the address behind it; nothing else has such numbers at hand.
            let pushed = self.word(sp).expect("a stack");
            if (before.rip + 2..=before.rip + 8).contains(&pushed) {
                let frame = Waits {
                    below: sp,
                    at: pushed,
                };
                self.waiting.push(frame);
            }
        }
        true
    }

    /// The stack as it is, leaf first.
    fn truth(&self) -> Vec<u64> {
        let waiting = self.waiting.iter().rev().map(|frame| frame.at);
        [self.registers.rip].into_iter().chain(waiting).collect()
    }

    /// What is mapped, read again when code runs that was not there before.
    fn look(&mut self) {
        let ip = self.registers.rip;
        if self.space.at(ip, Timestamp(1)).is_some() {
            return;
        }
        let pid = Pid(self.child.id());
        let mappings = maps::read_executable(pid).expect("its mappings");
        let mappings = mappings.into_iter().map(|raw| Mapping {
            start: raw.start,
            end: raw.end,
            file_offset: raw.file_offset,
            prot: raw.prot,
            file: self.files.identify(None, pid, &raw, None),
        });
        self.space = AddressSpace::read(mappings.collect(), Vec::new());
    }
}

/// Keeps this thread, and what it starts, on one CPU: they take turns at every step.
fn stay_here() {
    // SAFETY: plain bits, as long as they say.
    unsafe {
        let mut here: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut here);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &here);
    }
}

/// What became of the walks of a program.
#[derive(Debug, Default)]
struct Outcome {
    steps: u64,
    walks: u64,
    whole: u64,
    /// Of ordinary code all the way.
    quick: u64,
    /// Where a walk ended too early, how often, and why.
    short: HashMap<(u64, u64), (u64, End)>,
    /// Instructions that were walked from.
    addresses: usize,
    longest: usize,
}

/// Steps through `command` and compares. Fails at the first frame that never was.
fn compare(command: &mut Command) -> Outcome {
    stay_here();
    let mut stepped = Stepped::start(command);
    let mut unwinder = Unwinder::new(None).expect("this architecture");
    let mut seen: HashMap<u64, u32> = HashMap::new();
    let mut outcome = Outcome::default();
    let (mut memory, mut words, mut found) = (Vec::new(), Vec::new(), Vec::new());
    let (mut in_full, mut quick) = (Vec::new(), Vec::new());
    loop {
        outcome.steps += 1;
        let registers = stepped.registers;
        let times = seen.entry(registers.rip).or_default();
        *times += 1;
        if *times <= ALWAYS || times.is_multiple_of(OFTEN) {
            stepped.look();
            let from = (registers.rsp - RED_ZONE) & !7;
            stepped.read(from, &mut memory, WORDS);
            words.clear();
            // SAFETY: its first 21 words are the kernel's struct pt_regs.
            let saved: [u64; 27] = unsafe { mem::transmute(registers) };
            words.extend_from_slice(&saved[..21]);
            words.extend([from, memory.len() as u64 * 8]);
            words.extend_from_slice(&memory);
            let copy = StackCopy::decode(&words, memory.len(), false).expect("a copy");
            let code = Code {
                process: Pid(stepped.child.id()),
                space: Some(&stepped.space),
                time: Timestamp(1),
                exec_id: 0,
            };
            found.clear();
            let walked = unwinder.walk(&copy, code, DEPTH, &mut found);
            let truth = stepped.truth();
            // The same in the way that takes longer.
            in_full.clear();
            let fully = unwinder.walk_fully(&copy, code, DEPTH, &mut in_full);
            assert_eq!((fully, &in_full), (walked, &found), "{truth:#x?}");
            quick.clear();
            let is_quick = unwinder.walk_quickly(&copy, code, DEPTH, &mut quick);
            outcome.quick += u64::from(is_quick.is_some());
            let ahead = truth.get(..found.len());
            assert_eq!(
                ahead,
                Some(&found[..]),
                "at {:#x}, {} steps: {walked:?}, truth {truth:#x?}, mappings {:#?}",
                registers.rip,
                outcome.steps,
                stepped.space.until(Timestamp::MAX).0
            );
            outcome.walks += 1;
            outcome.longest = outcome.longest.max(truth.len());
            // The loader does not say of its first function that it is.
            if found.len() == truth.len() {
                outcome.whole += 1;
            } else {
                let last = found.last().copied().unwrap_or_default();
                let place = outcome.short.entry((registers.rip, last));
                place.or_insert((0, walked.end)).0 += 1;
            }
        }
        if outcome.steps >= STEPS {
            stepped.child.kill().expect("it is there");
            stepped.child.wait().expect("it ends");
            break;
        }
        if !stepped.step() {
            break;
        }
    }
    outcome.addresses = seen.len();
    outcome
}

fn check(command: &mut Command, least_addresses: usize) {
    let outcome = compare(command.stdin(Stdio::null()).stdout(Stdio::null()));
    println!(
        "{} steps, {} addresses, {} walks, {} whole, up to {} frames; others end {:#x?}",
        outcome.steps,
        outcome.addresses,
        outcome.walks,
        outcome.whole,
        outcome.longest,
        outcome.short
    );
    assert!(outcome.addresses >= least_addresses, "{outcome:#x?}");
    let share = outcome.whole as f64 / outcome.walks as f64;
    // What begins a static program says nothing of its callers.
    assert!(share >= 0.98, "{share}: {outcome:#x?}");
    // The loader's first function is none of these.
    assert!(outcome.quick * 4 > outcome.walks, "{outcome:#x?}");
}

/// alloca, aligned stacks, other registers, signals, noreturn calls, functions of libc, the loader binding symbols as they are called.
#[test]
fn every_instruction_of_a_program_without_frame_pointers() {
    check(Command::new(SHADOW_STEPS.build()).args(["60", "0"]), 5_000);
}

/// Without a loader: all of the C library's functions are its own.
#[test]
fn every_instruction_of_a_static_program() {
    check(
        Command::new(SHADOW_STEPS_STATIC.build()).args(["60", "0"]),
        2_000,
    );
}

/// As distributions deliver them: what is in them by hand has to be right as well.
#[test]
fn every_instruction_of_a_distributions_programs() {
    check(
        Command::new("sort").args(["--parallel=1", "-r", "/etc/passwd"]),
        5_000,
    );
    check(Command::new("gzip").args(["-c", "/etc/passwd"]), 2_000);
}
