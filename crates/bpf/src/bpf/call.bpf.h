/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * In which system call a thread is: no call is hooked, its number lies on top of the thread's
 * kernel stack. Included by the programs.
 */
#ifndef DEBURR_CALL_BPF_H
#define DEBURR_CALL_BPF_H

#include "compat.bpf.h"

/* From the bottom of a thread's kernel stack to the registers that its system call saved; 0 = not
 * known. */
__u64 regs_offset = 0;

static __always_inline __s64 call_of(__u64 task, __u64 regs)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax)) {
		if (is_compat_x86(task))
			return SLEEP_COMPAT;
		return NUMBER_AT(struct pt_regs___x86, regs, orig_ax);
	}
	if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->syscallno)) {
		if (is_compat_arm64(regs))
			return SLEEP_COMPAT;
		return NUMBER_AT(struct pt_regs___arm64, regs, syscallno);
	}
	return SLEEP_UNKNOWN;
}

/* What the thread is doing in the kernel: the number of a system call, or enum sleep_call. */
static __always_inline __s64 call_in(__u64 *cell, __u64 task, __u64 *regs)
{
	__s64 call;

	if (!regs_offset)
		return SLEEP_UNKNOWN;
	if (NUMBER_AT(struct task_struct, task, flags) &
	    (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		return SLEEP_KERNEL;
	*regs = ADDRESS_AT(cell, struct task_struct, task, stack) + regs_offset;
	call = call_of(task, *regs);
	return call >= 0 && call < SLEEP_CALLS ? call : call == SLEEP_COMPAT ? call : SLEEP_NO_CALL;
}

/* The first argument of the system call whose registers these are. */
static __always_inline __u64 first_argument(__u64 regs)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax))
		return NUMBER_AT(struct pt_regs___x86, regs, di);
	if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->syscallno))
		return NUMBER_AT(struct pt_regs___arm64, regs, orig_x0);
	return 0;
}

/* The stack pointer of the program whose registers these are. */
static __always_inline __u64 stack_pointer(__u64 regs)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax))
		return NUMBER_AT(struct pt_regs___x86, regs, sp);
	if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->syscallno))
		return NUMBER_AT(struct pt_regs___arm64, regs, sp);
	return 0;
}

/* Where the program goes on after the call. */
static __always_inline __u64 instruction_pointer(__u64 regs)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax))
		return NUMBER_AT(struct pt_regs___x86, regs, ip);
	if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->syscallno))
		return NUMBER_AT(struct pt_regs___arm64, regs, pc);
	return 0;
}

#endif
