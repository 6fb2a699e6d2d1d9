// bpfrun SECONDS: lets the kernel run a BPF program that computes, again and again.
#include "truth.h"
#include <linux/bpf.h>
#include <sys/syscall.h>

enum { STEPS = 3000 };

static long bpf(int command, union bpf_attr *attr) { return syscall(SYS_bpf, command, attr, sizeof *attr); }

int main(int argc, char **argv) {
    if (argc < 2)
        return fprintf(stderr, "usage: bpfrun SECONDS\n"), 2;
    static struct bpf_insn program[STEPS + 2];
    program[0] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = 1};
    for (int i = 1; i <= STEPS; i++)
        program[i] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MUL | BPF_K, .imm = 31};
    program[STEPS + 1] = (struct bpf_insn){.code = BPF_JMP | BPF_EXIT};
    union bpf_attr load = {.prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insn_cnt = STEPS + 2};
    load.insns = (uintptr_t)program;
    load.license = (uintptr_t) "GPL";
    memcpy(load.prog_name, "bpfrun_prog", 12);
    long fd = bpf(BPF_PROG_LOAD, &load);
    if (fd < 0)
        give_up("BPF_PROG_LOAD");
    char packet[64] = {0};
    uint64_t start = thread_cpu_ns();
    do {
        union bpf_attr run = {0};
        run.test.prog_fd = (uint32_t)fd;
        run.test.data_size_in = sizeof packet;
        run.test.data_in = (uintptr_t)packet;
        run.test.repeat = 10000;
        if (bpf(BPF_PROG_TEST_RUN, &run) != 0)
            give_up("BPF_PROG_TEST_RUN");
    } while (thread_cpu_ns() - start < seconds_arg(argv[1]));
    cpu_print();
    return 0;
}
