// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who waits for a CPU, for how long, and behind whom: everything from one hook, sched_switch.
 *
 * The kernel keeps what a wake-up hook would measure: sched_info.last_queued is when the thread was
 * put on this run queue, sched_info.run_delay grows by the waiting on queues that it was moved away
 * from. rq->clock was brought up to date by __schedule() just before, so it serves as the time. No
 * helper is called on the way of an ordinary switch except array look-ups, which are inlined.
 *
 * Serialisation: a thread's slot and its CPU's area are written under that CPU's run-queue lock
 * only.
 */
#include "kern.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "sched.h"

#define NO_SLOT    (~0U)
#define PROBES     4
#define EXACT_RUNS 8
#define POINTS     4
/* One long look-up each 50 us: at 400 ns it stays below 1 % of a CPU, whatever the load. */
#define LONG_BLAME_NS 50000
#define CLOCK_REFRESH 64

#define barrier() asm volatile("" ::: "memory")

/* Decided by the loader from facts about this kernel and host. */
const volatile __u32 thread_mask = 16384 - 1;
const volatile bool cgroup_v2;   /* take cgroup ids from the v2 tree */
const volatile bool wakeup_hook; /* on_wakeup is attached */

/* Seconds of the reader; it reads what belongs to an epoch after it ended. */
__u32 epoch = 1;

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
#include "sched_table.bpf.h"
#include "sched_blame.bpf.h"
#include "sched_wait.bpf.h"

/* --- leaving the CPU --- */

static __always_inline void switch_out(struct sched_thread *t, struct task_struct *prev,
				       bool preempt, unsigned int state, __u64 now)
{
	struct cfs_rq *queue = prev->se.cfs_rq;
	__u64 since = t->since_ns;

	t->seq++;
	barrier();
	if (now < since)
		since = now;
	if (t->state == ST_ON_CPU) {
		t->in_state_ns[ST_ON_CPU] += now - since;
	} else {
		/* Its arrival was missed: the kernel remembers it. */
		__u64 arrival = prev->sched_info.last_arrival;

		if (arrival < since || arrival > now)
			arrival = since;
		if (t->state < ST_MAX)
			t->in_state_ns[t->state & (ST_MAX - 1)] += arrival - since;
		t->in_state_ns[ST_ON_CPU] += now - arrival;
	}
	t->state = off_cpu_state(prev, preempt, state);
	t->since_ns = now;
	t->run_delay_ns = prev->sched_info.run_delay;
	/* A throttled thread shows a quota that the reader has not seen yet. */
	if (quota_in_use || t->state == ST_THROTTLED) {
		t->throttle_clock_ns = throttle_clock(queue, queue->rq, now);
		t->throttle_queue = (__u64)queue;
	} else {
		t->throttle_queue = 0;
	}
	if (t->cgroup_set != (__u64)prev->cgroups) {
		t->cgroup_set = (__u64)prev->cgroups;
		t->cgroup_id = cgroup_id_of(prev);
	}
	if (t->tid == t->tgid && comm_differs(t, prev))
		copy_comm(t, prev);
	if (t->state == ST_DEAD)
		t->dead_epoch = epoch;
	barrier();
	t->seq++;
}

/* --- getting the CPU --- */

static __always_inline void switch_in(struct sched_area *area, struct sched_thread *t,
				      struct task_struct *next, struct cfs_rq *queue, __u32 cpu_id,
				      __u64 now)
{
	__u64 off_cpu = now - t->since_ns;
	struct wait w;
	__u64 queued, counted;
	bool missed;

	if (now < t->since_ns)
		off_cpu = 0;
	w = wait_of(t, next, queue, now, off_cpu);
	queued = w.runnable_ns - w.throttled_ns;

	t->seq++;
	barrier();
	missed = t->state == ST_ON_CPU;
	if (missed)
		/* It left without our knowing: what it did since, waiting apart, stays
		 * unattributed. */
		area->cpu.lost.switches_missed++;
	else if (t->state < ST_MAX)
		t->in_state_ns[t->state & (ST_MAX - 1)] += off_cpu - w.runnable_ns;
	if (t->state == ST_BLOCK_IO)
		area->cpu.block_io_ns += off_cpu - w.runnable_ns;
	t->in_state_ns[ST_QUEUED] += queued;
	t->in_state_ns[ST_THROTTLED] += w.throttled_ns;
	area->cpu.scratch.local_ns = queued < w.here_ns ? queued : w.here_ns;
	area->cpu.scratch.was_off_ns = t->since_ns;
	area->cpu.scratch.was_cpu = t->state == ST_QUEUED && t->cpu != cpu_id ? t->cpu : NO_SLOT;
	/* After a missed switch only the last wait is known as one. */
	counted = missed ? area->cpu.scratch.local_ns : queued;
	if (counted > t->wait_max_ns)
		t->wait_max_ns = counted;
	t->state = ST_ON_CPU;
	t->since_ns = now;
	t->run_delay_ns =
		next->sched_info.run_delay + w.here_ns; /* what the kernel is about to make it */
	t->cpu = cpu_id;
	t->switches++;
	barrier();
	t->seq++;

	area->cpu.waited_ns += queued;
	area->cpu.throttled_ns += w.throttled_ns;
	area->cpu.waits++;
	area->cpu.queued_ns = counted;
}

/* Notes that the thread that had the CPU leaves it. */
static __always_inline void end_run(struct sched_area *area, struct task_struct *prev, __u32 pid,
				    __u64 now)
{
	struct sched_run *run = &area->run[area->cpu.head & (RUNS - 1)];
	__u64 since = area->cpu.since_ns, queued = area->cpu.queued_ns;

	if (area->cpu.tid != pid && since) {
		/* A switch in between was not told of. The kernel knows when this thread arrived.
		 */
		__u64 arrival = pid ? prev->sched_info.last_arrival : now;

		if (arrival > since && arrival <= now) {
			run->end_ns = arrival;
			run->queued_ns = queued;
			run->tid = area->cpu.tid;
			run->tgid = area->cpu.tgid;
			run = &area->run[++area->cpu.head & (RUNS - 1)];
		}
		queued = 0;
		area->cpu.lost.switches_missed++;
	}
	run->end_ns = now;
	run->queued_ns = queued;
	run->tid = pid;
	run->tgid = prev->tgid;
	area->cpu.head++;
	if (since)
		*(pid ? &area->cpu.busy_ns : &area->cpu.idle_ns) += now - since;
}

static __always_inline int on_switch(bool preempt, struct task_struct *prev,
				     struct task_struct *next, unsigned int prev_state, bool atomic)
{
	struct cfs_rq *queue = next->se.cfs_rq;
	struct rq *rq = queue->rq;
	__u64 clock = rq->clock, now = clock;
	__u32 cpu_id = rq->cpu, pid = prev->pid, next_pid = next->pid, slot;
	struct sched_area *area = bpf_map_lookup_elem(&areas, &cpu_id);
	struct sched_thread *t;

	if (!area)
		return 0;
	area->cpu.seq++;
	barrier();
	if (now < area->cpu.since_ns) {
		area->cpu.lost.clock_backward++;
		now = area->cpu.since_ns;
	}
	end_run(area, prev, pid, now);
	area->cpu.since_ns = now;

	if (pid) {
		slot = area->cpu.slot;
		t = bpf_map_lookup_elem(&threads, &slot);
		if (!t || t->tid != pid || t->state == ST_DEAD)
			t = atomic ? find_leaving_atomic(area, t, prev, now)
				   : find_leaving_plain(area, t, prev, now);
		if (t)
			switch_out(t, prev, preempt, prev_state, now);
	}

	area->cpu.tid = next_pid;
	area->cpu.tgid = next->tgid;
	area->cpu.queued_ns = 0;
	slot = NO_SLOT;
	if (next_pid) {
		slot = next_pid & thread_mask;
		t = bpf_map_lookup_elem(&threads, &slot);
		if (!t || t->tid != next_pid || t->state == ST_DEAD)
			t = atomic ? find_arriving_atomic(area, next, now, &slot)
				   : find_arriving_plain(area, next, now, &slot);
		if (t)
			switch_in(area, t, next, queue, cpu_id, now);
		else
			area->cpu.lost.thread_table_full++;
	}
	area->cpu.slot = slot;
	barrier();
	if (area->cpu.queued_ns)
		count_wait(area);
	/* The clocks drift apart by parts per million: a look now and then is enough. */
	if (!(area->cpu.switches++ % CLOCK_REFRESH))
		area->cpu.monotonic_minus_clock_ns = bpf_ktime_get_ns() - clock;
	barrier();
	area->cpu.seq++;
	return 0;
}

/* From 5.18 ("sched/tracing: Append prev_state to tp args instead"); these kernels have atomics in
 * BPF. */
SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch_4, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	return on_switch(preempt, prev, next, prev_state, true);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch_3, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(preempt, prev, next, state_of(prev), false);
}

/*
 * Only attached where threads can wake into a throttled group (no throttling by task) and some
 * cgroup has a quota: remembers the group's throttle clock at the wake-up.
 */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	struct cfs_rq *queue = task->se.cfs_rq;
	__u32 slot = task->pid & thread_mask, cpu_id = queue->rq->cpu;
	struct sched_thread *t = bpf_map_lookup_elem(&threads, &slot);
	struct sched_area *area = bpf_map_lookup_elem(&areas, &cpu_id);

	if (area && (!t || t->tid != task->pid))
		t = find_only(area, task->pid, &slot);
	/* A thread that wakes itself holds no run-queue lock: its look-up may have been disturbed.
	 */
	if (!t || t->tid != task->pid || t->state == ST_ON_CPU || t->state == ST_QUEUED ||
	    t->state == ST_THROTTLED)
		return 0;
	t->throttle_clock_ns = throttle_clock(queue, queue->rq, queue->rq->clock);
	t->throttle_queue = (__u64)queue;
	return 0;
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
