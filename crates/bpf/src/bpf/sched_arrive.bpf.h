/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a switch records about the thread that gets the CPU: how long it was runnable before, and
 * how much of that time it was throttled. Included by sched.bpf.c only.
 */

struct wait {
	__u64 runnable_ns;
	__u64 throttled_ns;
	__u64 here_ns; /* time on this CPU's queue, up to now */
};

/* How much of the runnable time the thread was throttled. */
static __noinline __u64 throttled_of(struct sched_thread *t, struct task_struct *next, __u64 now,
				     __u64 runnable_ns, __u64 here_ns)
{
	struct cfs_rq *queue = unvouched(next)->se.cfs_rq;
	bool was_runnable = t->state == ST_QUEUED || t->state == ST_THROTTLED;
	__u64 throttled = 0;

	if (t->throttle_queue == (__u64)queue) {
		/*
		 * With per-task throttling, a woken thread is throttled only after it ran. In older
		 * kernels it could wake up in a throttled group; then the throttle clock must have
		 * been read at the wake-up. Without that hook this is an upper bound.
		 */
		if (was_runnable || !has_task_throttle())
			throttled = throttle_clock(queue, queue->rq, now) - t->throttle_clock_ns;
	} else if (t->state == ST_THROTTLED && runnable_ns > here_ns) {
		/* It was moved to another CPU: it was queued there when the throttling ended. */
		throttled = runnable_ns - here_ns;
	}
	if (t->moved & MOVED_QUEUED)
		throttled = found_throttled(t, throttled, runnable_ns);
	return throttled < runnable_ns ? throttled : runnable_ns;
}

static __always_inline struct wait wait_of(struct sched_thread *t, struct task_struct *next,
					   __u64 now, __u64 off_cpu_ns)
{
	/*
	 * Read in this order: the iterator holds no lock, and a dequeue clears last_queued before
	 * it adds the wait to run_delay. In the other order a wait could be counted twice.
	 */
	__u64 run_delay = *(volatile __u64 *)&next->sched_info.run_delay;
	__u64 last_queued = *(volatile __u64 *)&next->sched_info.last_queued;
	struct wait w = { .runnable_ns = off_cpu_ns };

	/* 0 = not queued; another CPU's clock may be ahead. One comparison covers both cases. */
	if (last_queued - 1 < now)
		w.here_ns = now - last_queued;
	if (t->state != ST_QUEUED && t->state != ST_THROTTLED) {
		/* A migration resets last_queued and adds the wait so far to run_delay. */
		__u64 known = w.here_ns + (run_delay - t->run_delay_ns);

		if (unlikely(t->moved & MOVED_ASLEEP)) {
			known = surely_waited(t, last_queued, now, w.here_ns);
			w.here_ns = known < w.here_ns ? known : w.here_ns;
		}
		if (known < off_cpu_ns)
			w.runnable_ns = known;
	}
	if (has_bandwidth() && unlikely(t->throttle_queue || t->state == ST_THROTTLED))
		w.throttled_ns = throttled_of(t, next, now, w.runnable_ns, w.here_ns);
	return w;
}

/* Stores in the scratch area where the thread waited before it was moved, for the blame. */
static __noinline int note_moved(struct sched_area *area, struct sched_thread *t)
{
	volatile struct sched_scratch *scratch = &area->cpu.scratch;
	__u32 slot = slot_of(t->tid);
	struct sched_move *move = bpf_map_lookup_elem(&moves, &slot);

	scratch->was_cpu = NO_SLOT;
	if (move && (t->moved & MOVED_QUEUED)) {
		scratch->was_cpu = move->from_cpu;
		scratch->moved_ns = move->queued_ns;
	}
	t->moved = 0;
	return 0;
}

/*
 * Returns the length of the wait that ended, as far as it is known to be one; `*local` of it was on
 * this CPU. `clock` = the run queue's own clock, which may lag behind `now`.
 */
static __always_inline __u64 switch_in(struct sched_area *area, struct sched_thread *t,
				       unsigned long long *ctx, __u64 clock, __u64 now,
				       __u64 *local)
{
	struct task_struct *next = task_arg(ctx, NEXT);
	__u64 since = t->since_ns < now ? t->since_ns : now;
	struct wait w = wait_of(t, next, now, now - since);
	__u64 queued = w.runnable_ns - w.throttled_ns, counted = queued;
	__u32 seq = t->seq, state = t->state;

	/* Of a wait that began before the window, only the part within it is counted. */
	if (unlikely(counted > now - window_start_ns))
		counted = now - window_start_ns;
	*local = counted < w.here_ns ? counted : w.here_ns;
	t->seq = seq + 1;
	barrier();
	if (unlikely(state == ST_ON_CPU)) {
		/* It left a CPU unseen, which that CPU counts: the time since stays unattributed,
		 * except for its last wait, the only part that is known. */
		queued = counted = *local;
	} else if (likely(state < ST_MAX)) {
		t->in_state_ns[state & (ST_MAX - 1)] += now - since - w.runnable_ns;
		if (tells_sleeps && unlikely(t->watched)) {
			area->cpu.scratch.slept_ns = now - since - w.runnable_ns;
			area->cpu.scratch.slept_since_ns = since;
			area->cpu.scratch.slept_in = state;
		}
		if (unlikely(state == ST_BLOCK_IO))
			area->cpu.block_io_ns += now - since - w.runnable_ns;
	}
	if (unlikely(w.throttled_ns)) {
		t->in_state_ns[ST_THROTTLED] += w.throttled_ns;
		area->cpu.throttled_ns += w.throttled_ns;
		area->cpu.wait_throttled_ns = w.throttled_ns;
	}
	if (unlikely(*local != counted || counted >= long_wait_ns))
		area->cpu.scratch.was_off_ns = since;
	if (unlikely(t->moved))
		note_moved(area, t);
	else if (unlikely(*local != counted))
		area->cpu.scratch.was_cpu = NO_SLOT;
	t->in_state_ns[ST_QUEUED] += queued;
	area->cpu.waited_ns += queued;
	if (unlikely(counted > t->wait_max_ns))
		t->wait_max_ns = counted;
	t->state = ST_ON_CPU;
	t->since_ns = now;
	/* The value that the kernel is about to set. */
	t->run_delay_ns = next->sched_info.run_delay + w.here_ns;
	if (unlikely(now > clock))
		t->run_delay_ns -= now - clock < w.here_ns ? now - clock : w.here_ns;
	t->cpu = area->cpu.id;
	t->switches++;
	barrier();
	t->seq = seq + 2;
	return counted;
}
