/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Whether this CPU runs a thread, or serves an interrupt. Included by the programs. */
#ifndef DEBURR_CONTEXT_BPF_H
#define DEBURR_CONTEXT_BPF_H

/* Distance from a CPU's run queue to its preempt count in memory; 0 = not known. */
const volatile __s64 preempt_minus_rq;

static __always_inline __u64 queue_of_this_cpu(__u64 *cell)
{
	__u64 at = ADDRESS_AT(cell, struct task_struct, bpf_get_current_task(), se.cfs_rq);

	return ADDRESS_AT(cell, struct cfs_rq, at, rq);
}

/* `rq`: this CPU's run queue. */
static __always_inline __u8 context_at(__u64 rq, __u64 *cell)
{
	__u32 count;

	if (!preempt_minus_rq)
		return CTX_UNKNOWN;
	/* struct hlist_head serves as a kernel type that is a number; the count is half of it. */
	count = ADDRESS_AT(cell, struct hlist_head, rq + preempt_minus_rq, first);
	if (count & NMI_MASK)
		return CTX_NMI;
	if (count & HARDIRQ_MASK)
		return CTX_HARDIRQ;
	return count & SERVES_SOFTIRQ ? CTX_SOFTIRQ : CTX_TASK;
}

#endif
