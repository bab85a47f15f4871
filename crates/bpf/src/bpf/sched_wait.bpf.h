/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How long a thread that gets the CPU was runnable before, and how much of that it was throttled.
 * Included by sched.bpf.c only.
 */

struct wait {
	__u64 runnable_ns;
	__u64 throttled_ns;
	__u64 here_ns; /* on this CPU's queue, up to now */
};

/* How long it was runnable, and how much of that it was throttled. */
static __always_inline struct wait wait_of(struct sched_thread *t, struct task_struct *next,
					   struct cfs_rq *queue, __u64 now, __u64 off_cpu_ns)
{
	__u64 last_queued = next->sched_info.last_queued;
	bool was_runnable = t->state == ST_QUEUED || t->state == ST_THROTTLED;
	struct wait w = {};
	__u64 throttled = 0;

	if (last_queued && last_queued < now)
		w.here_ns = now - last_queued;
	if (was_runnable)
		w.runnable_ns = off_cpu_ns;
	else
		/* A migration resets last_queued and moves what was waited into run_delay. */
		w.runnable_ns = w.here_ns + (next->sched_info.run_delay - t->run_delay_ns);
	if (w.runnable_ns > off_cpu_ns)
		w.runnable_ns = off_cpu_ns;

	if (!has_bandwidth())
		return w;
	if (t->throttle_queue == (__u64)queue) {
		/*
		 * With throttling by task a woken thread is only throttled after it ran. Before, it
		 * could wake into a throttled group; then the clock must have been read at the
		 * wake-up. Without that hook this is an upper bound.
		 */
		if (was_runnable || !has_task_throttle())
			throttled = throttle_clock(queue, queue->rq, now) - t->throttle_clock_ns;
	} else if (t->state == ST_THROTTLED && w.runnable_ns > w.here_ns) {
		/* Moved to another CPU since: it was queued there when the throttling ended. */
		throttled = w.runnable_ns - w.here_ns;
	}
	w.throttled_ns = throttled < w.runnable_ns ? throttled : w.runnable_ns;
	return w;
}
