/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Threads that are moved between run queues while they are off the CPU. A thread that waited on
 * another CPU waited behind other processes; and a move can make sched_info wrong. Included by
 * sched.bpf.c only.
 *
 * From 6.12 on ("sched/fair: Implement delayed dequeue") a thread that goes to sleep may stay on
 * the run queue for a while, and be moved to another one. That sets sched_info.last_queued as if it
 * waited from then on, and its wake-up does not correct it.
 */

/* The thread is enqueued on the other CPU within this time after the hook. */
#define MOVE_TAKES_NS 1000000

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_move, struct task_struct *task)
{
	__u32 slot = slot_of(task->pid);
	struct sched_thread *t = bpf_map_lookup_elem(&threads, &slot);
	struct sched_move *move = bpf_map_lookup_elem(&moves, &slot);
	__u64 now;

	/* Not on a queue: it is being woken up, and has not waited. */
	if (!t || !move || !task->on_rq || t->state == ST_ON_CPU)
		return 0;
	now = task->se.cfs_rq->rq->clock;
	if (state_of(task) && t->state != ST_QUEUED && t->state != ST_THROTTLED) {
		move->asleep_ns = now;
		t->moved |= MOVED_ASLEEP;
		__sync_fetch_and_add(&moves_asleep, 1);
	} else {
		move->after_us = ~0U;
		if (t->moved & MOVED_QUEUED)
			move->after_us = (now - move->queued_ns) / 1000;
		move->queued_ns = now;
		move->from_cpu = cpu_of(task);
		t->moved |= MOVED_QUEUED;
	}
	return 0;
}

/* Notes when a thread with a hidden wake-up is first found runnable in an off-CPU period. */
static __noinline int note_runnable(__u32 slot, __u64 stay_ns, __u64 now)
{
	struct sched_move *move = bpf_map_lookup_elem(&moves, &slot);

	if (move && move->stay_ns != stay_ns) {
		move->runnable_ns = now;
		move->stay_ns = stay_ns;
	}
	return 0;
}

/* Notes how long a thread was throttled and queued so far, as the iterator found it. */
static __noinline int note_throttled(__u32 slot, __u64 stay_ns, __u64 runnable_ns,
				     __u64 throttled_ns)
{
	struct sched_move *move = bpf_map_lookup_elem(&moves, &slot);

	if (move) {
		move->throttled_ns = throttled_ns;
		move->waited_ns = runnable_ns - throttled_ns;
		move->stopped_stay_ns = stay_ns;
	}
	return 0;
}

/*
 * How much of its runnable time a moved thread was throttled. `throttled` is computed from the
 * queue that it is on now; what the iterator found before, throttled or queued, was reported and is
 * kept.
 */
static __noinline __u64 found_throttled(struct sched_thread *t, __u64 throttled, __u64 runnable)
{
	__u32 slot = slot_of(t->tid);
	struct sched_move *move = bpf_map_lookup_elem(&moves, &slot);
	__u64 most;

	if (!move || move->stopped_stay_ns != t->since_ns)
		return throttled;
	most = move->waited_ns < runnable ? runnable - move->waited_ns : 0;
	if (throttled < move->throttled_ns)
		throttled = move->throttled_ns;
	return throttled < most ? throttled : most;
}

/*
 * Lower bound of the wait of a thread that was moved while it slept: `here` if it was queued again
 * since, otherwise the time since it was first seen runnable.
 */
static __noinline __u64 surely_waited(struct sched_thread *t, __u64 last_queued, __u64 now,
				      __u64 here)
{
	__u32 slot = slot_of(t->tid);
	struct sched_move *move = bpf_map_lookup_elem(&moves, &slot);
	__u64 sure = here;

	if (!move)
		return here;
	if (last_queued - move->asleep_ns < MOVE_TAKES_NS)
		sure = 0;
	if (move->stay_ns == t->since_ns && move->runnable_ns < now &&
	    now - move->runnable_ns > sure)
		sure = now - move->runnable_ns;
	return sure;
}

/*
 * Records the time of hidden wake-ups. Attached only while threads are often moved asleep, for then
 * the iterator runs too late for most of them.
 */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_hidden_wakeup, struct task_struct *task)
{
	__u32 slot = task->pid & thread_mask;
	struct sched_thread *t = bpf_map_lookup_elem(&threads, &slot);

	if (likely(t && t->tid == (__u32)task->pid)) {
		if (likely(!(t->moved & MOVED_ASLEEP)))
			return 0;
	} else {
		slot = slot_of(task->pid);
		t = bpf_map_lookup_elem(&threads, &slot);
		if (!t || !(t->moved & MOVED_ASLEEP))
			return 0;
	}
	note_runnable(slot, t->since_ns, task->se.cfs_rq->rq->clock);
	return 0;
}
