/* The few kernel types the sampling program reads. Offsets are relocated at load time (CO-RE), so of the
 * structs only the names matter; enumerators are from include/uapi/linux/bpf.h and cannot change. */
#ifndef KERNEL_TYPES_H
#define KERNEL_TYPES_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_CGROUP_ARRAY = 8,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_F_USER_STACK = 1 << 8 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0 };
enum { BPF_ANY = 0 };
enum { BPF_F_MMAPABLE = 1 << 10 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

enum pid_type { PIDTYPE_PID, PIDTYPE_TGID, PIDTYPE_PGID, PIDTYPE_SID, PIDTYPE_MAX };

/* Of the steps a CPU takes to come or go only the one that makes or ends its perf events matters. */
enum cpuhp_state { CPUHP_AP_PERF_ONLINE = 1 };

struct upid {
	int nr;
};

struct pid {
	struct upid numbers[1];
};

struct signal_struct {
	struct pid *pids[PIDTYPE_MAX];
};

struct mm_struct {
	unsigned long start_stack;
};

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase;
};
#endif

struct task_struct {
#if defined(__TARGET_ARCH_x86)
	struct thread_struct thread;
#endif
	struct mm_struct *mm;
	unsigned long sas_ss_sp;
	unsigned long sas_ss_size;
	unsigned int flags;
	unsigned int in_execve : 1;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	__u64 start_boottime;
	struct signal_struct *signal;
	__u64 self_exec_id;
};

#pragma clang attribute pop

#define PF_KTHREAD 0x00200000

/* What a perf_event program is given: registers as user space sees them (arch/.../uapi/asm/ptrace.h). */
#if defined(__TARGET_ARCH_x86)
struct user_regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax;
	__u64 ip, cs, flags, sp, ss;
};
#define REGS_IN_KERNEL(r) (((r)->cs & 3) == 0)
/* Code segment of 32-bit programs (arch/x86/include/asm/segment.h). */
#define REGS_32_BIT(r) ((r)->cs == 0x23)
#elif defined(__TARGET_ARCH_arm64)
struct user_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
};
#define REGS_IN_KERNEL(r) (((r)->pstate & 0xf) != 0)
#else
#error "this architecture is not supported yet"
#endif

struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

struct bpf_perf_event_data {
	struct user_regs regs;
	__u64 sample_period;
	__u64 addr;
};

#endif
