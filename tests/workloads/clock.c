// clock SECONDS: asks for the time and does nothing else.
#include "truth.h"

NOINLINE void ask(uint64_t budget) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns();
    while (thread_cpu_ns() - start < budget)
        for (int i = 0; i < 10000; i++)
            clock_ns(CLOCK_MONOTONIC);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return fprintf(stderr, "usage: clock SECONDS\n"), 2;
    ask(seconds_arg(argv[1]));
    cpu_print();
    return 0;
}
