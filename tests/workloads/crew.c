// crew SECONDS: four threads that exist before `go`, two started after it, and one child without exec; each burns SECONDS
// of CPU time in a function of its own. Threads are named w1 ... w6.
#include "truth.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static pthread_barrier_t go;
static uint64_t budget;
static struct truth truths[] = {{"before_1", 0}, {"before_2", 0}, {"before_3", 0}, {"before_4", 0},
                                {"after_1", 0},  {"after_2", 0},  {"child_spin", 0}};

#define HOT(NAME, SLOT)                                                                                                \
    NOINLINE void NAME(void) {                                                                                         \
        OWN_FRAME();                                                                                                   \
        uint64_t start = thread_cpu_ns(), now;                                                                         \
        do {                                                                                                           \
            work(BLOCK);                                                                                               \
            now = thread_cpu_ns();                                                                                     \
        } while (now - start < budget);                                                                                \
        truth_add(&truths[SLOT], now - start);                                                                         \
    }
HOT(before_1, 0)
HOT(before_2, 1)
HOT(before_3, 2)
HOT(before_4, 3)
HOT(after_1, 4)
HOT(after_2, 5)
HOT(child_spin, 6)

static void (*const before[])(void) = {before_1, before_2, before_3, before_4};
static void (*const after[])(void) = {after_1, after_2};

static const char *const names[] = {"w1", "w2", "w3", "w4", "w5", "w6"};

static void *early(void *number) {
    prctl(PR_SET_NAME, names[(long)number]);
    pthread_barrier_wait(&go); // all four are there and named
    pthread_barrier_wait(&go); // go
    before[(long)number]();
    OWN_FRAME();
    return NULL;
}

static void *late(void *number) {
    prctl(PR_SET_NAME, names[4 + (long)number]);
    after[(long)number]();
    OWN_FRAME();
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return fprintf(stderr, "usage: crew SECONDS\n"), 2;
    budget = seconds_arg(argv[1]);
    pthread_t threads[6];
    pthread_barrier_init(&go, NULL, 5);
    for (long i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, early, (void *)i) != 0)
            give_up("pthread_create");
    pthread_barrier_wait(&go);
    wait_for_go();
    pthread_barrier_wait(&go);

    for (long i = 0; i < 2; i++)
        if (pthread_create(&threads[4 + i], NULL, late, (void *)i) != 0)
            give_up("pthread_create");
    int report[2];
    if (pipe(report) != 0)
        give_up("pipe");
    pid_t child = fork();
    if (child < 0)
        give_up("fork");
    if (child == 0) {
        child_spin();
        if (write(report[1], &truths[6].ns, sizeof truths[6].ns) != sizeof truths[6].ns)
            _exit(3);
        _exit(0);
    }
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    if (read(report[0], &truths[6].ns, sizeof truths[6].ns) != sizeof truths[6].ns)
        give_up("the child did not report");
    waitpid(child, NULL, 0);
    for (int i = 0; i < 7; i++)
        truth_print(&truths[i]);
    cpu_print();
    return 0;
}
