// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who waits for a CPU, for how long, and behind whom: everything from one hook, sched_switch.
 *
 * The kernel keeps what a wake-up hook would measure: sched_info.last_queued is when the thread was
 * put on this run queue, sched_info.run_delay grows by the waiting on queues that it was moved away
 * from. rq->clock was brought up to date by __schedule() just before, so it serves as the time, but
 * for threads that go first at once (clock_of). No helper is called on the way of an ordinary
 * switch except array look-ups, which are inlined.
 *
 * Serialisation: a thread's slot and its CPU's area are written under that CPU's run-queue lock
 * only.
 */
#include "kern.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "sched.h"
#include "read.bpf.h"

#define NO_SLOT    (~0U)
#define PROBES     4
#define EXACT_RUNS 8
#define POINTS     4
/* One long look-up each 50 us: at 400 ns it stays below 1 % of a CPU, whatever the load. */
#define LONG_BLAME_NS 50000

#define barrier() asm volatile("" ::: "memory")

/* Decided by the loader from facts about this kernel and host. */
const volatile __u32 thread_mask = 16384 - 1;
const volatile bool cgroup_v2;   /* take cgroup ids from the v2 tree */
const volatile bool wakeup_hook; /* on_wakeup is attached */
/* The reader may tell of waits of this length while they are in progress. */
const volatile __u64 long_wait_ns = 10000000;

/* Seconds of the reader; it reads what belongs to an epoch after it ended. */
__u32 epoch = 1;

/*
 * On the run queues' clock. Of waits that began before the window, the part in it counts: else
 * their sizes and the blame for them would be more than the time that was queued.
 */
__u64 window_start_ns;

/* Up to which moment of that clock the iterator over waiting threads tells of them. */
__u64 asked_ns;

/* Moves of threads while they slept, which hide their wake-ups from what the kernel keeps. */
__u64 moves_asleep = 0;

/*
 * Whether any cgroup of the host has a CPU quota, as the reader saw it last. Without one the
 * throttle clocks stand still and are not read.
 */
__u32 quota_in_use = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct sched_thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct sched_waits);
} waits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct sched_told);
} tolds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct sched_move);
} moves SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sched_area);
} areas SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__type(value, struct sched_overflow);
} overflow SEC(".maps");

/* Blame beyond the CULPRITS of a thread: (victim, culprit) -> ns. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct sched_spill_key);
	__type(value, __u64);
} spill SEC(".maps");

/* Zeroes to start an overflow entry with: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sched_overflow);
} blank SEC(".maps");

#include "sched_kernel.bpf.h"
#include "sched_clock.bpf.h"
#include "sched_table.bpf.h"
#include "sched_blame.bpf.h"
#include "sched_move.bpf.h"
#include "sched_leave.bpf.h"
#include "sched_arrive.bpf.h"
#include "sched_waiting.bpf.h"
#include "sched_wakeup.bpf.h"

/* --- the CPU's own account --- */

/*
 * The thread that was last seen to get this CPU has left it, and no switch told of it. There are
 * kernels that tell nothing of what is done in the context of some processes: which threads are
 * never seen to leave is the reader's to judge.
 */
static __always_inline void count_left_unseen(struct sched_area *area)
{
	__u32 slot = area->cpu.slot;
	struct sched_thread *t = bpf_map_lookup_elem(&threads, &slot);

	/* It may be on another CPU by now, whose lock is not ours. The reader reads the sum first.
	 */
	if (t && t->tid == area->cpu.tid)
		__sync_fetch_and_add(&t->left_unseen, 1);
	area->cpu.lost.switches_missed++;
}

/*
 * The last stay on this CPU began without our knowing: notes the one before. Returns when it began,
 * which the kernel knows, but for idling: a thread that nobody waited behind ran for a short time,
 * most likely, and the CPU idled for the rest.
 */
static __noinline __u64 began_unseen(struct sched_area *area, struct task_struct *prev, __u64 now)
{
	struct sched_run *run = &area->run[area->cpu.head & (RUNS - 1)];
	__u64 since = area->cpu.since_ns, arrival = prev->pid ? prev->sched_info.last_arrival : 0;

	/*
	 * An exec by a thread that was not the leader: it goes on under the leader's id. Its
	 * arrival is what the run queue's clock showed, which may be late (clock_of).
	 */
	if (!since || (prev->pid && arrival <= since))
		return since;
	count_left_unseen(area);
	if (arrival > since && arrival <= now) {
		run->end_ns = arrival;
		run->queued_ns = area->cpu.queued_ns;
		run->tid = area->cpu.tid;
		run->tgid = area->cpu.tgid;
		barrier();
		area->cpu.head++;
		since = arrival;
	}
	area->cpu.queued_ns = 0;
	return since;
}

/*
 * Notes that the thread that had the CPU leaves it, which begins a change of the CPU's amounts.
 * Returns since when it had it.
 */
static __always_inline __u64 end_run(struct sched_area *area, struct task_struct *prev, __u64 now)
{
	__u64 since = area->cpu.since_ns, began = since;
	struct sched_run *run;

	if (unlikely(area->cpu.tid != (__u32)prev->pid))
		began = began_unseen(area, prev, now);
	run = &area->run[area->cpu.head & (RUNS - 1)];
	run->end_ns = now;
	run->queued_ns = area->cpu.queued_ns;
	run->tid = prev->pid;
	run->tgid = prev->tgid;
	barrier();
	area->cpu.head++;
	barrier();
	if (likely(since))
		*(prev->pid ? &area->cpu.busy_ns : &area->cpu.idle_ns) += now - since;
	return began;
}

static __always_inline int on_switch(unsigned long long *ctx, bool state_told, bool atomic)
{
	struct task_struct *prev = task_arg(ctx, PREV), *next = task_arg(ctx, NEXT);
	__u32 slot = cpu_of(prev), tid = prev->pid;
	struct sched_area *area = bpf_map_lookup_elem(&areas, &slot);
	__u64 clock = next->se.cfs_rq->rq->clock, now = clock, began, waited = 0, local = 0;
	/* Loaded here and not where it is needed: for each way by which the verifier comes to the
	 * load of a pointer from a task, it searches all types of the kernel by name. */
	__u64 cgroup_set = (__u64)prev->cgroups;
	struct sched_thread *t;

	if (unlikely(!area))
		return 0;
	area->cpu.id = slot;
	if (next->sched_info.last_queued == clock && area->cpu.compared_ns)
		now = clock_of(area, clock);
	if (unlikely(now < area->cpu.since_ns)) {
		area->cpu.lost.clock_backward += area->cpu.since_ns - now > CLOCKS_DIFFER_NS;
		now = area->cpu.since_ns;
	}
	began = end_run(area, prev, now);
	area->cpu.since_ns = now;

	if (tid) {
		slot = area->cpu.slot;
		t = bpf_map_lookup_elem(&threads, &slot);
		if (unlikely(!t || t->tid != tid || t->state == ST_DEAD))
			t = atomic ? find_leaving_atomic(area, t, task_arg(ctx, PREV), now)
				   : find_leaving_plain(area, t, task_arg(ctx, PREV), now);
		if (likely(t))
			switch_out(area, t, ctx,
				   state_told ? arg(ctx, PREV_STATE)
					      : state_of(task_arg(ctx, PREV)),
				   cgroup_set, now);
	}

	slot = NO_SLOT;
	next = task_arg(ctx, NEXT);
	tid = next->pid;
	area->cpu.tid = tid;
	area->cpu.tgid = next->tgid;
	if (tid) {
		slot = tid & thread_mask;
		t = bpf_map_lookup_elem(&threads, &slot);
		if (unlikely(!t || t->tid != tid || t->state == ST_DEAD))
			t = atomic ? find_arriving_atomic(area, next, now, &slot)
				   : find_arriving_plain(area, next, now, &slot);
		if (likely(t))
			waited = switch_in(area, t, ctx, clock, now, &local);
		else
			area->cpu.lost.thread_table_full++;
	}
	area->cpu.slot = slot;
	area->cpu.queued_ns = waited;
	if (waited)
		count_wait(area, slot, waited, local, now - local >= began,
			   task_arg(ctx, PREV)->tgid);
	if (unlikely(clock - area->cpu.compared_ns > COMPARE_EACH_NS))
		compare_clocks(area, clock, bpf_ktime_get_ns() - clock, now == clock);
	barrier();
	area->cpu.done = area->cpu.head;
	return 0;
}

/* From 5.18 ("sched/tracing: Append prev_state to tp args instead"); these kernels have atomics in
 * BPF. */
SEC("tp_btf/sched_switch")
int on_switch_4(unsigned long long *ctx)
{
	return on_switch(ctx, true, true);
}

SEC("tp_btf/sched_switch")
int on_switch_3(unsigned long long *ctx)
{
	return on_switch(ctx, false, false);
}

/* Run once over all threads before the hook is attached, so that the state of those that sleep is
 * known. */
SEC("iter/task")
int on_task(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct cfs_rq *queue;
	struct sched_thread *t;
	__u32 slot, cpu_id = 0;
	struct sched_area *area = bpf_map_lookup_elem(&areas, &cpu_id);
	unsigned int state;
	__u64 now;

	if (!area || !task || !task->pid)
		return 0;
	queue = task->se.cfs_rq;
	if (!queue)
		return 0;
	now = queue->rq->clock;
	t = claim(area, task, now, ST_UNKNOWN, false, &slot);
	if (!t)
		return 0;
	state = state_of(task);
	t->state = !state && task->on_cpu ? ST_ON_CPU : off_cpu_state(task, false, state);
	t->run_delay_ns = task->sched_info.run_delay;
	t->throttle_clock_ns = throttle_clock(queue, queue->rq, now);
	t->throttle_queue = (__u64)queue;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
