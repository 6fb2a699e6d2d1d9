/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Runs in the interrupt of each sample: decides whether it is wanted, walks both stacks into this CPU's
 * scratch buffer (of the user stack, with a window, it copies what the recorder needs to walk it) and puts the used
 * part into this CPU's ring. Takes no lock, updates nothing shared and wakes nobody unless a ring gets half full. */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "profiler.h"

const volatile struct config config = {};
struct idle_text idle_text = {};
/* What a sample counts for: the recorder samples at a fraction of the rate asked for. 0 is 1. Read for each sample, and
 * written when that changes: not beside what is written more often. */
__u32 weight = 0;
/* How often any CPU came or went. */
__u64 cpu_changes = 0;
/* Never read: makes the layout of the record part of the skeleton. */
const volatile struct sample_head sample_head_layout = {};
const volatile struct user_copy user_copy_layout = {};
const volatile struct chain chain_layout = {};

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* One ring for each possible CPU, made and put here by the recorder. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* One buffer for each possible CPU; the recorder sets the value's size to the head and the deepest stacks.
 * Not a per-CPU map: those have no room for deep stacks (32 KiB a value). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct sample_head) + 2 * 127 * sizeof(__u64));
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, enum counter);
	__type(value, __u64);
} counters SEC(".maps");

/* How often each possible CPU came or went: the kernel ends the perf events of one that goes, without a word. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} changes_of_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} cgroup SEC(".maps");

/* Processes to sample: the given ones, and with `follow_fork` their descendants. The value is the start in ns, 0 for
 * the given ones, of which only the tick is known: it tells who an entry is of when a number is used twice in a tick. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct process);
	__type(value, __u64);
} targets SEC(".maps");

/* Threads of which other parts of the stack are enough than `config.window` of its top, or are not, as the recorder has found. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct window);
} windows SEC(".maps");

/* Written by the recorder, who has it in its memory, read here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct usual);
} usual SEC(".maps");

static __always_inline void add(enum counter which, __u64 more)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &which);

	if (value)
		*value += more;
}

static __always_inline void count(enum counter which)
{
	add(which, 1);
}

static __always_inline __u32 group_number(struct task_struct *task, enum pid_type type)
{
	struct pid *pid = NULL;
	struct signal_struct *signal = BPF_CORE_READ(task, signal);

	bpf_core_read(&pid, sizeof(pid), &signal->pids[type]);
	return BPF_CORE_READ(pid, numbers[0].nr);
}

#define RECORD_HEAD 8 /* bytes of the kernel before each record of a ring */
#define NS_PER_TICK 10000000 /* USER_HZ is 100 everywhere */

static __always_inline struct process process_of(struct task_struct *task)
{
	struct process process = {};

	process.tgid = BPF_CORE_READ(task, tgid);
	process.start_tick = BPF_CORE_READ(task, group_leader, start_boottime) / NS_PER_TICK;
	return process;
}

/* Which tasks are wanted; `start` is that of the process. Threads given by number need no check here: events are opened
 * on them. */
static __always_inline int wanted(struct task_struct *task, __u32 tgid, __u64 start)
{
	switch (config.filter) {
	case FILTER_PGRP:
		return group_number(task, bpf_core_enum_value(enum pid_type, PIDTYPE_PGID)) == config.filter_id;
	case FILTER_SESSION:
		return group_number(task, bpf_core_enum_value(enum pid_type, PIDTYPE_SID)) == config.filter_id;
	case FILTER_PROCESSES: {
		struct process process = { .start_tick = start / NS_PER_TICK, .tgid = tgid };

		return bpf_map_lookup_elem(&targets, &process) != NULL;
	}
	case FILTER_CGROUP:
		return bpf_current_task_under_cgroup(&cgroup, 0) == 1;
	default:
		return 1;
	}
}

static __always_inline int in_idle_text(__u64 address)
{
	return address >= idle_text.start && address < idle_text.end;
}

/* The idle task in one of the kernel's idle routines, or in what they call to halt (a hypervisor's way of it lies
 * elsewhere). Interrupt work done on an idle CPU has other callers, and is not idle. */
static __always_inline int idle(const __u64 *kernel_stack, __u32 frames)
{
	if (!idle_text.known)
		return 0;
	if (idle_text.start == idle_text.end)
		return 1;
	return (frames > 0 && in_idle_text(kernel_stack[0])) || (frames > 1 && in_idle_text(kernel_stack[1]));
}

#if defined(__TARGET_ARCH_x86)
#define PAGE 4096
/* Pages at the top of a stack that may never have been touched. */
#define UNTOUCHED 10

/* Whether `address` ends the memory from `sp` on that may be stack. */
static __always_inline __u64 lower_end(__u64 end, __u64 address, __u64 sp)
{
	return address > sp && address < end ? address & ~7ULL : end;
}

/* Where the copies end in the scratch buffer. */
static __always_inline __u64 copies_end(void)
{
	return sizeof(struct sample_head) + config.max_kernel * sizeof(__u64) + sizeof(struct user_copy) + config.window;
}

/* Copies the stack from `from` up to `end` page by page, some of which are not there, to the part that begins `offset` bytes into the
 * scratch buffer of this CPU. Bytes of the stack. Not inlined and not static: so the verifier looks at it once, by itself, which takes
 * a tenth of the time. */
__noinline long copy_pages(__u32 cpu, __u64 offset, __u64 from, __u64 end)
{
	__u64 place, part;
	void *head = bpf_map_lookup_elem(&scratch, &cpu);
	/* Where the copy is kept in memory: what is read from there is any number to the verifier, which then looks at each step
	 * once, and not once for each way to get to it. */
	volatile struct stack_part *at;
	int i;

	barrier_var(offset);
	/* Without copies there is no room for any, and older kernels look at this all the same. */
	if (!config.window || !head || offset > copies_end() - sizeof(*at))
		return -1;
	at = head + offset;
	at->from = from;
	at->bytes = 0;
	offset += sizeof(*at);
	/* The first ones may never have been touched... */
	for (i = 0; i < UNTOUCHED && bpf_probe_read_user(head + offset, sizeof(__u64), (void *)at->from); i++)
		at->from = (at->from | (PAGE - 1)) + 1;
	/* ... then all up to one that is not there: in few steps, each of a length that the verifier knows. */
#pragma unroll
	for (part = LARGEST_WINDOW / 2; part >= PAGE; part /= 2) {
		place = offset + at->bytes;
		from = at->from + at->bytes;
		barrier_var(place);
		if (config.window < part || place > copies_end() - part || from + part > end)
			continue;
		if (!bpf_probe_read_user(head + place, part, (void *)from))
			at->bytes += part;
	}
	/* What is left is less than a page, and may be in two. */
#pragma unroll
	for (i = 0; i < 2; i++) {
		place = offset + at->bytes;
		from = at->from + at->bytes;
		part = PAGE - (from & (PAGE - 1));
		if (part > end - from)
			part = end - from;
		barrier_var(part);
		barrier_var(place);
		if (from < end && part <= PAGE && place <= copies_end() &&
		    !bpf_probe_read_user(head + place, part, (void *)from))
			at->bytes += part;
	}
	return at->bytes;
}

/* Whether the current task runs on the stack it has for signal handlers. */
static __always_inline int on_signal_stack(struct task_struct *task, __u64 sp)
{
	return sp - task->sas_ss_sp < task->sas_ss_size;
}

/* Where a copy of the stack ends whose stack pointer is `sp`, in a window or the room there is for it. Like the next ones a function
 * by itself so that the verifier need not follow each way through it to the program's end. */
__noinline __u64 copy_end(__u64 sp, __u64 window, __u64 room)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 from = (sp - RED_ZONE) & ~7ULL, end;

	/* What the kernel has put there is too much for some windows. */
	if (on_signal_stack(task, sp))
		window = config.window;
	end = from + (window < room ? window : room & ~7ULL);
	if (on_signal_stack(task, sp))
		end = lower_end(end, task->sas_ss_sp + task->sas_ss_size, sp);
	/* Stacks end below what the C library keeps of a thread, and the main thread's below its arguments. */
	end = lower_end(end, task->thread.fsbase, sp);
	return lower_end(end, task->mm->start_stack, sp);
}

/* With the stack pointer of a signal handler on its own stack: where what was interrupted has its own, which is to be copied too; else
 * or if that cannot be found 0. What the kernel puts there first is struct _fpstate with all that belongs to it, and below it struct
 * rt_sigframe, which takes 456 bytes with what aligns it, and says where that is: anything else that is there does not. */
__noinline __u64 interrupted(__u64 sp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 at = (task->sas_ss_sp + task->sas_ss_size - config.saved_registers) & ~63ULL, said = 0;

	if (!on_signal_stack(task, sp) || bpf_probe_read_user(&said, sizeof(said), (void *)(at - 224)) || said != at ||
	    bpf_probe_read_user(&sp, sizeof(sp), (void *)(at - 288)))
		return 0;
	return (sp - RED_ZONE) & ~7ULL;
}

/* Copies another part of the stack, from `from` on, behind the first, `offset` bytes into the scratch buffer, in `room` bytes at most.
 * Bytes it takes there. By itself for the sake of the verifier, too. */
__noinline long copy_beyond(__u32 cpu, __u64 offset, __u64 from, __u64 room)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 end, left = copies_end() - offset;
	long bytes;

	if (!from)
		return 0;
	if (left > room)
		left = room;
	/* What kernel stacks may take is room, too. */
	if (left > config.window)
		left = config.window;
	if (left <= sizeof(struct stack_part))
		return 0;
	end = from + ((left - sizeof(struct stack_part)) & ~7ULL);
	end = lower_end(end, task->thread.fsbase, from);
	end = lower_end(end, task->mm->start_stack, from);
	bytes = copy_pages(cpu, offset, from, end);
	return bytes > 0 ? bytes + sizeof(struct stack_part) : 0;
}

/* As src/record/unwind/usual.rs has them. */
#define USUAL_HASH 0x9e3779b97f4a7c15ULL

static __always_inline __u64 program_tag(__u32 tgid, __u32 exec_id)
{
	return (tgid * 0x9e3779b1U + exec_id * 0x85ebca77U) >> (32 - (64 - ADDRESS_BITS));
}

#define CHAIN_BYTES (CHAIN_FRAMES * sizeof(__u64))
#define CHAIN_MOST (sizeof(struct chain) + CHAIN_BYTES + sizeof(struct stack_part))

/* Where a chain is made: behind all else in the scratch buffer, what walked stacks and the page of copy_pages may take included. Then
 * comes its length. */
static __always_inline __u64 chain_place(void)
{
	return copies_end() + config.max_user * sizeof(__u64) + PAGE;
}

/* Follows frame pointers through the copy whose struct user_copy begins `offset` bytes into the scratch buffer, for as long as they
 * lead through code that is known to keep them, `tag` being that of its program, and takes out of it what is not needed for this.
 * Bytes of what there is then behind the struct; 0 when it is as it was. By itself for the sake of the verifier, too: each step is
 * looked at once, as what lives on from it to the next is any number. */
__noinline long shorten(__u32 cpu, __u64 offset, __u64 tag)
{
	__u32 zero = 0, i;
	__u64 from, bytes, frame, next, ip, key, slot, at, place, by, count, last = 0, after = 0, size, top;
	__u64 base = offset + sizeof(struct user_copy);
	void *head = bpf_map_lookup_elem(&scratch, &cpu);
	const struct usual *known = bpf_map_lookup_elem(&usual, &zero);
	volatile struct user_copy *copy;
	volatile __u64 *frames, *found;
	struct chain *chain;
	struct stack_part *tail;

	barrier_var(offset);
	if (!config.chains || !config.window || !head || !known || offset > copies_end() - sizeof(*copy))
		return 0;
	copy = head + offset;
	from = copy->top.from;
	bytes = copy->top.bytes;
	frame = copy->regs.bp;
	if (bytes < CHAIN_FROM || frame < copy->regs.sp || frame & 7)
		return 0;
	frames = head + chain_place();
	/* How many. In memory, and written where the loop is left: the verifier need not tell these ways apart. */
	found = frames + CHAIN_FRAMES;
	tag <<= ADDRESS_BITS;
#pragma clang loop unroll(disable)
	for (i = 0;; i++) {
		at = frame - from;
		place = base + at;
		barrier_var(place);
		if (i == CHAIN_FRAMES || at > bytes - 16 || place > copies_end() - 16) {
			*found = i;
			break;
		}
		next = *(__u64 *)(head + place);
		ip = *(__u64 *)(head + place + 8);
		if (ip >> ADDRESS_BITS) {
			*found = i;
			break;
		}
		last = frame;
		after = next;
		by = next - frame;
		/* Up, by words, and by less than all of it. */
		if (by & 7 || by - 16 >= LARGEST_WINDOW - 16) {
			frames[i] = ip;
			*found = i + 1;
			break;
		}
		frames[i] = ip | by << (CHAIN_BITS - 3);
		key = ip | tag;
		slot = key * USUAL_HASH >> (64 - USUAL_BITS);
		if (known->keys[slot] != key && known->keys[slot ^ 1] != key) {
			*found = i + 1;
			break;
		}
		frame = next;
	}
	count = *found;
	frame = copy->regs.bp;
	top = frame + 16 - from;
	/* What lies above the last. */
	at = last + 16 - from;
	size = bytes - at;
	/* More than a page would have to be copied in steps. The chain does not reach up to there. */
	if (count < CHAIN_WORTH || at > bytes || size > PAGE ||
	    at < top + sizeof(*chain) + count * sizeof(__u64) + sizeof(*tail) + CHAIN_SAVES)
		return 0;
	place = base + top;
	barrier_var(place);
	if (place > copies_end() - CHAIN_MOST)
		return 0;
	chain = head + place;
	chain->first = frame;
	chain->next = after;
	chain->count = count;
	count *= sizeof(__u64);
	barrier_var(count);
	if (count > CHAIN_BYTES || bpf_probe_read_kernel(chain + 1, count, (void *)frames))
		return -1;
	place += sizeof(*chain) + count;
	barrier_var(place);
	if (place > copies_end() - sizeof(*tail))
		return -1;
	tail = head + place;
	place = base + at;
	barrier_var(place);
	barrier_var(size);
	/* Downwards, which this does word by word. */
	if (place > copies_end() || size > PAGE || bpf_probe_read_kernel(tail + 1, size, head + place))
		return -1;
	tail->from = from + at;
	tail->bytes = size;
	copy->top.bytes = top;
	return top + sizeof(*chain) + count + sizeof(*tail) + size;
}

/* Copies registers and the stack's used top to `copy`, `offset` bytes into the scratch buffer, `room` bytes of it at most. Bytes
 * of the stack; negative when it must be walked instead. Adds to `flags` what is to be told of it, and sets `walks` when it is to be
 * walked as well. */
static __always_inline long copy_user(struct bpf_perf_event_data *ctx, struct user_copy *copy, __u64 offset, __u32 in_kernel,
				      __u64 tag, __u64 room, __u32 *flags, __u32 *walks)
{
	__u64 from, end, sp, len, taken, window = config.window, beyond = 0, other;
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), cpu = bpf_get_smp_processor_id();
	struct window *known;
	long more;

	if (in_kernel) {
		if (bpf_probe_read_kernel(&copy->regs, sizeof(copy->regs), (void *)bpf_task_pt_regs(bpf_get_current_task_btf())))
			return -1;
	} else {
		copy->regs = ctx->regs;
	}
	if (REGS_IN_KERNEL(&copy->regs) || REGS_32_BIT(&copy->regs))
		return -1;
	sp = copy->regs.sp;
	from = (sp - RED_ZONE) & ~7ULL;
	known = bpf_map_lookup_elem(&windows, &tid);
	if (known) {
		window = known->bytes & ~7;
		beyond = known->beyond & ~7ULL;
		if (known->also_walk)
			*walks = 1;
	}
	end = copy_end(sp, window, room);
	if (end == from + (room & ~7ULL))
		*flags |= SAMPLE_LESS;
	if (config.may_walk && (*flags & SAMPLE_LESS || end == from + window))
		*walks = 1;
	len = end - from;
	barrier_var(len);
	if (len > config.window)
		len = config.window;
	copy->top.from = from;
	copy->top.bytes = len;
	if (bpf_probe_read_user(copy + 1, len, (void *)from)) {
		/* Some page of it is not there. */
		more = copy_pages(cpu, offset + sizeof(copy->regs), from, end);
		if (more < 0)
			return more;
		len = more;
	}
	taken = len;
	if (config.chains && len >= CHAIN_FROM) {
		more = shorten(cpu, offset, tag);
		if (more < 0)
			return more;
		if (more > 0) {
			taken = more;
			*flags |= SAMPLE_CHAIN;
		}
	}
	other = interrupted(sp);
	if (other)
		beyond = other;
	else if (beyond < from + len)
		return taken;
	return taken + copy_beyond(cpu, offset + sizeof(*copy) + taken, beyond, room - len);
}
#endif

/* Whether a record of so many bytes is the one that fills a ring, in which some wait, up to a mark. */
static __always_inline int passes(__u64 mark, __u64 waiting, __u64 bytes)
{
	return waiting < mark && waiting + ((bytes + RECORD_HEAD + 7) & ~7ULL) >= mark;
}

static __always_inline void take(struct bpf_perf_event_data *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct task_struct *task = (void *)bpf_get_current_task();
	__u32 cpu = bpf_get_smp_processor_id();
	__u32 in_kernel = REGS_IN_KERNEL(&ctx->regs);
	struct sample_head *head;
	__u32 flags = 0, kernel_frames = 0, counts_for = weight ?: 1, walks = 0;
	__u64 start, waiting, bytes = sizeof(*head);
	__u64 max_kernel = config.max_kernel * sizeof(__u64), max_user = config.max_user * sizeof(__u64);
	long size;
	void *ring;

	start = BPF_CORE_READ(task, group_leader, start_boottime);
	if (!wanted(task, pid_tgid >> 32, start)) {
		count(COUNT_FILTERED);
		return;
	}
	head = bpf_map_lookup_elem(&scratch, &cpu);
	ring = bpf_map_lookup_elem(&rings, &cpu);
	if (!head || !ring) {
		add(COUNT_SCRATCH, counts_for);
		return;
	}

	if (BPF_CORE_READ(task, flags) & PF_KTHREAD || (__u32)pid_tgid == 0)
		flags |= SAMPLE_KTHREAD;
	if (in_kernel) {
		flags |= SAMPLE_IN_KERNEL;
		if (bpf_core_field_exists(task->in_execve) && BPF_CORE_READ_BITFIELD_PROBED(task, in_execve))
			flags |= SAMPLE_IN_EXEC;
		if (!BPF_CORE_READ(task, mm))
			flags |= SAMPLE_EXITING;
	}
	waiting = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);
	if (waiting >= config.short_bytes) {
		flags |= SAMPLE_SHORT;
		if (max_kernel > SHORT_FRAMES * sizeof(__u64))
			max_kernel = SHORT_FRAMES * sizeof(__u64);
		if (max_user > SHORT_FRAMES * sizeof(__u64))
			max_user = SHORT_FRAMES * sizeof(__u64);
	}
	head->time = bpf_ktime_get_boot_ns();
	head->start_time = start;
	head->cgroup_id = bpf_get_current_cgroup_id();
	head->tgid = pid_tgid >> 32;
	head->tid = (__u32)pid_tgid;
	head->exec_id = (__u32)BPF_CORE_READ(task, self_exec_id);
	head->cpu = cpu;
	head->flags = flags | counts_for << WEIGHT_SHIFT;
	bpf_get_current_comm(head->comm, sizeof(head->comm));

	head->kernel_frames = 0;
	if (in_kernel) {
		size = bpf_get_stack(ctx, (void *)head + sizeof(*head), max_kernel, 0);
		if (size < 0) {
			head->kernel_frames = -1;
		} else {
			/* The verifier cannot see the helper's own bound. */
			if ((__u64)size > max_kernel)
				size = max_kernel;
			kernel_frames = size / sizeof(__u64);
			head->kernel_frames = kernel_frames;
			bytes += size;
		}
	}
	if ((__u32)pid_tgid == 0 && config.skip_idle && idle((void *)head + sizeof(*head), kernel_frames)) {
		add(COUNT_IDLE, counts_for);
		return;
	}
	head->user_frames = 0;
#if defined(__TARGET_ARCH_x86)
	if (config.window && !(flags & (SAMPLE_KTHREAD | SAMPLE_EXITING))) {
		__u64 room = flags & SAMPLE_SHORT ? SHORT_WINDOW : (config.ring_bytes - waiting) / ROOM_SHARE;

		/* Any number to the verifier, as in copy_pages. */
		flags = *(volatile enum sample_flag *)&head->flags & FLAGS;
		size = copy_user(ctx, (void *)head + bytes, bytes, in_kernel,
				 program_tag(pid_tgid >> 32, head->exec_id), room, &flags, &walks);
		if (size >= 0) {
			if ((__u64)size > config.window)
				size = config.window;
			flags |= SAMPLE_COPIED;
			head->flags = flags | counts_for << WEIGHT_SHIFT;
			head->user_frames = size / sizeof(__u64);
			bytes += sizeof(struct user_copy) + size;
		}
	}
#endif
	if (!(flags & SAMPLE_KTHREAD) && (!(flags & SAMPLE_COPIED) || walks)) {
		size = bpf_get_stack(ctx, (void *)head + bytes, max_user, BPF_F_USER_STACK);
		if (size >= 0) {
			if ((__u64)size > max_user)
				size = max_user;
			bytes += size;
		}
		if (!(flags & SAMPLE_COPIED))
			head->user_frames = size < 0 ? -1 : (__u64)size / sizeof(__u64);
	}

	/* Wake the recorder by the sample that fills the ring past the mark, and once more by that which fills half of what is then
	 * left. What the kernel adds to a record counts, too: a mark that is passed unseen wakes nobody. */
	if (bpf_ringbuf_output(ring, head, bytes,
			       passes(config.wake_bytes, waiting, bytes) ||
					       passes((config.wake_bytes + config.ring_bytes) / 2, waiting, bytes)
				       ? BPF_RB_FORCE_WAKEUP
				       : BPF_RB_NO_WAKEUP))
		add(COUNT_RING_FULL, counts_for);
	else
		add(COUNT_SAMPLES, counts_for);
}

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	__u64 began = config.measured ? bpf_ktime_get_ns() : 0;

	take(ctx);
	if (config.measured)
		add(COUNT_TIME, bpf_ktime_get_ns() - began);
	return 0;
}

/* A process of the target starts another: that is of the target too. Events on the threads themselves, which the
 * kernel would pass on, begin a new period in each child: a process shorter than the period would never be sampled. */
SEC("raw_tp/sched_process_fork")
int follow_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (void *)ctx->args[0], *child = (void *)ctx->args[1];
	struct process from = process_of(parent), to;
	__u64 start;

	if (BPF_CORE_READ(child, tgid) == (int)from.tgid || !bpf_map_lookup_elem(&targets, &from))
		return 0;
	to = process_of(child);
	start = BPF_CORE_READ(child, start_boottime);
	if (bpf_map_update_elem(&targets, &to, &start, BPF_ANY))
		count(COUNT_NOT_FOLLOWED);
	return 0;
}

/* The last of a process is gone. Until then what it does at its end is sampled too. */
SEC("raw_tp/sched_process_free")
int forget(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];

	if (BPF_CORE_READ(task, pid) == BPF_CORE_READ(task, tgid)) {
		struct process process = process_of(task);
		__u64 *start = bpf_map_lookup_elem(&targets, &process);

		if (start && (*start == 0 || *start == BPF_CORE_READ(task, start_boottime)))
			bpf_map_delete_elem(&targets, &process);
	}
	return 0;
}

/* A step of a CPU that comes or goes is done. Arguments: CPU, state, step, result. */
SEC("raw_tp/cpuhp_exit")
int cpu_changed(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 cpu = ctx->args[0];
	__u64 *changes;

	if (!bpf_core_enum_value_exists(enum cpuhp_state, CPUHP_AP_PERF_ONLINE) ||
	    (int)ctx->args[2] != (int)bpf_core_enum_value(enum cpuhp_state, CPUHP_AP_PERF_ONLINE))
		return 0;
	changes = bpf_map_lookup_elem(&changes_of_cpu, &cpu);
	if (changes)
		__sync_fetch_and_add(changes, 1);
	__sync_fetch_and_add(&cpu_changes, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
