// What the C and C++ workloads share: CPU clocks, blocks of work, and the truth they print.
//
// A workload knows what a profiler should say about it. Each hot function adds up the CPU time it used
// and the program prints one line for each when it ends:
//
//     truth hot_a 0.512345678      CPU seconds used inside that function, callees included
//     cpu 1.034567890              CPU seconds of the whole process, at the moment of printing
//
// Rules that keep the truth true:
// - Loops run for CPU time, never for wall time: on a loaded machine they still get their samples.
// - gcc leaves out the frame of a leaf function even with -fno-omit-frame-pointer, and a walk along frame
//   pointers then skips its CALLER. Hot functions call OWN_FRAME, and the tests compile with
//   -mno-omit-leaf-frame-pointer besides.
// - Functions take turns at random, not in a fixed rhythm: a rhythm near the sampling period would beat with it.
#ifndef TRUTH_H
#define TRUTH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

/// Makes gcc keep a frame for the function it is used in.
#define OWN_FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)) : "memory")

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t thread_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static inline uint64_t seconds_arg(const char *text) { return (uint64_t)(atof(text) * 1e9); }

/// A step of work the compiler cannot drop: roughly a nanosecond a round.
static inline __attribute__((always_inline)) void work(uint64_t rounds) {
    uint64_t x = rounds | 1;
    for (uint64_t i = 0; i < rounds; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
}

/// Rounds of `work` between two looks at the clock: some tenths of a millisecond.
enum { BLOCK = 200000 };

/// CPU time of one hot function over all threads.
struct truth {
    const char *name;
    uint64_t ns;
};

static inline void truth_add(struct truth *t, uint64_t ns) { __atomic_fetch_add(&t->ns, ns, __ATOMIC_RELAXED); }

static inline void truth_print(const struct truth *t) { printf("truth %s %.9f\n", t->name, (double)t->ns / 1e9); }

static inline void cpu_print(void) {
    printf("cpu %.9f\n", (double)clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9);
    fflush(stdout);
}

static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/// With WORKLOAD_WAIT set, says `ready PID` and waits for a line on standard input, so that a test can
/// attach first. A program that is exec'd afterwards does not wait again.
static inline void wait_for_go(void) {
    char line[16];
    if (!getenv("WORKLOAD_WAIT"))
        return;
    unsetenv("WORKLOAD_WAIT");
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(3);
}

/// Prints what went wrong and ends the workload: a test must never go on with a workload that did less.
static inline void __attribute__((noreturn)) give_up(const char *what) {
    perror(what);
    exit(3);
}

#endif
