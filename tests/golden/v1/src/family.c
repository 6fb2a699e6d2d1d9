// A process with an odd name, its forked child that becomes another program, a third program under the child's number,
// two threads, and in the end system calls, in the middle of which the recorder is killed.
//
// In the order of time, each for some CPU time: parent_spin; in the child child_spin, then after exec one_spin;
// in a new process under the child's number two_spin; thread_a and thread_b at once; read_zero.
#include "golden.h"

#define DIR "/opt/bprof-golden/"

static char stacks[2][1 << 14] __attribute__((aligned(16)));
static char buffer[1 << 16];
static volatile int left = 2;

static void set_name(const char *name) {
    call3(SYS_prctl, 15 /* PR_SET_NAME */, (long)name, 0);
}

NOINLINE void parent_spin(void) {
    SPIN(400 * MS);
}

NOINLINE void child_spin(void) {
    SPIN(300 * MS);
}

NOINLINE void thread_a(void) {
    set_name("\xff\xfe"
             "a\n1");
    SPIN(400 * MS);
    __atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST);
}

NOINLINE void thread_b(void) {
    set_name("b");
    SPIN(400 * MS);
    __atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST);
}

NOINLINE void read_zero(void) {
    long fd = call4(SYS_openat, -100 /* AT_FDCWD */, (long)"/dev/zero", 0, 0);
    if (fd < 0)
        GIVE_UP("cannot open /dev/zero");
    for (uint64_t end = cpu_ns() + 4000 * MS; cpu_ns() < end;)
        for (int i = 0; i < 50; i++)
            call3(SYS_read, fd, (long)buffer, sizeof buffer);
}

// A copy of this process, under the number asked for if that is not 0.
static long fork_as(int pid) {
    struct clone_args args = {.exit_signal = 17 /* SIGCHLD */};
    if (pid) {
        args.set_tid = (uintptr_t)&pid;
        args.set_tid_size = 1;
    }
    return call3(SYS_clone3, (long)&args, sizeof args, 0);
}

NOINLINE void wait_for(long child) {
    int status = 1;
    if (call4(SYS_wait4, child, (long)&status, 0, 0) != child || status != 0)
        GIVE_UP("a child did not end well");
}

static _Noreturn void become(const char *path) {
    const char *const arguments[] = {path, NULL}, *const environment[] = {NULL};
    call3(SYS_execve, (long)path, (long)arguments, (long)environment);
    GIVE_UP("cannot run a program of " DIR);
}

// A thread on a stack of its own that ends with `run`; its outermost frame has no caller.
static void start_thread(void (*run)(void), char *stack, size_t size) {
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
        .stack = (uintptr_t)stack,
        .stack_size = size,
    };
    long result;
    __asm__ volatile("syscall\n\t"
                     "test %%eax, %%eax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "call *%[run]\n\t"
                     "mov %[exit], %%eax\n\t"
                     "xor %%edi, %%edi\n\t"
                     "syscall\n"
                     "1:"
                     : "=a"(result)
                     : "a"(SYS_clone3), "D"(&args), "S"(sizeof args), [run] "b"(run), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory");
    if (result < 0)
        GIVE_UP("cannot start a thread");
}

NOINLINE void children(void) {
    long child = fork_as(0);
    if (child == 0) {
        child_spin();
        become(DIR "one");
    }
    if (child < 0)
        GIVE_UP("cannot fork");
    wait_for(child);

    long again = fork_as((int)child);
    if (again == 0)
        become(DIR "two");
    if (again != child)
        GIVE_UP("cannot fork under the number of the child that has ended (needs root)");
    wait_for(again);
}

NOINLINE void threads(void) {
    start_thread(thread_a, stacks[0], sizeof stacks[0]);
    start_thread(thread_b, stacks[1], sizeof stacks[1]);
    struct __kernel_timespec pause = {.tv_nsec = 10 * MS};
    while (left)
        call3(SYS_nanosleep, (long)&pause, 0, 0);
}

int main(void) {
    set_name("a;b\x1b[7m \xc3\xa9");
    parent_spin();
    children();
    threads();
    // Whoever kills the recorder waits for this.
    call3(SYS_write, 1, TEXT("reading\n"));
    read_zero();
    return 0;
}
