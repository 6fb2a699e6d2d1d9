// remap SECONDS: moves a function of its own into anonymous memory at the same address, then burns there.
#include "truth.h"
#include <sys/mman.h>

enum { PAGE = 4096 };

__attribute__((section("moved"), aligned(PAGE))) NOINLINE void moved_spin(uint64_t rounds) {
    OWN_FRAME();
    work(rounds);
}
// What follows stays where it is.
__attribute__((section("moved"), aligned(PAGE), used)) NOINLINE void stays(void) { OWN_FRAME(); }

NOINLINE void run_moved(uint64_t budget) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns();
    while (thread_cpu_ns() - start < budget)
        moved_spin(BLOCK);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return fprintf(stderr, "usage: remap SECONDS\n"), 2;
    char *page = (char *)moved_spin, copy[PAGE];
    memcpy(copy, page, PAGE);
    void *anonymous = mmap(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (anonymous != page)
        give_up("mmap");
    memcpy(page, copy, PAGE);
    wait_for_go();
    run_moved(seconds_arg(argv[1]));
    cpu_print();
    return 0;
}
