// quick SECONDS: burns so little CPU time in quick_spin that it is gone before anybody could read its maps. Silent.
#include "truth.h"

NOINLINE void quick_spin(uint64_t budget) {
    OWN_FRAME();
    while (thread_cpu_ns() < budget)
        work(BLOCK / 20);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return fprintf(stderr, "usage: quick SECONDS\n"), 2;
    quick_spin(seconds_arg(argv[1]));
    OWN_FRAME();
    return 0;
}
