/* The contract between the sampling program and src/record: its configuration, the record it puts into the
 * ring, and its loss counters. Rust sees these types through the skeleton that is generated from BTF. */
#ifndef PROFILER_H
#define PROFILER_H

#include "kernel_types.h"

enum filter {
	FILTER_NONE,
	FILTER_PGRP,
	FILTER_SESSION,
	FILTER_CGROUP,
	FILTER_PROCESSES,      /* those in `targets` */
};

/* A process in `targets`: its number and the clock tick it started in, so that another process that gets the number
 * later is another one. */
struct process {
	__u64 start_tick;      /* start_boottime in units of 10 ms, as /proc/PID/stat has it */
	__u32 tgid;
	__u32 unused;
};

/* Set before the program is loaded; constants to the verifier. */
struct config {
	enum filter filter;
	__u32 filter_id;       /* process group or session, in the initial PID namespace */
	__u32 skip_idle;       /* leave out samples of an idle CPU */
	__u32 max_user;        /* frames kept of a user stack */
	__u32 max_kernel;      /* frames kept of a kernel stack */
	__u32 measured;        /* add up the time this program takes */
	__u32 window;          /* bytes of a user stack copied at most; 0: it is walked along frame pointers instead */
	__u32 chains;          /* copies are shortened to chains of frames where `usual` says that this is enough */
	__u32 may_walk;        /* where a copy may not hold all of it, it is walked along frame pointers besides */
	__u32 saved_registers; /* bytes that the kernel takes for registers at the end of a signal handler's own stack */
	__u64 ring_bytes;
	__u64 wake_bytes;      /* wake the recorder when so much waits in a ring */
	__u64 short_bytes;     /* when so much waits, keep SHORT_FRAMES of each stack: rather that than no sample */
};

enum {
	SHORT_FRAMES = 8,
	SHORT_WINDOW = 1024,   /* bytes of a user stack copied then */
	LARGEST_WINDOW = 131072, /* `config.window` is not larger */
	ROOM_SHARE = 4,        /* a copy takes no more than this part of what is free in the ring */
	RED_ZONE = 128,        /* bytes below the stack pointer that are in use, copied too */
	CHAIN_FROM = 1024,     /* copies of fewer bytes are not shortened to a chain of frames */
	CHAIN_WORTH = 8,       /* nor are those of fewer frames */
	CHAIN_SAVES = 256,     /* nor is one that would get shorter by less */
	CHAIN_FRAMES = 64,     /* a chain is not longer */
	USUAL_BITS = 14,       /* of the number of places in `usual` */
	ADDRESS_BITS = 47,     /* of a user address; in `usual` the tag of its program is above them */
	CHAIN_BITS = 48,       /* in a chain: how far the next frame is from this one, in words, is above them */
	WEIGHT_SHIFT = 16,     /* of a sample's weight in its flags; 0 is 1 */
	FLAGS = (1 << WEIGHT_SHIFT) - 1,
};

/* Text of the kernel's idle routines. Set while the program runs already: finding it takes as long as many
 * samples. Until then samples of the idle task are passed on, and the recorder sorts them out. */
struct idle_text {
	__u64 start;
	__u64 end;
	__u32 known;           /* start and end are set; equal ones: addresses are hidden, all of the idle task is idle */
};

enum sample_flag {
	SAMPLE_IN_KERNEL = 1 << 0,  /* taken in kernel mode */
	SAMPLE_IN_EXEC = 1 << 1,    /* the task was inside execve */
	SAMPLE_KTHREAD = 1 << 2,    /* a kernel thread or the idle task: no user memory */
	SAMPLE_EXITING = 1 << 3,    /* the task has given its user memory back: no user stack any more */
	SAMPLE_SHORT = 1 << 4,      /* the ring was nearly full: SHORT_FRAMES of each stack at most */
	SAMPLE_COPIED = 1 << 5,     /* registers and stack memory in place of the user stack's addresses */
	SAMPLE_LESS = 1 << 6,       /* the copy may have been cut because the ring got full */
	SAMPLE_CHAIN = 1 << 7,      /* behind the top of the copy comes a chain and another part, for all that lies there */
};

/* What precedes stack memory in a record. */
struct stack_part {
	__u64 from;            /* address of the first word */
	__u64 bytes;           /* so many of it follow */
};

/* With SAMPLE_COPIED, what follows the kernel stack: this and the top of the stack, then, if user_frames says that there are more
 * words, another part, of what lies beyond a gap or on another stack; then the user stack's addresses if it was walked too. */
struct user_copy {
	struct user_regs regs; /* of the user code, also when the sample was taken in the kernel */
	struct stack_part top;
};

/* With SAMPLE_CHAIN, what follows the top, which ends with the first of the frames: then a word for each of them with the return
 * address beside it, and how far up the next one is; then another part, of what lies above the last. In the memory between,
 * which is left out, are only what these functions keep for themselves. */
struct chain {
	__u64 first;           /* where the frame pointer leads */
	__u64 next;            /* what the last frame has for that of its caller */
	__u64 count;           /* so many frames */
};

/* Return addresses into functions that have made the usual frame (the frame pointer leads to that of their caller and, beside it, to
 * the return address), as the recorder has found in the unwind information of their files: each in the place that its hash gives or
 * its neighbour, with a tag of the program. Where a frame pointer chain leads through nothing else, nothing else of the stack is needed. */
struct usual {
	__u64 keys[1 << USUAL_BITS];
};

/* What is known of a thread's stack, in `windows`. */
struct window {
	__u64 beyond;          /* there is more to be copied from here on, beyond the top; or 0 */
	__u32 bytes;           /* so many are enough of the top */
	__u32 also_walk;       /* they are not, and frame pointers may lead on: such stacks are walked along them besides */
};

/* What precedes the stacks in the ring: kernel_frames addresses, then user_frames, both leaf first; of a stack that was copied
 * user_frames is the words of it, with what precedes the second part. */
struct sample_head {
	__u64 time;            /* CLOCK_BOOTTIME, ns */
	__u64 start_time;      /* of the process: group_leader->start_boottime, ns */
	__u64 cgroup_id;       /* of the task, in the cgroup v2 hierarchy */
	__u32 tgid;
	__u32 tid;
	__u32 exec_id;         /* task->self_exec_id, low half */
	__u32 cpu;
	__s16 kernel_frames;   /* negative: the stack could not be read */
	__s16 user_frames;
	enum sample_flag flags;
	char comm[16];         /* of the thread */
};

/* Per-CPU counters, index into `counters`. Samples count with their weight. */
enum counter {
	COUNT_SAMPLES,         /* put into a ring */
	COUNT_RING_FULL,       /* no room in the ring */
	COUNT_SCRATCH,         /* no scratch buffer for this CPU */
	COUNT_IDLE,            /* left out: the CPU was idle */
	COUNT_FILTERED,        /* left out: not of the target */
	COUNT_NOT_FOLLOWED,    /* a child of the target that did not fit into `targets` */
	COUNT_TIME,            /* nanoseconds spent on samples, if measured */
	COUNTERS,
};

#endif
