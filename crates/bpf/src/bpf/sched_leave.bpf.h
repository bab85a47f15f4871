/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a switch notes of the thread that leaves the CPU. What seldom happens is out of line: the
 * way of an ordinary switch is short, and keeps its values in registers. Included by sched.bpf.c
 * only.
 */

static __noinline int moved(struct sched_thread *t, struct task_struct *task, __u64 cgroup_set)
{
	t->cgroup_set = cgroup_set;
	t->cgroup_id = cgroup_id_of(unvouched(task));
	return 0;
}

/*
 * What is known of a wait of which the kernel's own account does not tell: since when the thread
 * was found runnable, and what the reader told, which is never taken back.
 */
static __noinline __u64 known_wait(struct sched_thread *t, __u64 arrival)
{
	__u32 slot = slot_of(t->tid);
	struct sched_move *move = bpf_map_lookup_elem(&moves, &slot);
	struct sched_told *told = bpf_map_lookup_elem(&tolds, &slot);
	__u64 wait = 0;

	if (move && (t->moved & MOVED_ASLEEP) && move->stay_ns == t->since_ns &&
	    move->runnable_ns < arrival)
		wait = arrival - move->runnable_ns;
	if (told && told->since_ns == t->since_ns && told->queued_ns > wait)
		wait = told->queued_ns;
	return wait;
}

/* How long a thread was runnable that came unseen: the kernel keeps the sum of all its waits. */
static __noinline __u64 unseen_runnable(struct sched_thread *t, struct task_struct *task,
					__u64 since, __u64 arrival)
{
	__u64 all = arrival - since, runnable;

	if (t->state == ST_QUEUED || t->state == ST_THROTTLED)
		return all;
	runnable = task->sched_info.run_delay - t->run_delay_ns;
	/* What the kernel has for a wait of a thread that was moved asleep is none. */
	if (t->moved & MOVED_ASLEEP)
		runnable = known_wait(t, arrival);
	return runnable < all ? runnable : all;
}

/* How much of that it was throttled: as far as that was found before, or else as it left. */
static __noinline __u64 unseen_throttled(struct sched_thread *t, __u64 runnable)
{
	return found_throttled(t, t->state == ST_THROTTLED ? runnable : 0, runnable);
}

/*
 * A thread whose arrival was missed: the kernel remembers when it came. Returns since when it ran.
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
	t->moved = 0;
	t->in_state_ns[t->state & (ST_MAX - 1)] += arrival - since - runnable;
	t->in_state_ns[ST_THROTTLED] += throttled;
	t->in_state_ns[ST_QUEUED] += wait;
	if (wait && arrival > window_start_ns) {
		if (wait > arrival - window_start_ns)
			wait = arrival - window_start_ns;
		count_unseen_wait(area, t, arrival, wait, local);
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
	if (t->tid == t->tgid)
		copy_comm(t, prev);
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
	/* Read back, so that the verifier goes on with any state, once, and not with each. */
	state = *(volatile __u8 *)&t->state;
	t->since_ns = now;
	t->run_delay_ns = prev->sched_info.run_delay;
	t->throttle_queue = 0;
	/* A throttled thread shows a quota that the reader has not seen yet. */
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
