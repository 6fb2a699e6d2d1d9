// reuse ROUNDS SECONDS PROG...: starts the programs one after the other, all under one PID (clone3 set_tid; needs root).
// With --no-exec instead of programs, children of this very program burn in turn in first_child and second_child.
#include "truth.h"
#include <linux/sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct truth first = {"first_child", 0}, second = {"second_child", 0};

NOINLINE void first_child(uint64_t budget) {
    OWN_FRAME();
    while (thread_cpu_ns() < budget)
        work(BLOCK);
}

NOINLINE void second_child(uint64_t budget) {
    OWN_FRAME();
    while (thread_cpu_ns() < budget)
        work(BLOCK);
}

/// clone3 as fork, with the child's PID chosen when `pid` is not 0.
static pid_t fork_as(pid_t pid) {
    struct clone_args args = {.exit_signal = SIGCHLD};
    if (pid) {
        args.set_tid = (uintptr_t)&pid;
        args.set_tid_size = 1;
    }
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

int main(int argc, char **argv) {
    if (argc < 4)
        return fprintf(stderr, "usage: reuse ROUNDS SECONDS --no-exec | PROG...\n"), 2;
    int rounds = atoi(argv[1]);
    int no_exec = strcmp(argv[3], "--no-exec") == 0;
    int programs = no_exec ? 2 : argc - 3;
    double used = 0;
    pid_t pid = 0;
    wait_for_go();

    for (int i = 0; i < rounds * programs; i++) {
        int which = i % programs;
        pid_t child = fork_as(pid);
        if (child < 0)
            give_up("clone3 with set_tid");
        if (child == 0) {
            if (!no_exec) {
                execl(argv[3 + which], argv[3 + which], argv[2], (char *)NULL);
                give_up(argv[3 + which]);
            }
            (which ? second_child : first_child)(seconds_arg(argv[2]));
            _exit(0);
        }
        pid = child;
        int status;
        struct rusage usage;
        if (wait4(child, &status, 0, &usage) != child || status != 0)
            give_up("a child did not end well");
        double s = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
        used += s;
        if (no_exec)
            truth_add(which ? &second : &first, (uint64_t)(s * 1e9));
    }
    printf("pid %d\n", (int)pid);
    printf("children %.9f\n", used);
    if (no_exec) {
        truth_print(&first);
        truth_print(&second);
    }
    cpu_print();
    return 0;
}
