// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Which threads wait for a CPU, for how long, and behind which processes: everything from one hook,
 * sched_switch.
 *
 * The kernel already keeps what a wake-up hook would measure: sched_info.last_queued is the time at
 * which the thread was put on this run queue, sched_info.run_delay includes the waits on queues
 * that it was moved away from. rq->clock was updated by __schedule() just before, so it serves as
 * the current time, except for threads that get the CPU right at their wake-up (clock_of). The path
 * of an ordinary switch calls no helpers except array look-ups, which are inlined.
 *
 * Serialisation: a thread's slot and its CPU's area are written only under that CPU's run-queue
 * lock.
 */
#include "kern_net.h"
#include "kern_sys.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "sched.h"
#include "read.bpf.h"
#include "fd.bpf.h"

#define NO_SLOT    (~0U)
#define PROBES     4
#define EXACT_RUNS 8
#define POINTS     4
/* At most one sampled look-up per 50 us: at 400 ns each, less than 1 % of a CPU at any load. */
#define LONG_BLAME_NS 50000

/* Set by the loader from facts about this kernel and host. */
const volatile __u32 thread_mask = 16384 - 1;
const volatile bool cgroup_v2; /* take cgroup ids from the v2 hierarchy */
/* Distance from a CPU's run queue to its pressure-stall account in memory; 0 = not known. */
const volatile __s64 pressure_minus_rq;
/* The reader may report waits of at least this length while they are in progress. */
const volatile __u64 long_wait_ns = 10000000;

const volatile bool tells_sleeps; /* of watched threads; if not, no program has code for it */

/* The reader's current interval, one second long; it reads an epoch's data after it ended. */
__u32 epoch = 1;

/*
 * Start of the window, on the run queues' clock. Of waits that began earlier, only the part within
 * the window counts: otherwise their lengths and their blame would exceed the queued time.
 */
__u64 window_start_ns;

/* Time on that clock up to which the iterator reports waiting threads. */
__u64 asked_ns;

/* Moves of sleeping threads between run queues, which hide their wake-ups from sched_info. */
__u64 moves_asleep = 0;

/*
 * Whether any cgroup of the host has a CPU quota, as last seen by the reader. Without a quota the
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
	__type(value, struct sched_reported);
} reported_waits SEC(".maps");

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

/* Blame that does not fit into a thread's CULPRITS entries: (victim, culprit) -> ns. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct sched_spill_key);
	__type(value, __u64);
} spill SEC(".maps");

/* Zeroes to initialise an overflow entry with: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sched_overflow);
} blank SEC(".maps");

#include "sched_kernel.bpf.h"
#include "sched_clock.bpf.h"
#include "sched_watch.bpf.h"
#include "sched_table.bpf.h"
#include "sched_blame.bpf.h"
#include "sched_move.bpf.h"
#include "sched_leave.bpf.h"
#include "sched_arrive.bpf.h"
#include "sched_waiting.bpf.h"
#include "sched_slept_on.bpf.h"
#include "sched_sleep.bpf.h"
#include "sched_wakeup.bpf.h"

/* --- the CPU's own account --- */

/*
 * The thread that was last seen to get this CPU left it, and no switch was reported. Some kernels
 * run no tracing programs in the context of some processes: the reader finds out which threads are
 * never seen to leave.
 */
static __always_inline void count_left_unseen(struct sched_area *area)
{
	__u32 slot = area->cpu.slot;
	struct sched_thread *t = bpf_map_lookup_elem(&threads, &slot);

	/* Atomic: the thread may be on another CPU by now, under another lock. The reader reads the
	 * sum first. */
	if (t && t->tid == area->cpu.tid)
		__sync_fetch_and_add(&t->left_unseen, 1);
	area->cpu.lost.switches_missed++;
}

/*
 * The current run on this CPU began unseen: ends the run before it. Returns when the current one
 * began. The kernel knows that time, except for the idle task: a thread that nothing waited behind
 * most likely ran only briefly, so it is taken to have run for no time, and the CPU to have idled.
 */
static __noinline __u64 began_unseen(struct sched_area *area, struct task_struct *prev, __u64 now)
{
	struct sched_run *run = &area->run[area->cpu.head & (RUNS - 1)];
	__u64 since = area->cpu.since_ns, arrival = prev->pid ? prev->sched_info.last_arrival : 0;

	/*
	 * Not a missed switch but an exec by a thread other than the leader: it continues under the
	 * leader's id. last_arrival is the run queue's clock, which may lag behind (clock_of).
	 */
	if (!since || (prev->pid && arrival <= since))
		return since;
	/* Before the first switch here, the hook may not have been attached yet. */
	if (area->cpu.head)
		count_left_unseen(area);
	if (arrival > since && arrival <= now) {
		run->end_ns = arrival;
		run->waited = area->cpu.waited;
		run->tid = area->cpu.tid;
		run->tgid = area->cpu.tgid;
		barrier();
		area->cpu.head++;
		since = arrival;
	}
	area->cpu.waited = 0;
	return since;
}

/*
 * Records the end of the current run, which begins an update of the CPU's amounts. Returns when
 * that run began.
 */
static __always_inline __u64 end_run(struct sched_area *area, struct task_struct *prev, __u64 now)
{
	__u64 since = area->cpu.since_ns, began = since;
	struct sched_run *run;

	if (unlikely(area->cpu.tid != (__u32)prev->pid))
		began = began_unseen(area, prev, now);
	run = &area->run[area->cpu.head & (RUNS - 1)];
	run->end_ns = now;
	run->waited = area->cpu.waited;
	run->tid = prev->pid;
	run->tgid = prev->tgid;
	barrier();
	area->cpu.head++;
	barrier();
	if (likely(since) && prev->pid)
		area->cpu.busy_ns += now - since;
	return began;
}

static __always_inline int on_switch(unsigned long long *ctx, bool state_told, bool atomic)
{
	struct task_struct *prev = task_arg(ctx, PREV), *next = task_arg(ctx, NEXT);
	__u32 slot = cpu_of(prev), tid = prev->pid;
	struct sched_area *area = bpf_map_lookup_elem(&areas, &slot);
	struct rq *rq = next->se.cfs_rq->rq;
	__u64 clock = rq->clock, now = clock, began, waited = 0, local = 0;
	/* Loaded here and not where it is needed: for each path on which the verifier reaches a
	 * load of a pointer from a task, it searches all kernel types by name. */
	__u64 cgroup_set = (__u64)prev->cgroups;
	struct sched_thread *t;

	if (unlikely(!area))
		return 0;
	area->cpu.id = slot;
	if (next->sched_info.last_queued == clock && area->cpu.compared_ns)
		now = clock_of(area, rq, clock, !tid || has_slept(ctx, state_told));
	if (unlikely(now < area->cpu.since_ns)) {
		area->cpu.lost.clock_backward += area->cpu.since_ns - now > CLOCKS_DIFFER_NS;
		now = area->cpu.since_ns;
	}
	began = end_run(area, prev, now);
	area->cpu.since_ns = now;
	now = forgotten(&area->cpu.since_ns);

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

	now = forgotten(&area->cpu.since_ns);
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
	area->cpu.waited = waited;
	waited = forgotten(&area->cpu.waited);
	if (waited)
		count_wait(area, slot, waited, local, now - local >= began,
			   task_arg(ctx, PREV)->tgid);
	/* Through memory: the verifier is not to follow both values through all of the above. */
	if (unlikely(area->cpu.wait_throttled_ns)) {
		area->cpu.waited = with_throttled(area->cpu.waited, area->cpu.wait_throttled_ns);
		area->cpu.wait_throttled_ns = 0;
	}
	if (tells_sleeps && area->cpu.scratch.slept_ns)
		slept(area, task_arg(ctx, NEXT));
	if (unlikely(clock - area->cpu.compared_ns > COMPARE_EACH_NS))
		compare_clocks(area, clock, bpf_ktime_get_ns() - clock, now == clock);
	barrier();
	area->cpu.done = area->cpu.head;
	return 0;
}

/* From 5.18 ("sched/tracing: Append prev_state to tp args instead"); these kernels have BPF
 * atomics. */
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

/*
 * The thread has that CPU since `since`, before the hook is attached: a CPU that one thread keeps
 * for seconds is then known before it switches.
 */
static __always_inline void has_cpu(struct sched_thread *t, __u32 cpu, __u32 slot, __u64 since)
{
	struct sched_area *area = bpf_map_lookup_elem(&areas, &cpu);

	if (!area)
		return;
	area->cpu.id = t->cpu = cpu;
	area->cpu.tid = t->tid;
	area->cpu.tgid = t->tgid;
	area->cpu.slot = slot;
	area->cpu.since_ns = since;
}

/* Runs once over all threads before the hook is attached, so that the state of sleeping threads is
 * known, and who has which CPU. */
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
	if (t->state == ST_ON_CPU)
		has_cpu(t, cpu_of(task), slot, now);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
