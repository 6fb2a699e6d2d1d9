// lies SECONDS: runs functions whose unwind information is wrong, one after the other, SECONDS of CPU time each. What a walk can say
// of each is the function itself and nothing above it.
#include "truth.h"

typedef void lie(uint64_t until);

/// A function that loops until the time stamp counter is there, with `before` and `after` around its loop.
#define LIE(name, before, after)                                                                                   \
    lie name;                                                                                                      \
    __asm__(".text\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n" before                              \
            "1: rdtsc\nshl $32, %rdx\nor %rdx, %rax\npause\ncmp %rdi, %rax\njb 1b\n" after                        \
            "ret\n.cfi_endproc\n.size " #name ", . - " #name "\n")

/// The caller's frame is this one.
LIE(no_way_up, ".cfi_def_cfa_offset 0\n", "");
/// It is below.
LIE(downward, ".cfi_def_cfa_offset -64\n", "");
/// It is by a register that has anything in it.
LIE(by_nothing, "mov $3, %esi\n.cfi_def_cfa rsi, 0\n", "");
/// An expression without end: DW_OP_skip to itself.
LIE(endless, ".cfi_escape 0x0f, 3, 0x2f, 0xfd, 0xff\n", "");
/// An expression that reads memory that is not there.
LIE(reads_nothing, ".cfi_escape 0x0f, 3, 0x30, 0x06, 0x96\n", "");
/// The return address is a number.
LIE(returns_nowhere, "pushq $12345\n.cfi_adjust_cfa_offset 0\n", "add $8, %rsp\n");
/// The stack pointer is no address at all. In use it is as soon as a signal comes, so there must be none.
LIE(stackless, "mov %rsp, %r11\nmovabs $0x8000000000001230, %rsp\n", "mov %r11, %rsp\n");
LIE(at_zero, "mov %rsp, %r11\nxor %esp, %esp\n", "mov %r11, %rsp\n");
LIE(at_the_top, "mov %rsp, %r11\nmov $-16, %rsp\n", "mov %r11, %rsp\n");

static const struct {
    const char *name;
    lie *run;
} lies[] = {{"no_way_up", no_way_up}, {"downward", downward},   {"by_nothing", by_nothing},
            {"endless", endless},     {"reads_nothing", reads_nothing}, {"returns_nowhere", returns_nowhere},
            {"stackless", stackless}, {"at_zero", at_zero},     {"at_the_top", at_the_top}};

static uint64_t ticks(void) { return __builtin_ia32_rdtsc(); }

int main(int argc, char **argv) {
    if (argc != 2)
        return fprintf(stderr, "usage: lies SECONDS\n"), 2;
    wait_for_go();
    uint64_t start = thread_cpu_ns(), first = ticks();
    while (thread_cpu_ns() - start < 20000000)
        work(1000);
    double a_second = (double)(ticks() - first) * 50;
    for (unsigned i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        uint64_t before = thread_cpu_ns();
        lies[i].run(ticks() + (uint64_t)(a_second * atof(argv[1])));
        printf("truth %s %.9f\n", lies[i].name, (double)(thread_cpu_ns() - before) / 1e9);
    }
    cpu_print();
    return 0;
}
