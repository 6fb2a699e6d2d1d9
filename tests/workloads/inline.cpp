// inline_cpp SECONDS: inl_drive is a function; inl_mid and inl_leaf are inlined into it. Build with -O2 -g.
#include "truth.h"

namespace inl {

static uint64_t sink;

static inline __attribute__((always_inline)) void inl_leaf(uint64_t rounds) {
    uint64_t x = rounds;
    for (uint64_t i = 0; i < rounds; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
    sink += x;
}

static inline __attribute__((always_inline)) void inl_mid(uint64_t rounds) {
    inl_leaf(rounds);
    inl_leaf(rounds / 2);
}

NOINLINE void inl_drive(uint64_t budget) {
    OWN_FRAME();
    while (thread_cpu_ns() < budget)
        inl_mid(BLOCK);
}

} // namespace inl

int main(int argc, char **argv) {
    if (argc != 2)
        return fprintf(stderr, "usage: inline_cpp SECONDS\n"), 2;
    wait_for_go();
    inl::inl_drive(seconds_arg(argv[1]));
    cpu_print();
    return 0;
}
