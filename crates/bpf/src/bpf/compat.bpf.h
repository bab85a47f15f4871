/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whether a system call is one of the 32-bit interface, where numbers mean other calls. Included by
 * the programs.
 */
#ifndef DEBURR_COMPAT_BPF_H
#define DEBURR_COMPAT_BPF_H

/*
 * On x86 the kernel itself notes it, for as long as the call lasts. The code segment of the program
 * does not tell: a 64-bit program can use that interface, too (int 0x80), and a page fault of a
 * 32-bit one is no call.
 */
static __always_inline bool is_compat_x86(__u64 task)
{
	return NUMBER_AT(struct task_struct, task, thread_info.status) & TS_COMPAT;
}

static __always_inline bool is_compat_arm64(__u64 regs)
{
	return NUMBER_AT(struct pt_regs___arm64, regs, pstate) & PSR_MODE32_BIT;
}

#endif
