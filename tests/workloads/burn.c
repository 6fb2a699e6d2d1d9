// burn THREADS SECONDS: three functions share SECONDS of CPU time in each thread, about 5 : 3 : 2.
#include "truth.h"
#include <pthread.h>

static struct truth truths[] = {{"hot_a", 0}, {"hot_b", 0}, {"hot_c", 0}};
static uint64_t budget;

NOINLINE void hot_a(uint64_t rounds) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns();
    work(rounds);
    truth_add(&truths[0], thread_cpu_ns() - start);
}

NOINLINE void hot_b(uint64_t rounds) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns();
    work(rounds);
    truth_add(&truths[1], thread_cpu_ns() - start);
}

NOINLINE void hot_c(uint64_t rounds) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns();
    work(rounds);
    truth_add(&truths[2], thread_cpu_ns() - start);
}

NOINLINE void drive(uint64_t seed) {
    OWN_FRAME();
    uint64_t random = seed * 2654435761u + 88172645463325252u;
    while (thread_cpu_ns() < budget) {
        uint64_t turn = next_random(&random) % 10;
        if (turn < 5)
            hot_a(BLOCK);
        else if (turn < 8)
            hot_b(BLOCK);
        else
            hot_c(BLOCK);
    }
}

static void *thread_main(void *seed) {
    drive((uintptr_t)seed);
    OWN_FRAME();
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return fprintf(stderr, "usage: burn THREADS SECONDS\n"), 2;
    long threads = atol(argv[1]);
    budget = seconds_arg(argv[2]);
    wait_for_go();

    pthread_t others[64];
    for (long i = 1; i < threads; i++)
        if (pthread_create(&others[i], NULL, thread_main, (void *)i) != 0)
            give_up("pthread_create");
    drive(0);
    for (long i = 1; i < threads; i++)
        pthread_join(others[i], NULL);

    for (int i = 0; i < 3; i++)
        truth_print(&truths[i]);
    cpu_print();
    return 0;
}
