// storm LANES COUNT PROG ARGS... | storm LANES COUNT --fork SECONDS
// COUNT short processes, LANES at a time: exec'd, or (--fork) children that burn in forked_spin without exec.
// Prints the CPU seconds its children used: `children SECONDS`.
#include "truth.h"
#include <sys/resource.h>
#include <sys/wait.h>

NOINLINE void forked_spin(uint64_t budget) {
    OWN_FRAME();
    while (thread_cpu_ns() < budget)
        work(BLOCK / 10);
}

int main(int argc, char **argv) {
    if (argc < 5)
        return fprintf(stderr, "usage: storm LANES COUNT PROG ARGS... | --fork SECONDS\n"), 2;
    int lanes = atoi(argv[1]), count = atoi(argv[2]), running = 0;
    int no_exec = strcmp(argv[3], "--fork") == 0;
    double used = 0;
    wait_for_go();

    for (int started = 0; started < count || running > 0;) {
        if (started < count && running < lanes) {
            pid_t child = fork();
            if (child < 0)
                give_up("fork");
            if (child == 0) {
                if (no_exec) {
                    forked_spin(seconds_arg(argv[4]));
                    _exit(0);
                }
                execv(argv[3], argv + 3);
                give_up(argv[3]);
            }
            started++;
            running++;
            continue;
        }
        int status;
        struct rusage usage;
        if (wait4(-1, &status, 0, &usage) < 0 || status != 0)
            give_up("a child did not end well");
        running--;
        used += usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    }
    printf("children %.9f\n", used);
    cpu_print();
    return 0;
}
