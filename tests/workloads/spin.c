// spin SECONDS [--from-thread] [NEXT ARGS...]: burns CPU in one function, then becomes NEXT.
//
// Compiled several times with -DSPIN=one_spin, -DSPIN=two_spin ...: programs that differ in nothing but a name,
// so that (without PIE) the same addresses mean another function in each.
// With --from-thread a second thread calls execve while the first one still burns.
#include "truth.h"
#include <pthread.h>

#ifndef SPIN
#define SPIN spin
#endif
#define TEXT(x) #x
#define NAME(x) TEXT(x)

static struct truth spun = {NAME(SPIN), 0};

NOINLINE void SPIN(uint64_t budget) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns(), now;
    do {
        work(BLOCK);
        now = thread_cpu_ns();
    } while (now - start < budget);
    truth_add(&spun, now - start);
}

static void become(char **next) {
    truth_print(&spun);
    cpu_print();
    execv(next[0], next);
    give_up(next[0]);
}

static void *become_from_thread(void *next) {
    SPIN(50000000);
    become(next);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return fprintf(stderr, "usage: spin SECONDS [--from-thread] [NEXT ARGS...]\n"), 2;
    uint64_t budget = seconds_arg(argv[1]);
    int from_thread = argc > 2 && strcmp(argv[2], "--from-thread") == 0;
    char **next = argv + 2 + from_thread;
    wait_for_go();

    SPIN(budget);
    OWN_FRAME();
    if (*next && from_thread) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, become_from_thread, next) != 0)
            give_up("pthread_create");
        for (;;)
            SPIN(10000000); // until the other thread's execve ends this one
    }
    if (*next)
        become(next);
    truth_print(&spun);
    cpu_print();
    return 0;
}
