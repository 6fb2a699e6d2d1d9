// returns SECONDS [coroutines [linked]]: code that goes on where nothing has called it.
//
// As it is: signals, of which each sample taken while a handler returns has main;outer;step1;step2;sender above it, and nothing else.
// `outer` keeps a frame pointer, so that following those leads from the handler's end past the three in between.
//
// coroutines: two functions on stacks of their own that take turns; linked: they would go on in main if they ended.
#include "truth.h"
#include <alloca.h>
#include <signal.h>
#include <ucontext.h>

static volatile uint64_t handled;
static void handler(int number) { handled += (uint64_t)number; }

#define STAYS() __asm__ volatile("" ::: "memory")

NOINLINE void sender(void) {
    for (int i = 0; i < 200; i++)
        raise(SIGUSR1);
    STAYS();
}
NOINLINE void step2(void) {
    sender();
    STAYS();
}
NOINLINE void step1(void) {
    step2();
    STAYS();
}
NOINLINE void outer(size_t size) {
    volatile char *p = alloca(size);
    p[0] = 1;
    step1();
    p[size - 1] = 2;
}

static ucontext_t of_main, of_turns[2];
NOINLINE void spins(void) {
    work(BLOCK);
    STAYS();
}
NOINLINE void turns(int number) {
    for (;;) {
        spins();
        swapcontext(&of_turns[number], &of_main);
    }
}

int main(int argc, char **argv) {
    static uint64_t end;
    end = seconds_arg(argc > 1 ? argv[1] : "1");
    if (argc < 3) {
        signal(SIGUSR1, handler);
        while (thread_cpu_ns() < end)
            outer(300);
    } else {
        static char stacks[2][1 << 16];
        for (int i = 0; i < 2; i++) {
            getcontext(&of_turns[i]);
            of_turns[i].uc_stack.ss_sp = stacks[i];
            of_turns[i].uc_stack.ss_size = sizeof stacks[i];
            of_turns[i].uc_link = argc > 3 ? &of_main : NULL;
            makecontext(&of_turns[i], (void (*)(void))turns, 1, i);
        }
        for (int i = 0; thread_cpu_ns() < end; i ^= 1)
            swapcontext(&of_main, &of_turns[i]);
    }
    cpu_print();
    return 0;
}
