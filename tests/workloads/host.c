// host SECONDS LIBRARY...: loads each library, burns SECONDS in its `NAME_spin`, unloads it, and says where it had been.
// The name is the file's, without lib and .so: libred.so has red_spin.
#include "truth.h"
#include <dlfcn.h>

NOINLINE void load_and_run(const char *path, uint64_t budget) {
    OWN_FRAME();
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fprintf(stderr, "%s\n", dlerror()), exit(3);
    char name[64];
    const char *file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    snprintf(name, sizeof name, "%.*s_spin", (int)strcspn(file + 3, "."), file + 3);
    void (*spin)(uint64_t) = (void (*)(uint64_t))dlsym(library, name);
    if (!spin)
        fprintf(stderr, "%s\n", dlerror()), exit(3);
    uint64_t start = thread_cpu_ns();
    spin(budget);
    printf("truth %s %.9f\n", name, (double)(thread_cpu_ns() - start) / 1e9);
    printf("address %s %p\n", name, (void *)spin);
    dlclose(library);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return fprintf(stderr, "usage: host SECONDS LIBRARY...\n"), 2;
    wait_for_go();
    for (int i = 2; i < argc; i++)
        load_and_run(argv[i], seconds_arg(argv[1]));
    cpu_print();
    return 0;
}
