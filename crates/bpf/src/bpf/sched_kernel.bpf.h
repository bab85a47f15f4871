/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Accessors for scheduler data whose layout differs between kernels. Which layout this kernel has
 * is resolved when the program is loaded. Included by sched.bpf.c only.
 */

#include "task.bpf.h"

/* The same task as an untrusted pointer: see read.bpf.h. */
static __always_inline struct task_struct *unvouched(struct task_struct *task)
{
	if (bpf_ksym_exists(bpf_rdonly_cast))
		return bpf_rdonly_cast(task, bpf_core_type_id_kernel(struct task_struct));
	return task;
}

static __always_inline bool has_bandwidth(void)
{
	return bpf_core_field_exists(((struct cfs_rq___bandwidth *)0)->throttle_count);
}

static __always_inline bool has_task_throttle(void)
{
	return bpf_core_field_exists(((struct task_struct___task_throttle *)0)->throttled);
}

/* Whether the thread that left went to sleep and was not preempted. */
static __always_inline bool has_slept(unsigned long long *ctx, bool state_told)
{
	return !arg(ctx, PREEMPT) &&
	       (state_told ? arg(ctx, PREV_STATE) : state_of(task_arg(ctx, PREV)));
}

static __always_inline __u32 cpu_of(struct task_struct *task)
{
	struct task_struct___old_cpu *old = (void *)task;

	if (bpf_core_field_exists(task->thread_info.cpu))
		return task->thread_info.cpu;
	return old->cpu;
}

/* Total time so far for which this queue, or an ancestor of it, was throttled. */
static __always_inline __u64 throttle_clock(struct cfs_rq *queue, struct rq *rq, __u64 now)
{
	struct cfs_rq___self_clock *self = (void *)queue;
	struct cfs_rq___pelt_clock *pelt = (void *)queue;
	struct cfs_rq___task_clock *task = (void *)queue;
	struct cfs_rq___bandwidth *bandwidth = (void *)queue;

	if (!has_bandwidth())
		return 0;
	if (bpf_core_field_exists(self->throttled_clock_self_time)) {
		__u64 since = self->throttled_clock_self;

		/* It may have been throttled after the time that the iterator was asked for. */
		return self->throttled_clock_self_time + (since && since < now ? now - since : 0);
	}
	if (bpf_core_field_exists(pelt->throttled_clock_pelt_time)) {
		struct rq___pelt *clock = (void *)rq;

		if (!bandwidth->throttle_count)
			return pelt->throttled_clock_pelt_time;
		return pelt->throttled_clock_pelt_time + clock->clock_pelt - clock->lost_idle_time -
		       pelt->throttled_clock_pelt;
	}
	if (bpf_core_field_exists(task->throttled_clock_task_time)) {
		if (!bandwidth->throttle_count)
			return task->throttled_clock_task_time;
		return task->throttled_clock_task_time + rq->clock_task -
		       task->throttled_clock_task;
	}
	return 0;
}

static __always_inline bool throttled_now(struct task_struct *task)
{
	struct task_struct___task_throttle *each = (void *)task;
	struct cfs_rq___bandwidth *queue;

	if (has_task_throttle())
		return each->throttled;
	queue = (void *)unvouched(task)->se.cfs_rq;
	return has_bandwidth() && queue->throttle_count > 0;
}

static __always_inline __u64 cgroup_id_of(struct task_struct *task)
{
	if (cgroup_v2)
		return task->cgroups->dfl_cgrp->kn->id;
	return task->sched_task_group->css.cgroup->kn->id;
}

/* The ledger state of a thread that has left the CPU. */
static __always_inline __u8 off_cpu_state(struct task_struct *task, bool preempt,
					  unsigned int state)
{
	struct task_struct___psi *psi = (void *)task;
	struct task_struct___cgroups *in_cgroup = (void *)task;

	/* A preempted thread is runnable, whatever state it was about to enter. */
	if (preempt || !state)
		return throttled_now(task) ? ST_THROTTLED : ST_QUEUED;
	if (state & TASK_DEAD)
		return ST_DEAD;
	if (state & (TASK_UNINTERRUPTIBLE | TASK_RTLOCK_WAIT)) {
		/* TASK_IDLE: a kernel thread that has nothing to do. */
		if (state & TASK_NOLOAD)
			return ST_SLEEP;
		/*
		 * Checked before in_iowait: both are set while a thread waits for a workingset page
		 * that was reclaimed and is read back (folio_wait_bit_common), or for the disk
		 * during reclaim. With enough memory there would be no such IO.
		 */
		if (bpf_core_field_exists(((struct task_struct___psi *)0)->in_memstall) &&
		    BPF_CORE_READ_BITFIELD(psi, in_memstall))
			return ST_MEM_STALL;
		if (BPF_CORE_READ_BITFIELD(task, in_iowait))
			return ST_BLOCK_IO;
		return ST_UNINTERRUPTIBLE;
	}
	/* Frozen: by a cgroup's freezer, or because the machine is about to be suspended. */
	if (state & (TASK_STOPPED_OR_TRACED | TASK_FROZEN))
		return ST_STOPPED;
	/* By the freezer of cgroup v2 it is, too, in interruptible sleep. */
	if (bpf_core_field_exists(((struct task_struct___cgroups *)0)->frozen) &&
	    BPF_CORE_READ_BITFIELD(in_cgroup, frozen))
		return ST_STOPPED;
	return ST_SLEEP;
}
