/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a switch records about the thread that leaves the CPU. Rare cases are out of line, so that
 * the common path is short and keeps its values in registers. Included by sched.bpf.c only.
 */

/* The wait that ended, packed (WAIT_THROTTLED). */
static __always_inline __u64 with_throttled(__u64 queued_ns, __u64 throttled_ns)
{
	__u64 most = (1ULL << (63 - WAIT_QUEUED_BITS)) - 1;
	__u64 units = throttled_ns >> WAIT_THROTTLED_SHIFT;

	if (units > most)
		units = most;
	if (queued_ns >> WAIT_QUEUED_BITS)
		queued_ns = (1ULL << WAIT_QUEUED_BITS) - 1;
	return WAIT_THROTTLED | units << WAIT_QUEUED_BITS | queued_ns;
}

static __noinline int moved(struct sched_thread *t, struct task_struct *task, __u64 cgroup_set)
{
	t->cgroup_set = cgroup_set;
	t->cgroup_id = cgroup_id_of(unvouched(task));
	return 0;
}

/*
 * What is known about a wait that sched_info does not show: it began at the latest when the thread
 * was first seen runnable, and is not shorter than what the reader reported, which is never
 * revoked.
 */
static __noinline __u64 known_wait(struct sched_thread *t, __u64 arrival)
{
	__u32 slot = slot_of(t->tid);
	struct sched_move *move = bpf_map_lookup_elem(&moves, &slot);
	struct sched_reported *reported = bpf_map_lookup_elem(&reported_waits, &slot);
	__u64 wait = 0;

	if (move && (t->moved & MOVED_ASLEEP) && move->stay_ns == t->since_ns &&
	    move->runnable_ns < arrival)
		wait = arrival - move->runnable_ns;
	if (reported && reported->since_ns == t->since_ns && reported->queued_ns > wait)
		wait = reported->queued_ns;
	return wait;
}

/* How long a thread was runnable before it got a CPU unseen, from the kernel's sum of its waits. */
static __noinline __u64 unseen_runnable(struct sched_thread *t, struct task_struct *task,
					__u64 since, __u64 arrival)
{
	__u64 all = arrival - since, runnable;

	if (t->state == ST_QUEUED || t->state == ST_THROTTLED)
		return all;
	runnable = task->sched_info.run_delay - t->run_delay_ns;
	/* What the kernel accounts as a wait of a thread that was moved asleep is not a wait. */
	if (t->moved & MOVED_ASLEEP)
		runnable = known_wait(t, arrival);
	return runnable < all ? runnable : all;
}

/* How much of that it was throttled: as the iterator found it, or else by its state as it left. */
static __noinline __u64 unseen_throttled(struct sched_thread *t, __u64 runnable)
{
	return found_throttled(t, t->state == ST_THROTTLED ? runnable : 0, runnable);
}

/*
 * A thread that got its CPU unseen: accounts the time before. Returns when it began to run, which
 * the kernel knows (last_arrival).
 */
static __noinline __u64 arrived_unseen(struct sched_area *area, struct sched_thread *t,
				       struct task_struct *prev, __u64 since, __u64 now)
{
	__u64 arrival = prev->sched_info.last_arrival, runnable, throttled, wait;
	bool local = !(t->moved & MOVED_QUEUED);

	if (arrival < since || arrival > now)
		arrival = since;
	if (t->state >= ST_MAX)
		return arrival;
	runnable = unseen_runnable(t, prev, since, arrival);
	throttled = unseen_throttled(t, runnable);
	wait = runnable - throttled;
	/* The run that has just ended is in the log by now, without the wait before it. */
	area->run[(area->cpu.head - 1) & (RUNS - 1)].waited =
		throttled ? with_throttled(wait, throttled) : wait;
	t->moved = 0;
	t->in_state_ns[t->state & (ST_MAX - 1)] += arrival - since - runnable;
	t->in_state_ns[ST_THROTTLED] += throttled;
	t->in_state_ns[ST_QUEUED] += wait;
	if (wait && arrival > window_start_ns) {
		if (wait > arrival - window_start_ns)
			wait = arrival - window_start_ns;
		count_unseen_wait(area->cpu.id, t->tid, arrival, wait, local);
	}
	return arrival;
}

static __noinline int note_throttle_clock(struct sched_thread *t, struct task_struct *prev,
					  __u64 now)
{
	struct cfs_rq *queue = unvouched(prev)->se.cfs_rq;

	t->throttle_clock_ns = throttle_clock(queue, queue->rq, now);
	t->throttle_queue = (__u64)queue;
	return 0;
}

static __noinline int note_end(struct sched_thread *t, struct task_struct *prev)
{
	t->dead_epoch = epoch;
	copy_comm(t, prev);
	/* It is throttled no more: the field serves to forget that this is a pointer. */
	if (tells_sleeps && t->watched)
		watch_end(t->tid, t->tgid, address_of(&t->throttle_queue, prev));
	return 0;
}

static __always_inline void switch_out(struct sched_area *area, struct sched_thread *t,
				       unsigned long long *ctx, unsigned int prev_state,
				       __u64 cgroup_set, __u64 now)
{
	struct task_struct *prev = task_arg(ctx, PREV);
	__u64 since = t->since_ns;
	__u32 seq = t->seq;
	__u8 state;

	t->seq = seq + 1;
	barrier();
	if (since > now)
		since = now;
	if (unlikely(t->state != ST_ON_CPU))
		since = arrived_unseen(area, t, prev, since, now);
	t->in_state_ns[ST_ON_CPU] += now - since;
	t->state = off_cpu_state(prev, arg(ctx, PREEMPT), prev_state);
	/* Read back, so that the verifier continues once with an unknown state. */
	state = *(volatile __u8 *)&t->state;
	t->since_ns = now;
	t->run_delay_ns = prev->sched_info.run_delay;
	t->throttle_queue = 0;
	/* A throttled thread proves a quota, even if the reader has not seen it yet. */
	if (unlikely(quota_in_use || state == ST_THROTTLED))
		note_throttle_clock(t, prev, now);
	if (unlikely(t->cgroup_set != cgroup_set))
		moved(t, prev, cgroup_set);
	if (unlikely(comm_is_due(t->switches) && t->tid == t->tgid))
		copy_comm(t, prev);
	if (unlikely(state == ST_DEAD))
		note_end(t, prev);
	barrier();
	t->seq = seq + 2;
}
