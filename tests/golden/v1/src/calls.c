// One process and functions whose shares are known, of 1.5 s CPU time: alpha 40 %, drive 20 % (all of it in what is
// inlined into it, mid and leaf), copy 30 % (nearly all in the kernel), deep 5 % behind more callers than a stack holds,
// and beta, called by two, 5 %.
#include "golden.h"

#define SECOND_AND_A_HALF (1500 * MS)
#define PERCENT(share) ((share) * SECOND_AND_A_HALF / 100)

static char buffer[1 << 16];
static volatile uint64_t sink;

NOINLINE void alpha(void) {
    SPIN(PERCENT(40));
}

INLINE void leaf(uint64_t ns) {
    SPIN(ns);
    sink++;
}

INLINE void mid(uint64_t ns) {
    sink += ns;
    leaf(ns);
    sink ^= ns;
}

NOINLINE void drive(void) {
    mid(PERCENT(20));
    sink++;
}

NOINLINE void copy(void) {
    long fd = call4(SYS_openat, -100 /* AT_FDCWD */, (long)"/dev/zero", 0, 0);
    if (fd < 0)
        GIVE_UP("cannot open /dev/zero");
    for (uint64_t end = cpu_ns() + PERCENT(30); cpu_ns() < end;)
        for (int i = 0; i < 50; i++)
            call3(SYS_read, fd, (long)buffer, sizeof buffer);
}

NOINLINE void deep(int callers) {
    if (callers)
        deep(callers - 1);
    else
        SPIN(PERCENT(5));
    NO_TAIL_CALL();
}

NOINLINE void beta(uint64_t ns) {
    SPIN(ns);
}

NOINLINE void first_caller(void) {
    beta(PERCENT(3));
    NO_TAIL_CALL();
}

NOINLINE void second_caller(void) {
    beta(PERCENT(2));
    NO_TAIL_CALL();
}

int main(void) {
    alpha();
    drive();
    copy();
    deep(200);
    first_caller();
    second_caller();
    return 0;
}
