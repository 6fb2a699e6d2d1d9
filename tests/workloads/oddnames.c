// oddnames SECONDS [COMM]: functions whose symbols hold `;`, blanks and control characters; the process names itself COMM.
#include "truth.h"
#include <sys/prctl.h>

static struct truth java = {"java", 0}, blank = {"blank", 0};

void java_like(uint64_t budget) __asm__("\"Lcom/x/Y;::m\"");
void with_blanks(uint64_t budget) __asm__("\"two words 7\"");

NOINLINE void java_like(uint64_t budget) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns(), now;
    do {
        work(BLOCK);
        now = thread_cpu_ns();
    } while (now - start < budget);
    truth_add(&java, now - start);
}

NOINLINE void with_blanks(uint64_t budget) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns(), now;
    do {
        work(BLOCK);
        now = thread_cpu_ns();
    } while (now - start < budget);
    truth_add(&blank, now - start);
}

NOINLINE void odd_drive(uint64_t budget) {
    OWN_FRAME();
    java_like(budget);
    with_blanks(budget);
    __asm__ volatile("" : : : "memory");
}

int main(int argc, char **argv) {
    if (argc < 2)
        return fprintf(stderr, "usage: oddnames SECONDS [COMM]\n"), 2;
    if (argc > 2)
        prctl(PR_SET_NAME, argv[2]);
    wait_for_go();
    odd_drive(seconds_arg(argv[1]) / 2);
    truth_print(&java);
    truth_print(&blank);
    cpu_print();
    return 0;
}
