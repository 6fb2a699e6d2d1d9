// deep DEPTH SECONDS: calls itself DEPTH times and burns at the bottom: main, DEPTH x dive, deep_spin.
#include "truth.h"

static struct truth spun = {"deep_spin", 0};

NOINLINE void deep_spin(uint64_t budget) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns(), now;
    do {
        work(BLOCK);
        now = thread_cpu_ns();
    } while (now - start < budget);
    truth_add(&spun, now - start);
}

NOINLINE void dive(int depth, uint64_t budget) {
    OWN_FRAME();
#ifdef PAD
    volatile char block[PAD];
    block[0] = (char)depth;
    __asm__ volatile("" : : "r"(block) : "memory");
#endif
    if (depth > 1)
        dive(depth - 1, budget);
    else
        deep_spin(budget);
    __asm__ volatile("" : : : "memory"); // the call above is not the last thing done: it stays a call
}

int main(int argc, char **argv) {
    if (argc != 3)
        return fprintf(stderr, "usage: deep DEPTH SECONDS\n"), 2;
    wait_for_go();
    dive(atoi(argv[1]), seconds_arg(argv[2]));
    truth_print(&spun);
    cpu_print();
    return 0;
}
