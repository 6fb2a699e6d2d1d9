//! `burn_rust THREADS SECONDS`: as burn.c, through a trait method on an array (whose v0 symbol
//! demangles to a name with `;` in it), a generic function and a plain one.

use std::env;
use std::hint::black_box;
use std::io::{BufRead, stdin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

static ARRAY: AtomicU64 = AtomicU64::new(0);
static GENERIC: AtomicU64 = AtomicU64::new(0);
static PLAIN: AtomicU64 = AtomicU64::new(0);

const BLOCK: u64 = 200_000;

#[repr(C)]
struct Timespec {
    sec: i64,
    nsec: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// CPU nanoseconds of this thread (3) or this process (2).
fn cpu_ns(clock: i32) -> u64 {
    let mut time = Timespec { sec: 0, nsec: 0 };
    // SAFETY: `time` is a valid timespec, and both clocks always exist.
    unsafe { clock_gettime(clock, &mut time) };
    time.sec as u64 * 1_000_000_000 + time.nsec as u64
}

fn thread_cpu_ns() -> u64 {
    cpu_ns(3)
}

#[inline(always)]
fn work(rounds: u64) {
    let mut x = rounds | 1;
    for _ in 0..rounds {
        x = black_box(
            x.wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407),
        );
    }
}

trait Hot {
    fn hot_array(&self, rounds: u64);
}

impl Hot for [u8; 2] {
    #[inline(never)]
    fn hot_array(&self, rounds: u64) {
        let start = thread_cpu_ns();
        work(rounds);
        ARRAY.fetch_add(thread_cpu_ns() - start, Relaxed);
    }
}

#[inline(never)]
fn hot_generic<T: Into<u64>>(rounds: T) {
    let start = thread_cpu_ns();
    work(rounds.into());
    GENERIC.fetch_add(thread_cpu_ns() - start, Relaxed);
}

#[inline(never)]
fn hot_plain(rounds: u64) {
    let start = thread_cpu_ns();
    work(rounds);
    PLAIN.fetch_add(thread_cpu_ns() - start, Relaxed);
}

#[inline(never)]
fn drive(seed: u64, budget: u64) {
    let mut random = seed
        .wrapping_mul(2654435761)
        .wrapping_add(88172645463325252);
    while thread_cpu_ns() < budget {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        match random % 10 {
            0..5 => black_box([1u8, 2]).hot_array(BLOCK),
            5..8 => hot_generic(BLOCK as u32),
            _ => hot_plain(BLOCK),
        }
    }
    black_box(seed);
}

fn main() {
    let args: Vec<String> = env::args().collect();
    let [_, threads, seconds] = args.as_slice() else {
        eprintln!("usage: burn_rust THREADS SECONDS");
        std::process::exit(2);
    };
    let threads: u64 = threads.parse().expect("THREADS is a number");
    let budget = (seconds.parse::<f64>().expect("SECONDS is a number") * 1e9) as u64;
    if env::var_os("WORKLOAD_WAIT").is_some() {
        println!("ready {}", std::process::id());
        let read = stdin().lock().read_line(&mut String::new());
        assert!(matches!(read, Ok(n) if n > 0), "nobody said go");
    }

    let others: Vec<_> = (1..threads)
        .map(|i| thread::spawn(move || drive(i, budget)))
        .collect();
    drive(0, budget);
    for other in others {
        other.join().expect("a thread panicked");
    }

    for (name, ns) in [
        ("hot_array", &ARRAY),
        ("hot_generic", &GENERIC),
        ("hot_plain", &PLAIN),
    ] {
        println!("truth {name} {:.9}", ns.load(Relaxed) as f64 / 1e9);
    }
    println!("cpu {:.9}", cpu_ns(2) as f64 / 1e9);
}
