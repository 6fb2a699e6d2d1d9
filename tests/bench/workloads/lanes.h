// What the workloads tell the benchmark, in a file both have mapped: what a lane of work has done so far, and for how much
// CPU time. Nobody is asked, woken or stopped for it.
#ifndef LANES_H
#define LANES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

enum { LANES = 64 };

/// One cache line, written by one thread or process only.
struct lane {
    uint64_t operations;
    uint64_t cpu_ns; // left at 0 where the process's own clock tells
    uint64_t unused[6];
};

/// Also binds our life to that of the benchmark.
static inline struct lane *map_lanes(const char *path) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *lanes = MAP_FAILED;
    if (file >= 0 && ftruncate(file, LANES * sizeof(struct lane)) == 0)
        lanes = mmap(NULL, LANES * sizeof(struct lane), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (lanes == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    close(file);
    return lanes;
}

static inline int lanes_arg(const char *text) {
    int lanes = atoi(text);
    if (lanes < 1 || lanes > LANES) {
        fprintf(stderr, "lanes: 1 to %d\n", LANES);
        exit(2);
    }
    return lanes;
}

/// A step of work the compiler cannot drop: roughly a nanosecond a round.
static inline __attribute__((always_inline)) void work(uint64_t rounds) {
    uint64_t x = rounds | 1;
    for (uint64_t i = 0; i < rounds; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
}

#endif
