// shadow PATHS SECONDS [alt | disarm | threads | split | vdso | wide]: runs PATHS random call paths through functions of every kind that is hard to walk
// without frame pointers, and prints each path as it ran: `path main;plain;...`, root first, with the function that burns last.
// A sample is right when its own functions, in order, begin one of these paths.
//
// alt: signal handlers run on a stack of their own; disarm: of which the kernel knows nothing meanwhile. wide: the paths begin in a
// function with a frame of 600 KiB, from the middle on at another place. threads: the paths run in four threads, whose root is on_thread. split: a page
// in the middle of the code is mapped otherwise, so that there are three mappings of it. vdso: burns asks for the time.
#include "truth.h"
#include <alloca.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

enum { LONGEST = 24, MOST_PATHS = 400 };
// STEPS: so little that a debugger can step through it.
#ifdef STEPS
enum { COPY = 1 << 8, COPIES = 2, ROUNDS = 20 };
#else
enum { COPY = 1 << 16, COPIES = 20, ROUNDS = 20000 };
#endif

typedef const unsigned char *path;
typedef uint64_t step(path rest, uint64_t x);

static uint64_t budget; // of one path, ns
static uint64_t go(path rest, uint64_t x);

/// What comes after a call: it stays a call, and registers stay in use across it.
#define AFTER(x, y) ((x)*31 + (y))

static int asks;
NOINLINE void asks_for_the_time(void) {
    struct timespec now;
    for (int i = 0; i < 1000; i++)
        clock_gettime(CLOCK_MONOTONIC, &now);
}

NOINLINE uint64_t burns(uint64_t x) {
    uint64_t start = thread_cpu_ns();
    do
        if (asks)
            asks_for_the_time();
        else
            work(ROUNDS);
    while (thread_cpu_ns() - start < budget);
    return x + 1;
}

/// Ends in code of the C library that has no frames.
NOINLINE uint64_t copies(uint64_t x) {
    static __thread char from[COPY], to[COPY];
    uint64_t start = thread_cpu_ns();
    do
        for (int i = 0; i < COPIES; i++) {
            from[0] = (char)(x | 1);
            memset(from + 1, i + 1, COPY - 2);
            memcpy(to, from, COPY);
            to[3] = (char)strlen(from);
            __asm__ volatile("" : : "r"(to) : "memory");
        }
    while (thread_cpu_ns() - start < budget);
    return x + (uint64_t)to[3];
}

/// Ends in the kernel.
NOINLINE uint64_t reads(uint64_t x) {
    static __thread char to[COPY];
    int zero = open("/dev/zero", O_RDONLY);
    uint64_t start = thread_cpu_ns();
    do
        if (zero < 0 || read(zero, to, COPY) != COPY)
            give_up("/dev/zero");
    while (thread_cpu_ns() - start < budget);
    close(zero);
    return x + (uint64_t)to[3];
}

NOINLINE uint64_t plain(path rest, uint64_t x) {
    uint64_t a = x * 3, b = x ^ 5, c = x + 7, d = x - 9, e = x << 3;
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e));
    uint64_t y = go(rest, a);
    return AFTER(y, b) + AFTER(c, d) + e;
}

NOINLINE uint64_t small(path rest, uint64_t x) { return AFTER(go(rest, x), x); }

NOINLINE uint64_t allocas(path rest, uint64_t x) {
    volatile char *p = alloca(16 + (x & 255));
    p[0] = (char)x;
    uint64_t y = go(rest, x + 1);
    return AFTER(y, (uint64_t)p[0]);
}

/// The compiler aligns the stack and finds the caller's frame by another register.
NOINLINE uint64_t aligns(path rest, uint64_t x) {
    _Alignas(64) volatile char block[128];
    block[x & 63] = (char)x;
    __asm__ volatile("" : : "r"(block) : "memory");
    uint64_t y = go(rest, x + 2);
    return AFTER(y, (uint64_t)block[x & 63]);
}

/// Both: aligned, and of a size that is known only when it runs.
NOINLINE uint64_t aligns_allocas(path rest, uint64_t x) {
    _Alignas(32) volatile char block[64];
    volatile char *p = alloca(16 + (x & 127));
    block[x & 31] = p[1] = (char)x;
    __asm__ volatile("" : : "r"(block), "r"(p) : "memory");
    uint64_t y = go(rest, x + 3);
    return AFTER(y, (uint64_t)(block[x & 31] + p[1]));
}

NOINLINE uint64_t big(path rest, uint64_t x) {
    volatile char block[1500];
    block[x % 1500] = (char)x;
    uint64_t y = go(rest, x + 4);
    return AFTER(y, (uint64_t)block[x % 1500]);
}

/// A function of the C library is between the two.
static __thread path sorted_rest;
static __thread uint64_t sorted_x, sorted_done;
NOINLINE int compares(const void *a, const void *b) {
    if (!sorted_done++)
        sorted_x = go(sorted_rest, sorted_x + 5);
    return *(const int *)a - *(const int *)b;
}
NOINLINE uint64_t sorts(path rest, uint64_t x) {
    int two[2] = {2, 1};
    sorted_rest = rest, sorted_x = x, sorted_done = 0;
    qsort(two, 2, sizeof two[0], compares);
    return AFTER(sorted_x, (uint64_t)two[0]);
}

/// So is the trampoline of a signal.
static __thread path raised_rest;
static __thread uint64_t raised_x;
NOINLINE void on_signal(int number) { raised_x = go(raised_rest, raised_x + (uint64_t)number); }
NOINLINE uint64_t raises(path rest, uint64_t x) {
    raised_rest = rest, raised_x = x;
    raise(SIGUSR1);
    return AFTER(raised_x, x);
}

/// Finds its caller's frame by a register that is neither the stack pointer nor the frame pointer.
step by_rbx;
__asm__(".text\n"
        ".type by_rbx, @function\n"
        "by_rbx:\n"
        ".cfi_startproc\n"
        "push %rbx\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset rbx, -16\n"
        "mov %rsp, %rbx\n"
        ".cfi_def_cfa_register rbx\n"
        "sub $208, %rsp\n"
        "call small\n"
        "mov %rbx, %rsp\n"
        ".cfi_def_cfa_register rsp\n"
        "pop %rbx\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size by_rbx, . - by_rbx\n");

/// Its call is the last there is of it: where it returns to is another function.
static __thread uint64_t left_x;
static __thread void **left_to;
NOINLINE __attribute__((noreturn)) void leaves(path rest, uint64_t x) {
    left_x = go(rest, x + 6);
    __builtin_longjmp(left_to, 1);
}
NOINLINE __attribute__((noreturn)) void ends_in_a_call(path rest, uint64_t x) { leaves(rest, x ^ 1); }
NOINLINE uint64_t jumps(path rest, uint64_t x) {
    void *here[5], **before = left_to;
    left_to = here;
    if (__builtin_setjmp(here) == 0)
        ends_in_a_call(rest, x);
    left_to = before;
    return AFTER(left_x, 1);
}

static const struct {
    const char *name;
    step *run;
    uint64_t (*end)(uint64_t x);
} steps[] = {
    {"plain", plain, 0},
    {"small", small, 0},
    {"allocas", allocas, 0},
    {"aligns", aligns, 0},
    {"aligns_allocas", aligns_allocas, 0},
    {"big", big, 0},
    {"sorts;compares", sorts, 0},
    {"raises;on_signal", raises, 0},
    {"by_rbx;small", by_rbx, 0},
    {"jumps;ends_in_a_call;leaves", jumps, 0},
    {"burns", 0, burns},
    {"copies", 0, copies},
    {"reads", 0, reads},
};
enum { ENDS = 10, ALL = 13, SIGNAL = 7 };

static inline __attribute__((always_inline)) uint64_t go(path rest, uint64_t x) {
    return steps[*rest].run ? steps[*rest].run(rest + 1, x) : steps[*rest].end(x);
}

static unsigned char paths[MOST_PATHS][LONGEST + 1];
static int count;

NOINLINE void *on_thread(void *arg) {
    uint64_t x = (uint64_t)arg, sum = 0;
    for (int i = (int)x; i < count; i += 4)
        sum += go(paths[i], x);
    __asm__ volatile("" : : "r"(sum) : "memory");
    return 0;
}

/// Larger than any copy of a stack.
NOINLINE uint64_t wide(path rest, uint64_t x) {
    volatile char block[600 << 10];
    block[x] = (char)x;
    uint64_t y = go(rest, x + 8);
    return AFTER(y, (uint64_t)block[x]);
}
NOINLINE uint64_t lowers(path rest, uint64_t x) {
    volatile char block[2 << 10];
    block[x] = (char)x;
    uint64_t y = wide(rest, x + 9);
    return AFTER(y, (uint64_t)block[x]);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return fprintf(stderr, "usage: shadow PATHS SECONDS [alt | disarm | threads | split | vdso | wide]\n"), 2;
    const char *mode = argc > 3 ? argv[3] : "";
    int disarm = !strcmp(mode, "disarm"), alt = disarm || !strcmp(mode, "alt");
    int threads = !strcmp(mode, "threads"), is_wide = !strcmp(mode, "wide");
    asks = !strcmp(mode, "vdso");
    if (!strcmp(mode, "split")) {
        char *page = (char *)((uintptr_t)aligns & ~4095ul);
        if (mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC))
            give_up("mprotect");
    }
    count = atoi(argv[1]) < MOST_PATHS ? atoi(argv[1]) : MOST_PATHS;
    budget = seconds_arg(argv[2]) / (uint64_t)count;
    static char stack[1 << 16];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack, .ss_flags = disarm ? (int)(1u << 31) : 0}; // SS_AUTODISARM
    // A handler may run the path of another signal.
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER | (alt ? SA_ONSTACK : 0)};
    if ((alt && sigaltstack(&other, 0)) || sigaction(SIGUSR1, &action, 0))
        give_up("signals");
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < count; i++) {
        int length = 1 + (int)(next_random(&seed) % (LONGEST - 1)), raised = 0;
        printf("path %s%s", threads ? "on_thread" : "main", !is_wide ? "" : i * 2 < count ? ";wide" : ";lowers;wide");
        for (int at = 0; at < length; at++) {
            unsigned char kind = (unsigned char)(next_random(&seed) % (at + 1 < length ? ENDS : 3));
            if (at + 1 == length)
                kind += ENDS;
            // One stack of its own is enough.
            if (kind == SIGNAL && raised++)
                kind = 0;
            paths[i][at] = kind;
            printf(";%s", steps[kind].name);
        }
        printf("\n");
    }
    fflush(stdout);
    wait_for_go();
    uint64_t sum = 0;
    if (threads) {
        pthread_t ids[4];
        for (uint64_t i = 0; i < 4; i++)
            if (pthread_create(&ids[i], 0, on_thread, (void *)i))
                give_up("a thread");
        for (int i = 0; i < 4; i++)
            pthread_join(ids[i], 0);
    } else {
        for (int i = 0; i < count; i++)
            sum += is_wide ? (i * 2 < count ? wide : lowers)(paths[i], (uint64_t)i) : go(paths[i], (uint64_t)i);
    }
    __asm__ volatile("" : : "r"(sum) : "memory");
    cpu_print();
    return 0;
}
