// Deep call paths below two callers, so that runs of calls repeat, then code that a perf map names: of 1.2 s CPU time 40 % below
// first_caller, 40 % below second_caller, 20 % in generated code that is `made up` for half of it and then `another thing`.
#include "../../v1/src/golden.h"

#define PART(share) ((share) * 12 * MS)
#define PATHS 12
#define DEPTH 48

typedef void step(uint64_t path, int left);
static volatile uint64_t sink;
static step *const steps[16];

static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 31);
}

#define STEP(name)                                                                                                     \
    NOINLINE static void name(uint64_t path, int left) {                                                               \
        if (left)                                                                                                      \
            steps[mix(path) & 15](mix(path), left - 1);                                                                \
        else                                                                                                           \
            WORK();                                                                                                    \
        sink++;                                                                                                        \
    }
STEP(ant)
STEP(bee)
STEP(cat)
STEP(dog)
STEP(eel)
STEP(fox)
STEP(gnu)
STEP(hen)
STEP(ibis)
STEP(jay)
STEP(kite)
STEP(lynx)
STEP(mole)
STEP(newt)
STEP(owl)
STEP(pig)
static step *const steps[16] = {ant, bee, cat, dog, eel, fox, gnu, hen, ibis, jay, kite, lynx, mole, newt, owl, pig};

#define CALLER(name)                                                                                                   \
    NOINLINE void name(uint64_t budget) {                                                                              \
        uint64_t path = 0;                                                                                             \
        for (uint64_t end = cpu_ns() + budget; cpu_ns() < end; path++)                                                 \
            ant(path % PATHS, DEPTH);                                                                                  \
        NO_TAIL_CALL();                                                                                                \
    }
CALLER(first_caller)
CALLER(second_caller)

// Runs anywhere: pushes a frame, counts down, returns.
static const unsigned char code[] = {
    0x55, 0x48, 0x89, 0xe5,             // push %rbp; mov %rsp, %rbp
    0xb9, 0x00, 0x20, 0x06, 0x00,       // mov $401408, %ecx
    0xff, 0xc9, 0x75, 0xfc,             // 1: dec %ecx; jnz 1b
    0x5d, 0xc3,                         // pop %rbp; ret
};

static char *hex(char *to, uint64_t value) {
    for (int shift = 44; shift >= 0; shift -= 4)
        *to++ = "0123456789abcdef"[value >> shift & 15];
    return to;
}

// One line of the perf map: START SIZE NAME.
static void tell(long file, const unsigned char *start, const char *name) {
    char line[64], *to = hex(line, (uint64_t)start);
    *to++ = ' ';
    to = hex(to, sizeof code);
    *to++ = ' ';
    while (*name)
        *to++ = *name++;
    *to++ = '\n';
    call3(SYS_write, file, (long)line, to - line);
}

NOINLINE void generated(void) {
    // mmap has six arguments; brk has room for the code as well, but not the right to run it.
    long end = call3(SYS_brk, 0, 0, 0), page = (end + 4095) & ~4095;
    if (call3(SYS_brk, page + 4096, 0, 0) != page + 4096 || call3(SYS_mprotect, page, 4096, 7) != 0)
        GIVE_UP("no memory for code");
    unsigned char *first = (unsigned char *)page, *second = first + 2048;
    for (size_t i = 0; i < sizeof code; i++)
        first[i] = second[i] = code[i];
    // /tmp/perf-PID.map, with the digits of the PID.
    char path[32] = "/tmp/perf-", digits[8], *to = path + 10;
    int count = 0;
    for (long pid = call3(SYS_getpid, 0, 0, 0); pid; pid /= 10)
        digits[count++] = (char)('0' + pid % 10);
    while (count)
        *to++ = digits[--count];
    for (const char *rest = ".map"; *rest;)
        *to++ = *rest++;
    long file = call4(SYS_openat, -100 /* AT_FDCWD */, (long)path, 01101 /* O_WRONLY | O_CREAT | O_TRUNC */, 0600);
    if (file < 0)
        GIVE_UP("cannot write the perf map");
    tell(file, first, "made up");
    tell(file, second, "another thing");
    for (uint64_t until = cpu_ns() + PART(10); cpu_ns() < until;)
        ((void (*)(void))first)();
    for (uint64_t until = cpu_ns() + PART(10); cpu_ns() < until;)
        ((void (*)(void))second)();
    NO_TAIL_CALL();
}

int main(void) {
    first_caller(PART(40));
    second_caller(PART(40));
    generated();
    return 0;
}
