// A library with one hot function, -DSPIN=red_spin. Those that differ only in the name have the same layout, so that one
// loaded after another was unloaded has its function at the very same address.
#include "truth.h"

NOINLINE void SPIN(uint64_t budget) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns();
    while (thread_cpu_ns() - start < budget)
        work(BLOCK);
}
