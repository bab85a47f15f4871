/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Threads as the hooks of the scheduler pass them. Included by the programs. */
#ifndef DEBURR_TASK_BPF_H
#define DEBURR_TASK_BPF_H

/* Arguments of sched_switch. */
enum { PREEMPT, PREV, NEXT, PREV_STATE };

static __always_inline struct task_struct *task_arg(unsigned long long *ctx, int number)
{
	return (struct task_struct *)arg(ctx, number);
}

static __always_inline unsigned int state_of(struct task_struct *task)
{
	struct task_struct___new_state *now = (void *)task;
	struct task_struct___old_state *old = (void *)task;

	if (bpf_core_field_exists(now->__state))
		return now->__state;
	return old->state;
}

#endif
