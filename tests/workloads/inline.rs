//! `inline_rust SECONDS`: `inl_drive` is a function; `inl_mid` and `inl_leaf` are inlined into it.
//! Build with -O -g.

use std::hint::black_box;

#[repr(C)]
struct Timespec {
    sec: i64,
    nsec: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

#[inline(never)]
fn cpu_ns() -> u64 {
    let mut time = Timespec { sec: 0, nsec: 0 };
    // SAFETY: `time` is a valid timespec; 2 is CLOCK_PROCESS_CPUTIME_ID.
    unsafe { clock_gettime(2, &mut time) };
    time.sec as u64 * 1_000_000_000 + time.nsec as u64
}

#[inline(always)]
fn inl_leaf(rounds: u64) -> u64 {
    let (mut x, mut i) = (rounds, 0);
    while i < rounds {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        x ^= x >> 29;
        i += 1;
    }
    x
}

#[inline(always)]
fn inl_mid(rounds: u64) -> u64 {
    inl_leaf(rounds) ^ inl_leaf(rounds / 2)
}

#[inline(never)]
fn inl_drive(budget: u64) {
    while cpu_ns() < budget {
        black_box(inl_mid(black_box(200_000)));
    }
}

fn main() {
    let seconds: f64 = std::env::args()
        .nth(1)
        .and_then(|s| s.parse().ok())
        .expect("usage: inline_rust SECONDS");
    inl_drive((seconds * 1e9) as u64);
    println!("cpu {:.9}", cpu_ns() as f64 / 1e9);
}
