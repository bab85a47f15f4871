/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The key that identifies a request in flight. Included by block.bpf.c only. */

__u64 origin = 0;

/*
 * The request's address relative to that of `origin`. The difference is a plain number to the
 * verifier, which allows no other arithmetic on a pointer.
 */
static __always_inline __u64 key_of(const void *request)
{
	__u64 key = (__u64)request;

	asm volatile("%0 -= %1" : "+r"(key) : "r"(&origin));
	return key;
}
