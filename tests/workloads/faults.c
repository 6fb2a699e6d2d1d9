// faults SECONDS: a signal interrupts a function at its very first byte, right behind another one that never runs (x86-64).
#include "truth.h"

#include <setjmp.h>
#include <signal.h>

#ifndef __x86_64__
#error "written for x86-64"
#endif

static struct truth handling = {"handles", 0};
static sigjmp_buf again;

long never_runs(void);
long faults(long *nowhere);

__asm__(".text\n"
        ".globl never_runs, faults\n"
        ".type never_runs, @function\n"
        ".type faults, @function\n"
        "never_runs:\n"
        "    .cfi_startproc\n"
        "    nop\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size never_runs, . - never_runs\n"
        "faults:\n"
        "    .cfi_startproc\n"
        "    mov (%rdi), %rax\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size faults, . - faults\n");

NOINLINE void handles(int signal) {
    (void)signal;
    uint64_t start = thread_cpu_ns();
    work(BLOCK);
    truth_add(&handling, thread_cpu_ns() - start);
    siglongjmp(again, 1);
}

NOINLINE void drives(void) {
    if (sigsetjmp(again, 1) == 0)
        truth_add(&handling, (uint64_t)faults(NULL));
    __asm__ volatile("");
}

int main(int argc, char **argv) {
    uint64_t end = seconds_arg(argc > 1 ? argv[1] : "1");
    signal(SIGSEGV, handles);
    while (thread_cpu_ns() < end)
        drives();
    truth_print(&handling);
    cpu_print();
    return 0;
}
