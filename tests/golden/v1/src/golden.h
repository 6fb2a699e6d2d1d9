// What the workloads of the golden captures share: x86-64, no libc, frame pointers, their own _start.
// Small programs that depend on nothing, so that they can be kept beside the captures.
#include <stddef.h>
#include <stdint.h>
#include <linux/sched.h>
#include <linux/time.h>
#include <sys/syscall.h>

#define NOINLINE __attribute__((noinline, noclone, used))
#define INLINE static inline __attribute__((always_inline))
#define MS 1000000ull

// At the end of a function: keeps the call before it from becoming a jump, which would hide the caller.
#define NO_TAIL_CALL() __asm__ volatile("" ::: "memory")

INLINE long call3(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

INLINE long call4(long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

// CPU time of the calling thread: how long a loop runs does not depend on what else the machine does.
INLINE uint64_t cpu_ns(void) {
    struct __kernel_timespec time;
    call3(SYS_clock_gettime, 3 /* CLOCK_THREAD_CPUTIME_ID */, (long)&time, 0);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

// A few hundred microseconds.
#define WORK()                                                                                                         \
    for (int turn = 0; turn < 400000; turn++)                                                                          \
    __asm__ volatile("")

#define SPIN(NANOSECONDS)                                                                                              \
    for (uint64_t end = cpu_ns() + (NANOSECONDS); cpu_ns() < end;)                                                     \
    WORK()

static _Noreturn void leave(int status) {
    for (;;)
        call3(SYS_exit_group, status, 0, 0);
}

#define TEXT(string) (long)(string), sizeof(string) - 1

// Says on standard error what failed, and ends.
#define GIVE_UP(what)                                                                                                  \
    do {                                                                                                               \
        call3(SYS_write, 2, TEXT(what "\n"));                                                                          \
        leave(1);                                                                                                      \
    } while (0)

int main(void);

__attribute__((used)) _Noreturn void begin(void) {
    leave(main());
}

// The outermost frame has no caller: %rbp is 0. The stack is aligned as the calling convention wants it.
__asm__(".globl _start\n"
        ".type _start, @function\n"
        "_start:\n"
        "\txor %ebp, %ebp\n"
        "\tand $-16, %rsp\n"
        "\tcall begin\n"
        "\thlt\n"
        ".size _start, . - _start\n");
