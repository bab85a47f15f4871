/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Threads that wake up in a throttled group. Where the kernel throttles whole queues and not single
 * threads, such a wait begins without a switch: the queue's throttle clock is read at its
 * beginning, and again at its end. Attached only where this can happen and some cgroup has a quota.
 * Included by sched.bpf.c only.
 */

static __always_inline void note_wakeup(struct sched_thread *t, struct cfs_rq *queue)
{
	t->throttle_clock_ns = throttle_clock(queue, queue->rq, queue->rq->clock);
	t->throttle_queue = (__u64)queue;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	struct cfs_rq *queue = task->se.cfs_rq;
	__u32 slot = task->pid & thread_mask, cpu_id = queue->rq->cpu;
	struct sched_thread *t = bpf_map_lookup_elem(&threads, &slot);
	struct sched_area *area = bpf_map_lookup_elem(&areas, &cpu_id);

	if (area && (!t || t->tid != task->pid))
		t = find_only(area, task->pid, &slot);
	/* A wake-up of the current thread holds no run-queue lock: the look-up may be wrong. */
	if (!t || t->tid != task->pid || t->state == ST_ON_CPU || t->state == ST_QUEUED ||
	    t->state == ST_THROTTLED)
		return 0;
	note_wakeup(t, queue);
	return 0;
}

/*
 * A new thread is put on a queue: it gets its slot now, and not at its first switch, which does not
 * know how its wait began.
 */
static __always_inline int first_wakeup(unsigned long long *ctx, bool atomic)
{
	struct task_struct *task = task_arg(ctx, 0);
	struct cfs_rq *queue = task->se.cfs_rq;
	__u32 slot, cpu_id = queue->rq->cpu;
	struct sched_area *area = bpf_map_lookup_elem(&areas, &cpu_id);
	struct sched_thread *t;

	if (!area)
		return 0;
	t = find_only(area, task->pid, &slot);
	if (!t)
		t = claim(area, task, queue->rq->clock, ST_QUEUED, atomic, &slot);
	if (t && t->state == ST_QUEUED)
		note_wakeup(t, queue);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int on_first_wakeup_4(unsigned long long *ctx)
{
	return first_wakeup(ctx, true);
}

SEC("tp_btf/sched_wakeup_new")
int on_first_wakeup_3(unsigned long long *ctx)
{
	return first_wakeup(ctx, false);
}
