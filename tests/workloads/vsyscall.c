// vsyscall SECONDS: asks for the time through the page the kernel emulates, as programs linked long ago do.
#include "truth.h"

NOINLINE void ask(uint64_t budget) {
    OWN_FRAME();
    time_t (*vsyscall_time)(time_t *) = (time_t (*)(time_t *))0xffffffffff600400;
    uint64_t start = thread_cpu_ns();
    while (thread_cpu_ns() - start < budget)
        for (int i = 0; i < 10000; i++)
            vsyscall_time(NULL);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return fprintf(stderr, "usage: vsyscall SECONDS\n"), 2;
    ask(seconds_arg(argv[1]));
    cpu_print();
    return 0;
}
