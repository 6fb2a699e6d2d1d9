// shorts FILE LANES PER_SECOND: lanes that start a short process again and again, so many a second each: fork, exec, some
// milliseconds of work, exit. An operation is one such process.
#include "lanes.h"
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { ROUNDS = 4000000 };

NOINLINE static void short_work(void) {
    work(ROUNDS);
    __asm__ volatile("" : : : "memory");
}

static uint64_t micros(struct timeval t) { return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec; }

static uint64_t cpu_ns(int who) {
    struct rusage usage;
    getrusage(who, &usage);
    return (micros(usage.ru_utime) + micros(usage.ru_stime)) * 1000;
}

static void lane(struct lane *lane, char *program, double per_second) {
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    char *const args[] = {program, "--work", NULL};
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            execv("/proc/self/exe", args);
            _exit(127);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "shorts: a process could not be run: %s\n", strerror(errno));
            exit(1);
        }
        // In this order: who reads the same number of operations before and after reads what they took.
        __atomic_store_n(&lane->cpu_ns, cpu_ns(RUSAGE_CHILDREN) + cpu_ns(RUSAGE_SELF), __ATOMIC_RELEASE);
        __atomic_add_fetch(&lane->operations, 1, __ATOMIC_RELEASE);
        next.tv_nsec += (long)(1e9 / per_second);
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--work") == 0) {
        short_work();
        return 0;
    }
    if (argc != 4 || !(atof(argv[3]) >= 1))
        return fprintf(stderr, "usage: shorts FILE LANES PER_SECOND\n"), 2;
    struct lane *lanes = map_lanes(argv[1]);
    int count = lanes_arg(argv[2]);
    for (int i = 1; i < count; i++) {
        pid_t other = fork();
        if (other == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            lane(&lanes[i], argv[0], atof(argv[3]));
        }
        if (other < 0)
            return perror("fork"), 1;
    }
    lane(&lanes[0], argv[0], atof(argv[3]));
}
