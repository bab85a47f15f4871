/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a request is known by. Included by block.bpf.c only. */

__u64 origin = 0;

/*
 * Its address, seen from an address of ours. That is a number to the verifier, which lets nothing
 * but a difference be computed from a pointer.
 */
static __always_inline __u64 key_of(const void *request)
{
	__u64 key = (__u64)request;

	asm volatile("%0 -= %1" : "+r"(key) : "r"(&origin));
	return key;
}
