// paths_rust FILE LANES: threads that go down one of 4,096 call paths again and again, through methods of trait objects and generic
// functions; an operation is one path. What `paths.c` is, by a compiler and a library that keep no frame pointers.
use std::fs::OpenOptions;
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::{env, ptr, thread};

const PATH_BITS: u32 = 12;
const ROUNDS: u64 = 3000;
const LANES: usize = 64;
/// Bytes of a lane, as `lanes.h` has it.
const LANE: usize = 64;

unsafe extern "C" {
    fn prctl(option: i32, value: u64, a: u64, b: u64, c: u64) -> i32;
    fn mmap(at: *mut u8, len: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> *mut u8;
}

trait Step: Sync {
    /// One call deeper; `left` is what has not been decided of the path.
    fn down(&self, path: u32, left: u32) -> u64;
}

struct Turn<const N: u32>;

impl<const N: u32> Step for Turn<N> {
    #[inline(never)]
    fn down(&self, path: u32, left: u32) -> u64 {
        let found = match left {
            0 => work(ROUNDS),
            _ => next::<N>(path, left - 1),
        };
        // Something is left to be done, or the call would be a jump.
        black_box(found.wrapping_add(N.into()))
    }
}

static STEPS: [&dyn Step; 8] = [
    &Turn::<0>,
    &Turn::<1>,
    &Turn::<2>,
    &Turn::<3>,
    &Turn::<4>,
    &Turn::<5>,
    &Turn::<6>,
    &Turn::<7>,
];

/// Twice as deep where the path says so.
#[inline(never)]
fn next<const N: u32>(path: u32, left: u32) -> u64 {
    let at = (path >> left).wrapping_mul(2 * N + 1) as usize % STEPS.len();
    let found = match path >> left & 1 {
        1 => between(&|| STEPS[at].down(path, left)),
        _ => STEPS[at].down(path, left),
    };
    black_box(found ^ u64::from(N))
}

#[inline(never)]
fn between(call: &dyn Fn() -> u64) -> u64 {
    black_box(call()).rotate_left(1)
}

/// Roughly a nanosecond a round.
#[inline(always)]
fn work(rounds: u64) -> u64 {
    (0..rounds).fold(rounds | 1, |x, _| {
        black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407))
    })
}

#[unsafe(no_mangle)]
#[inline(never)]
fn lane(operations: usize, number: u32) {
    let operations = operations as *mut u64;
    let mut path = number.wrapping_mul(977);
    for done in 1.. {
        path = path.wrapping_mul(1664525).wrapping_add(1013904223);
        black_box(STEPS[0].down(path >> 20, PATH_BITS));
        // SAFETY: this lane is ours, and others only read it.
        unsafe { operations.write_volatile(done) };
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let [_, file, lanes] = &arguments[..] else {
        panic!("usage: paths_rust FILE LANES");
    };
    let lanes: usize = lanes.parse().expect("a number");
    assert!((1..=LANES).contains(&lanes));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(file).expect("a file");
    file.set_len((LANES * LANE) as u64).expect("room");
    // SAFETY: a new shared mapping of a file that keeps its length; PR_SET_PDEATHSIG takes a signal, SIGKILL.
    let mapped = unsafe {
        prctl(1, 9, 0, 0, 0);
        mmap(ptr::null_mut(), LANES * LANE, 3, 1, file.as_raw_fd(), 0)
    };
    assert_ne!(mapped as isize, -1);
    for number in 0..lanes {
        let operations = mapped as usize + number * LANE;
        thread::spawn(move || lane(operations, number as u32));
    }
    loop {
        thread::park();
    }
}
