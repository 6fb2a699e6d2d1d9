// edges SECONDS: addresses on the edge of a function (x86-64).
//
// - calls_never ends in a call that does not return: its return address is the first byte of after_never.
// - tight_loop is one instruction at its very first byte, right behind before_tight.
#include "truth.h"

#ifndef __x86_64__
#error "written for x86-64"
#endif

static struct truth never = {"never_returns", 0}, tight = {"tight_loop", 0};
static uint64_t budget;

void calls_never(void);
void tight_loop(long, long, long, long count); // the fourth argument is rcx, which `loop` counts down

__asm__(".text\n"
        ".globl calls_never, after_never, before_tight, tight_loop\n"
        ".type calls_never, @function\n"
        ".type after_never, @function\n"
        ".type before_tight, @function\n"
        ".type tight_loop, @function\n"
        "calls_never:\n"
        "    push %rbp\n"
        "    mov %rsp, %rbp\n"
        "    call never_returns\n"
        ".size calls_never, . - calls_never\n"
        "after_never:\n"
        "    push %rbp\n"
        "    mov %rsp, %rbp\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size after_never, . - after_never\n"
        "before_tight:\n"
        "    nop\n"
        "    ret\n"
        ".size before_tight, . - before_tight\n"
        "tight_loop:\n"
        "    loop tight_loop\n"
        "    ret\n"
        ".size tight_loop, . - tight_loop\n");

NOINLINE void drive_tight(void) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns(), now;
    do {
        tight_loop(0, 0, 0, 300000);
        now = thread_cpu_ns();
    } while (now - start < budget);
    truth_add(&tight, now - start);
}

NOINLINE __attribute__((noreturn)) void never_returns(void) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns(), now;
    do {
        work(BLOCK);
        now = thread_cpu_ns();
    } while (now - start < budget);
    truth_add(&never, now - start);
    truth_print(&never);
    truth_print(&tight);
    cpu_print();
    exit(0);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return fprintf(stderr, "usage: edges SECONDS\n"), 2;
    budget = seconds_arg(argv[1]);
    wait_for_go();
    drive_tight();
    calls_never();
}
