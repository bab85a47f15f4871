/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads kernel data through untrusted pointers. Included by the programs.
 *
 * A load of a pointer from a trusted object costs the verifier a search of all kernel types by
 * name, more than a millisecond, on each path that leads to the load. And pointers that the
 * verifier tracks allow no arithmetic, and cannot be passed to functions that are verified once and
 * not at each call. Addresses kept as numbers have neither restriction.
 */
#ifndef DEBURR_READ_BPF_H
#define DEBURR_READ_BPF_H

/* From 6.2 on; before, no argument is trusted. */
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

/* An argument of the hook. Read again at each use: keeping it would take a stack slot and more
 * time. */
static __always_inline unsigned long long arg(unsigned long long *ctx, int number)
{
	return ((volatile unsigned long long *)ctx)[number];
}

#define barrier() asm volatile("" ::: "memory")

/*
 * Reads back what was just stored: the verifier then continues with an unknown number, once, and
 * not with one continuation for each way in which the number came about.
 */
static __always_inline __u64 forgotten(__u64 *cell)
{
	barrier();
	return *(volatile __u64 *)cell;
}

/* The pointer as a number that the verifier does not track: it is stored in a map and read back. */
static __always_inline __u64 address_of(__u64 *cell, const void *pointer)
{
	*(volatile __u64 *)cell = (__u64)pointer;
	return *(volatile __u64 *)cell;
}

/* The number in `member` of the `type` at this address; 0 if it cannot be read. */
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

/* The pointer in `member` of the `type` at this address, as a number; 0 if it cannot be read. */
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
