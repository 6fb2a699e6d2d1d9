// threads COUNT SECONDS: COUNT threads one after the other, each burning SECONDS of CPU time in brief_spin.
#include "truth.h"
#include <pthread.h>

static struct truth spun = {"brief_spin", 0};
static uint64_t budget;

NOINLINE void brief_spin(void) {
    OWN_FRAME();
    uint64_t now;
    do {
        work(BLOCK / 10);
        now = thread_cpu_ns();
    } while (now < budget);
    truth_add(&spun, now);
}

static void *thread_main(void *unused) {
    brief_spin();
    OWN_FRAME();
    return unused;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return fprintf(stderr, "usage: threads COUNT SECONDS\n"), 2;
    budget = seconds_arg(argv[2]);
    wait_for_go();
    for (int i = atoi(argv[1]); i > 0; i--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, thread_main, NULL) != 0)
            give_up("pthread_create");
        pthread_join(thread, NULL);
    }
    truth_print(&spun);
    cpu_print();
    return 0;
}
