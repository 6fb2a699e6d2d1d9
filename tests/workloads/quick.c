// quick SECONDS: burns so little CPU time in quick_spin (or -DSPIN) that it is gone before anybody could read its maps.
// SECONDS are those of the whole process, its start included. Silent.
#include "truth.h"

#ifndef SPIN
#define SPIN quick_spin
#endif

NOINLINE void SPIN(uint64_t budget) {
    OWN_FRAME();
    while (thread_cpu_ns() < budget)
        work(BLOCK / 20);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return fprintf(stderr, "usage: quick SECONDS\n"), 2;
    SPIN(seconds_arg(argv[1]));
    OWN_FRAME();
    return 0;
}
