// frameless SECONDS: a leaf without a frame. Build with -O1 -fno-omit-frame-pointer: gcc still leaves out bare_leaf's frame.
// A walk along frame pointers then cannot see skipped_caller: main, outer, bare_leaf is all there is to read.
#include "truth.h"

static struct truth bare = {"bare_leaf", 0};

NOINLINE uint64_t bare_leaf(uint64_t rounds) {
    uint64_t x = rounds;
    for (uint64_t i = 0; i < rounds; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

NOINLINE uint64_t skipped_caller(uint64_t budget) {
    uint64_t start = thread_cpu_ns(), now, x = 0;
    do {
        x += bare_leaf(BLOCK);
        now = thread_cpu_ns();
    } while (now - start < budget);
    truth_add(&bare, now - start);
    return x;
}

NOINLINE uint64_t outer(uint64_t budget) {
    uint64_t x = skipped_caller(budget);
    __asm__ volatile("" : : : "memory");
    return x + 1;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return fprintf(stderr, "usage: frameless SECONDS\n"), 2;
    wait_for_go();
    uint64_t x = outer(seconds_arg(argv[1]));
    truth_print(&bare);
    cpu_print();
    return x == 1;
}
