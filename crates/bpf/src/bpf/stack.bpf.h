/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Stacks as bpf_get_stack() notes them. Included by the programs. */
#ifndef DEBURR_STACK_BPF_H
#define DEBURR_STACK_BPF_H

/* include/uapi/linux/bpf.h */
#define BPF_F_USER_STACK (1ULL << 8)

/* Frames in what the helper said; 0 = there is no such stack. */
static __always_inline __u16 frames(long bytes)
{
	return bytes > 0 ? bytes / sizeof(__u64) : 0;
}

#endif
