// rename SECONDS: half of the CPU time under the name it was started with, half as `renamed`.
#include "truth.h"
#include <sys/prctl.h>

static struct truth early = {"early_spin", 0}, late = {"late_spin", 0};

NOINLINE void early_spin(uint64_t budget) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns();
    while (thread_cpu_ns() - start < budget)
        work(BLOCK);
    truth_add(&early, thread_cpu_ns() - start);
}

NOINLINE void late_spin(uint64_t budget) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns();
    while (thread_cpu_ns() - start < budget)
        work(BLOCK);
    truth_add(&late, thread_cpu_ns() - start);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return fprintf(stderr, "usage: rename SECONDS\n"), 2;
    uint64_t half = seconds_arg(argv[1]) / 2;
    wait_for_go();
    early_spin(half);
    prctl(PR_SET_NAME, "renamed");
    late_spin(half);
    truth_print(&early);
    truth_print(&late);
    cpu_print();
    return 0;
}
