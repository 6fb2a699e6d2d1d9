// paths FILE LANES: threads that go down one of 4,096 call paths again and again, some 25 to 60 frames deep, through 64
// functions; an operation is one path. Paths share their callers as those of programs do: near the root there are few.
#include "lanes.h"
#include <pthread.h>

enum { PATH_BITS = 12, FUNCTIONS = 64, ROUNDS = 3000 };

struct walk {
    uint32_t path;
    uint32_t told; // bits of the path that have been decided on
    uint32_t left; // calls to the next decision
};

typedef void step(struct walk *);
static step *const steps[FUNCTIONS];

static inline uint32_t mix(uint32_t x) {
    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    x = (x ^ (x >> 12)) * 0x297a2d39u;
    return x ^ (x >> 15);
}

/// Two to five calls between two decisions: which functions, and how many, is told by what has been decided.
static inline __attribute__((always_inline)) void down(struct walk *walk) {
    if (walk->left == 0 && walk->told == PATH_BITS) {
        work(ROUNDS);
    } else {
        if (walk->left == 0)
            walk->told++;
        uint32_t decided = (walk->path >> (PATH_BITS - walk->told)) + (1u << walk->told);
        if (walk->left == 0)
            walk->left = 2 + mix(decided) % 4;
        walk->left--;
        steps[mix(decided * 8 + walk->left) % FUNCTIONS](walk);
    }
    __asm__ volatile("" : : : "memory"); // what was called is not the last thing done: it stays a call
}

/// PAD: bytes of the stack that each function keeps for itself.
#ifdef PAD
#define KEEP()                                                                                                     \
    volatile char kept[PAD];                                                                                       \
    kept[0] = 1;                                                                                                   \
    __asm__ volatile("" : : "r"(kept) : "memory")
#else
#define KEEP()
#endif
#define STEP(n)                                                                                                    \
    NOINLINE static void step_##n(struct walk *walk) {                                                            \
        KEEP();                                                                                                    \
        down(walk);                                                                                                \
    }
#define EIGHT(do, n) do(n##0) do(n##1) do(n##2) do(n##3) do(n##4) do(n##5) do(n##6) do(n##7)
#define ALL(do) EIGHT(do, 0) EIGHT(do, 1) EIGHT(do, 2) EIGHT(do, 3) EIGHT(do, 4) EIGHT(do, 5) EIGHT(do, 6) EIGHT(do, 7)
#define NAME(n) step_##n,
ALL(STEP)
static step *const steps[FUNCTIONS] = {ALL(NAME)};

NOINLINE static void *lane(void *arg) {
    struct lane *lane = arg;
    uint64_t random = 88172645463325252u + (uintptr_t)arg;
    for (;;) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        uint32_t path = (uint32_t)(random >> 20) & ((1u << PATH_BITS) - 1);
        struct walk walk = {path, 0, 0};
        steps[0](&walk);
        lane->operations++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return fprintf(stderr, "usage: paths FILE LANES\n"), 2;
    struct lane *lanes = map_lanes(argv[1]);
    int count = lanes_arg(argv[2]);
    pthread_t thread;
    for (int i = 1; i < count; i++)
        if (pthread_create(&thread, NULL, lane, &lanes[i]) != 0)
            return perror("pthread_create"), 1;
    lane(&lanes[0]);
}
