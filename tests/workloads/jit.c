// jit SECONDS [--more | --move]: burns SECONDS of CPU time in a copy of a function in anonymous memory, as just-in-time compilers
// do. With --more each millisecond in a new copy, of which the last 100 stay mapped.
// With --move the copy is moved each millisecond to where nothing was, which the kernel tells nobody.
#include "truth.h"
#include <sys/mman.h>

static struct truth in_copies = {"copies", 0};

typedef void spin_fn(uint64_t);

/// Alone in a section: its bytes are copied. Calls nothing and refers to nothing.
__attribute__((section("copied"), noinline, noclone, used)) void spin_to_copy(uint64_t rounds) {
    OWN_FRAME();
    work(rounds);
}

extern const char __start_copied[], __stop_copied[];

enum { KEPT = 100, AREA = 4096, SPACE = 1 << 28 };

static spin_fn *copy_to(void *area) {
    if (area == MAP_FAILED)
        give_up("mmap");
    memcpy(area, __start_copied, __stop_copied - __start_copied);
    if (mprotect(area, AREA, PROT_READ | PROT_EXEC) != 0)
        give_up("mprotect");
    __builtin___clear_cache(area, (char *)area + AREA);
    return (spin_fn *)((char *)area + ((const char *)spin_to_copy - __start_copied));
}

static void *new_area(void) {
    return mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return fprintf(stderr, "usage: jit SECONDS [--more | --move]\n"), 2;
    uint64_t budget = seconds_arg(argv[1]), start, now;
    int more = argc > 2 && strcmp(argv[2], "--more") == 0, move = argc > 2 && !more, areas = 1;
    char *free_space = mmap(NULL, SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *kept[KEPT] = {new_area()};
    spin_fn *spin = copy_to(kept[0]);
    wait_for_go();

    start = thread_cpu_ns();
    do {
        if (more) {
            void **slot = &kept[areas++ % KEPT];
            if (*slot)
                munmap(*slot, AREA);
            *slot = new_area();
            spin = copy_to(*slot);
        }
        if (move) {
            char *there = free_space + (uint64_t)areas++ * AREA % SPACE;
            char *moved = mremap(kept[0], AREA, AREA, MREMAP_MAYMOVE | MREMAP_FIXED, there);
            if (moved == MAP_FAILED)
                give_up("mremap");
            spin = (spin_fn *)(moved + ((char *)spin - (char *)kept[0]));
            kept[0] = moved;
        }
        for (int i = 0; i < (argc > 2 ? 5 : 1); i++)
            spin(BLOCK);
        now = thread_cpu_ns();
    } while (now - start < budget);
    truth_add(&in_copies, now - start);
    truth_print(&in_copies);
    printf("areas %d\n", areas);
    cpu_print();
    return 0;
}
