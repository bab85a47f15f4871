// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * In what functions watched threads go to sleep, and in what functions those are that wake them.
 *
 * A stack can only be read while its thread runs, so it is decided at the beginning of a sleep
 * whether it is looked at, before its length is known. The decision is made by chance, with a
 * probability that depends on what was before: the sleep that is looked at stands for `weight`
 * sleeps, whatever their lengths are.
 *
 * The kernel's part of a stack costs as much again, and says nothing of a sleep that the call
 * explains: it is read where the thread waits for the kernel itself.
 */
#include "kern_sys.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "sched.h"
#include "stacks.h"
#include "read.bpf.h"
#include "current.bpf.h"
#include "stack.bpf.h"

/* Set by the loader: size of the scheduler probe's table of watched threads, a power of two, - 1.
 */
const volatile __u32 thread_mask = 16384 - 1;
/* Set by the loader: number of the call that drivers define. */
const volatile __s32 ioctl_call = -1;

#include "task.bpf.h"
#include "watch.bpf.h"
#include "call.bpf.h"
#include "context.bpf.h"

/*
 * In each slot of time, 134 ms, so many sleeps of a thread at one place are all looked at, of as
 * many further ones every second one, and so on: a rare long sleep beside many short ones is looked
 * at, if it is another call or another depth of the stack. In the same way all sleeps on a CPU
 * share a number of stacks. Slots of a second would begin with more than the log has room for.
 */
#define OF_PLACE 16
#define OF_CPU   192
#define SLOT(ns) ((ns) >> 27)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct stacks_sleeper);
} sleepers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STACK_ENTRIES);
	__type(key, __u32);
	__type(value, struct stacks_entry);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stacks_cpu);
} cpus SEC(".maps");

/* What is known of a watched thread's sleep; 0 = it is not watched. */
static __always_inline struct stacks_sleeper *sleeper_of(__u32 tid)
{
	struct sched_watch *w = watch_of(tid);
	__u32 place = tid & thread_mask;

	if (likely(!w))
		return 0;
	if (w != bpf_map_lookup_elem(&watches, &place))
		place = second_place(tid);
	return bpf_map_lookup_elem(&sleepers, &place);
}

static __always_inline struct stacks_entry *next_entry(struct stacks_cpu *cpu, __u32 number)
{
	__u32 place = number * STACK_ENTRIES + cpu->written % STACK_ENTRIES;

	return bpf_map_lookup_elem(&entries, &place);
}

/* Notes who this CPU runs, and in what call. Returns the flags of that thread. */
static __always_inline __u32 note_thread(struct stacks_cpu *cpu, struct stacks_entry *entry)
{
	__u64 current = bpf_get_current_task(), regs = 0;
	__u32 flags = NOTE_CURRENT(&cpu->cell, entry);

	entry->call = call_in(&cpu->cell, current, &regs);
	entry->address = entry->call >= 0 ? first_argument(regs) : 0;
	return flags;
}

/* Notes the stack of the thread that this CPU runs. */
static __always_inline void note_stack(void *ctx, struct stacks_entry *entry, __u32 parts)
{
	entry->frames =
		frames(bpf_get_stack(ctx, entry->user, sizeof(entry->user), BPF_F_USER_STACK));
	entry->kernel_frames = 0;
	if (parts == STACK_WITH_KERNEL)
		entry->kernel_frames =
			frames(bpf_get_stack(ctx, entry->kernel, sizeof(entry->kernel), 0));
}

/* A call that a signal may end says itself what it waits for, but for those of drivers. */
static __always_inline __u32 parts_of(__u32 state, __s16 call)
{
	return (state & TASK_UNINTERRUPTIBLE) || call < 0 || call == ioctl_call ? STACK_WITH_KERNEL
										: STACK_OF_PROGRAM;
}

/* Where the thread goes to sleep, by its call and the depth of its stack. */
static __always_inline __u32 place_of(struct stacks_cpu *cpu, __u64 task)
{
	__u64 regs = 0;
	__s64 call = call_in(&cpu->cell, task, &regs);
	__u64 mixed = (__u32)call + (regs ? stack_pointer(regs) >> 4 : 0);

	return ((__u32)mixed * 0x9e3779b1U) >> 16 & (STACK_PLACES - 1);
}

/* How many sleeps the one that begins stands for; 0 = it is not looked at. */
static __always_inline __u32 weight_of(struct stacks_sleeper *s, struct stacks_cpu *cpu,
				       __u32 place, __u64 now)
{
	__u32 one_in;

	if (s->slot != SLOT(now)) {
		s->slot = SLOT(now);
		__builtin_memset(s->sleeps, 0, sizeof(s->sleeps));
	}
	if (cpu->slot != SLOT(now)) {
		cpu->slot = SLOT(now);
		cpu->taken = 0;
	}
	place &= STACK_PLACES - 1;
	one_in = (1 + s->sleeps[place] / OF_PLACE) * (1 + (__u32)cpu->taken / OF_CPU);
	if (s->sleeps[place] < 0xffff)
		s->sleeps[place]++;
	return bpf_get_prandom_u32() % one_in ? 0 : one_in;
}

SEC("tp_btf/sched_switch")
int on_sleep(unsigned long long *ctx)
{
	struct task_struct *prev = task_arg(ctx, PREV);
	__u32 number = bpf_get_smp_processor_id(), tid = prev->pid, state;
	struct stacks_sleeper *s;
	struct stacks_entry *entry;
	struct stacks_cpu *cpu;
	__u64 now;

	cpu = bpf_map_lookup_elem(&cpus, &number);
	if (!cpu)
		return 0;
	cpu->runs++;
	if (arg(ctx, PREEMPT))
		return 0;
	s = sleeper_of(tid);
	if (likely(!s))
		return 0;
	state = state_of(prev);
	if (!state)
		return 0;
	if (s->tid != tid) {
		s->tid = tid;
		s->slot = 0;
	}
	s->since_ns = 0;
	if (state & (TASK_DEAD | TASK_STOPPED_OR_TRACED | TASK_FROZEN))
		return 0;
	now = bpf_ktime_get_ns();
	s->weight = weight_of(s, cpu, place_of(cpu, bpf_get_current_task()), now);
	entry = next_entry(cpu, number);
	if (!s->weight || !entry)
		return 0;
	note_thread(cpu, entry);
	s->parts = parts_of(state, entry->call);
	note_stack(ctx, entry, s->parts);
	entry->since_ns = now;
	entry->slept_ns = 0;
	entry->sleeper = tid;
	entry->weight = s->weight;
	cpu->taken++;
	s->since_ns = now;
	barrier();
	cpu->written++;
	return 0;
}

/* In an interrupt the thread that this CPU runs is not the one that ends the sleep. */
static __always_inline bool is_by_thread(struct stacks_cpu *cpu)
{
	return bpf_get_current_pid_tgid() &&
	       context_at(queue_of_this_cpu(&cpu->cell), &cpu->cell) == CTX_TASK;
}

SEC("tp_btf/sched_waking")
int on_end(unsigned long long *ctx)
{
	struct task_struct *task = task_arg(ctx, 0);
	__u32 number = bpf_get_smp_processor_id(), tid = task->pid;
	struct stacks_sleeper *s;
	struct stacks_entry *entry;
	struct stacks_cpu *cpu;
	__u64 since, now;

	cpu = bpf_map_lookup_elem(&cpus, &number);
	if (!cpu)
		return 0;
	cpu->runs++;
	s = sleeper_of(tid);
	if (likely(!s) || s->tid != tid || !s->since_ns)
		return 0;
	since = s->since_ns;
	s->since_ns = 0;
	entry = next_entry(cpu, number);
	if (!entry)
		return 0;
	now = bpf_ktime_get_ns();
	entry->tgid = 0;
	if (is_by_thread(cpu)) {
		if (note_thread(cpu, entry) & PF_KTHREAD)
			entry->tgid = 0;
		else
			note_stack(ctx, entry, s->parts);
	}
	entry->since_ns = since;
	entry->slept_ns = now > since ? now - since : 1;
	entry->sleeper = tid;
	entry->weight = s->weight;
	barrier();
	cpu->written++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
