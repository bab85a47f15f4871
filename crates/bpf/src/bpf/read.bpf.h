/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reading kernel data through pointers that nobody vouches for. Included by the programs.
 *
 * A load of a pointer from an object that the kernel does vouch for costs the verifier a search of
 * all the kernel's types by name, more than a millisecond, by each way on which it comes there. And
 * pointers that the verifier knows may not be computed with, nor handed to functions that are
 * verified once and not at each call. Both end where an address is kept as a number.
 */
#ifndef DEBURR_READ_BPF_H
#define DEBURR_READ_BPF_H

/* From 6.2 on; before, no argument is vouched for. */
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

/* An argument of the hook. Read anew at each use: keeping it would cost a place on the stack, and
 * more time. */
static __always_inline unsigned long long arg(unsigned long long *ctx, int number)
{
	return ((volatile unsigned long long *)ctx)[number];
}

/* The pointer as a number of which the verifier knows nothing: it comes back out of a map's cell.
 */
static __always_inline __u64 address_of(__u64 *cell, const void *pointer)
{
	*(volatile __u64 *)cell = (__u64)pointer;
	return *(volatile __u64 *)cell;
}

/* The number in `member` of the `type` at this address; 0 where there is nothing. */
#define NUMBER_AT(type, address, member)                                                        \
	({                                                                                      \
		typeof(((type *)0)->member) number_ = 0;                                        \
		if (bpf_ksym_exists(bpf_rdonly_cast))                                           \
			number_ = ((type *)bpf_rdonly_cast((const void *)(address),             \
							   bpf_core_type_id_kernel(type)))      \
					  ->member;                                             \
		else                                                                            \
			bpf_core_read(&number_, sizeof(number_), &((type *)(address))->member); \
		number_;                                                                        \
	})

/* The pointer in `member` of the `type` at this address, as a number; 0 where there is nothing. */
#define ADDRESS_AT(cell, type, address, member)                                                   \
	({                                                                                        \
		if (bpf_ksym_exists(bpf_rdonly_cast)) {                                           \
			*(volatile __u64 *)(cell) =                                               \
				(__u64)((type *)bpf_rdonly_cast((const void *)(address),          \
								bpf_core_type_id_kernel(type)))   \
					->member;                                                 \
		} else {                                                                          \
			__u64 pointer_ = 0;                                                       \
			bpf_core_read(&pointer_, sizeof(pointer_), &((type *)(address))->member); \
			*(volatile __u64 *)(cell) = pointer_;                                     \
		}                                                                                 \
		*(volatile __u64 *)(cell);                                                        \
	})

#endif
