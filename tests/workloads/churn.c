// churn FIRST.so SECOND.so: loads FIRST, burns in its function; makes so many executable mappings that a recorder which
// sleeps meanwhile loses records of them; unloads FIRST, loads SECOND where it was, burns there, and once more.
// Between these steps it says `step` and waits for a line on standard input.
#include "truth.h"
#include <dlfcn.h>
#include <sys/mman.h>

typedef void spin_fn(uint64_t);

static spin_fn *load(const char *path, void **library, char name[64]) {
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*library)
        fprintf(stderr, "%s\n", dlerror()), exit(3);
    const char *file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    snprintf(name, 64, "%.*s_spin", (int)strcspn(file + 3, "."), file + 3);
    spin_fn *spin = (spin_fn *)dlsym(*library, name);
    if (!spin)
        fprintf(stderr, "%s\n", dlerror()), exit(3);
    printf("address %s %p\n", name, (void *)spin);
    return spin;
}

NOINLINE void burn(spin_fn *spin, const char *name, uint64_t budget) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns();
    spin(budget);
    printf("truth %s %.9f\n", name, (double)(thread_cpu_ns() - start) / 1e9);
}

static void step(void) {
    char line[16];
    printf("step\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(3);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return fprintf(stderr, "usage: churn FIRST.so SECOND.so\n"), 2;
    char name[64];
    void *library;
    wait_for_go();

    burn(load(argv[1], &library, name), name, 400000000);
    step();
    for (int i = 0; i < 30000; i++) {
        void *area = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (area == MAP_FAILED)
            give_up("mmap");
        munmap(area, 4096);
    }
    dlclose(library);
    spin_fn *spin = load(argv[2], &library, name);
    burn(spin, name, 300000000);
    step();
    burn(spin, name, 800000000);
    cpu_print();
    return 0;
}
