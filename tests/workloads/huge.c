// huge SECONDS BYTES TURNS: main calls in turn huge (3 TURNS times), whose frame is larger than any copy of a stack, and rec (TURNS
// times), a hundred deep in ordinary frames; all burn in leaf. huge touches BYTES of its frame, the other pages of which are not there, and begins 512 bytes below
// the end of a page.
#include <alloca.h>

#include "truth.h"

enum { PAGE = 4096, TOP = 512 };

static volatile uintptr_t lowest;

NOINLINE void leaf(void) { work(BLOCK); }

NOINLINE void huge(size_t bytes) {
    volatile char block[300000];
    lowest = (uintptr_t)block;
    if (bytes == 0)
        return;
    memset((char *)block, 1, bytes);
    __asm__ volatile("" : : "r"(block) : "memory");
    leaf();
    __asm__ volatile("" : : : "memory"); // the call above is not the last thing done: it stays a call
}

NOINLINE void rec(int depth) {
    volatile char block[64];
    block[depth % 64] = 1;
    if (depth > 1)
        rec(depth - 1);
    else
        leaf();
    __asm__ volatile("" : : "r"(block) : "memory");
}

int main(int argc, char **argv) {
    if (argc != 4)
        return fprintf(stderr, "usage: huge SECONDS BYTES TURNS\n"), 2;
    uint64_t end = thread_cpu_ns() + seconds_arg(argv[1]);
    size_t bytes = (size_t)atol(argv[2]);
    int turns = atoi(argv[3]);
    huge(0);
    char *room = alloca((lowest + TOP) % PAGE);
    __asm__ volatile("" : : "r"(room) : "memory");
    while (thread_cpu_ns() < end) {
        for (int i = 0; i < 3 * turns; i++)
            huge(bytes);
        for (int i = 0; i < turns; i++)
            rec(100);
    }
    cpu_print();
    return 0;
}
