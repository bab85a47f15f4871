/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reports which threads wait right now, and which got a CPU unseen. A switch reports a wait when it
 * ends; until then a thread that was woken and has not run appears to sleep. The reader runs this
 * iterator before it reports what threads did up to some time, and so never has to revoke anything.
 * Included by sched.bpf.c only.
 */

/* The skeleton contains the types of variables only; this one exists for its type. */
struct sched_waiting waiting_shape;

/* A new thread that has waited this long for its first CPU gets a slot before its first switch. */
#define NEWBORN_NS 1000000

static __always_inline bool has_run(const struct task_struct *task)
{
	return task->on_cpu || task->sched_info.pcount;
}

/*
 * Allocates a slot for a thread that was never on a CPU, so that no switch can have reported it:
 * without a slot it would be invisible for as long as it starves. A switch to it on another CPU may
 * take a second slot between its own search and the check of `pcount` here: a race of some 100 ns,
 * once in the life of a thread.
 */
static __noinline __u32 newborn(struct task_struct *vouched, __u64 now)
{
	struct task_struct *task = unvouched(vouched);
	__u64 queued_ns = task->sched_info.last_queued, since;
	struct sched_thread *t;
	struct sched_waits *w;
	__u32 slot;

	if (!task->pid || state_of(vouched) || has_run(task) || !queued_ns)
		return NO_SLOT;
	since = queued_ns - task->sched_info.run_delay;
	if (since > now || now - since < NEWBORN_NS)
		return NO_SLOT;
	slot = lock_free_place(task->pid);
	t = bpf_map_lookup_elem(&threads, &slot);
	w = bpf_map_lookup_elem(&waits, &slot);
	if (!t || !w)
		return NO_SLOT;
	barrier();
	__builtin_memset(w, 0, sizeof(*w));
	begin(t, vouched, since, ST_QUEUED);
	if (has_run(task)) {
		t->tid = 0;
		t->state = ST_DEAD;
		slot = NO_SLOT;
	}
	barrier();
	t->seq++;
	if (tells_sleeps && slot != NO_SLOT && watch_new(t->tid, t->tgid, t->parent))
		t->watched = 1;
	return slot;
}

/*
 * Reports a thread that got its CPU unseen and still has it: the same durations as will be
 * accounted when it leaves.
 */
static __noinline int tell_arrived(struct bpf_iter__task *ctx, struct sched_thread *t, __u32 slot)
{
	struct task_struct *task = ctx->task;
	struct sched_waiting out = {};
	__u64 now = asked_ns, since, arrival, runnable;

	if (!task || !t)
		return 0;
	out.seq = *(volatile __u32 *)&t->seq;
	since = t->since_ns;
	arrival = task->sched_info.last_arrival;
	if ((out.seq & 1) || t->state >= ST_MAX || t->state == ST_ON_CPU || arrival <= since ||
	    arrival > now)
		return 0;
	out.since_ns = since;
	runnable = unseen_runnable(t, task, since, arrival);
	out.throttled_ns = unseen_throttled(t, runnable);
	out.queued_ns = runnable - out.throttled_ns;
	out.slot = slot;
	out.tid = t->tid;
	out.tgid = t->tgid;
	out.cpu = cpu_of(task);
	out.was_cpu = NO_SLOT;
	out.arrived_ns = arrival;
	bpf_seq_write(ctx->meta->seq, &out, sizeof(out));
	return 0;
}

/*
 * Reports the thread as a switch would find it now. The same arithmetic computes how long it
 * waited, so that the end of the wait agrees with what was reported before. No lock is held: the
 * reader compares `seq` with the value that it reads later, and drops reports on another off-CPU
 * period.
 */
static __always_inline int tell_waiting(struct bpf_iter__task *ctx, bool atomic)
{
	struct task_struct *task = ctx->task;
	struct sched_waiting out = {};
	struct sched_move *move;
	struct sched_thread *t;
	struct wait w;
	__u64 now = asked_ns, since;
	__u32 state, tid, slot;

	if (!task)
		return 0;
	tid = task->pid;
	slot = slot_of(tid);
	t = slot != NO_SLOT ? bpf_map_lookup_elem(&threads, &slot)
			    : bpf_map_lookup_elem(&overflow, &tid);
	if (task->on_cpu)
		return tell_arrived(ctx, t, slot);
	if (!t && atomic) {
		slot = newborn(task, now);
		t = bpf_map_lookup_elem(&threads, &slot);
	}
	if (!t || !task->se.cfs_rq)
		return 0;
	out.seq = *(volatile __u32 *)&t->seq;
	state = t->state;
	since = t->since_ns;
	/* It sleeps, and was not preempted when it was about to. */
	if (state_of(task) && state != ST_QUEUED && state != ST_THROTTLED)
		return 0;
	if ((out.seq & 1) || state >= ST_MAX || state == ST_ON_CPU || since >= now)
		return 0;
	if (t->moved & MOVED_ASLEEP)
		note_runnable(slot, since, now);
	w = wait_of(t, task, now, now - since);
	if (!w.runnable_ns)
		return 0;
	if (w.throttled_ns)
		note_throttled(slot, since, w.runnable_ns, w.throttled_ns);
	out.since_ns = since;
	out.throttled_ns = w.throttled_ns;
	out.queued_ns = w.runnable_ns - w.throttled_ns;
	out.here_ns = out.queued_ns < w.here_ns ? out.queued_ns : w.here_ns;
	out.slot = slot;
	out.tid = tid;
	out.tgid = t->tgid;
	out.cpu = cpu_of(task);
	out.was_cpu = NO_SLOT;
	move = t->moved & MOVED_QUEUED ? bpf_map_lookup_elem(&moves, &slot) : 0;
	if (move) {
		out.was_cpu = move->from_cpu;
		out.moved_ns = move->queued_ns;
	}
	bpf_seq_write(ctx->meta->seq, &out, sizeof(out));
	return 0;
}

/* Two versions, as for the switches: a verifier that does not know compare-and-swap rejects it. */
SEC("iter/task")
int on_waiting_4(struct bpf_iter__task *ctx)
{
	return tell_waiting(ctx, true);
}

SEC("iter/task")
int on_waiting_3(struct bpf_iter__task *ctx)
{
	return tell_waiting(ctx, false);
}
