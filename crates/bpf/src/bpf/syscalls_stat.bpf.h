/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Statistics of system calls by number. Included by syscalls.bpf.c only. */

/* Position of the highest bit. */
static __always_inline __u32 log2_of(__u64 number)
{
	__u32 bits = (number > 0xffffffff) << 5;

	number >>= bits;
	bits |= (number > 0xffff) << 4;
	number >>= (number > 0xffff) << 4;
	bits |= (number > 0xff) << 3;
	number >>= (number > 0xff) << 3;
	bits |= (number > 0xf) << 2;
	number >>= (number > 0xf) << 2;
	bits |= (number > 0x3) << 1;
	number >>= (number > 0x3) << 1;
	return bits | number >> 1;
}

static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 power, bucket;

	if (ns < 1 << SYS_SHIFT)
		return 0;
	power = log2_of(ns);
	bucket = 1 + (power - SYS_SHIFT) * 4 + (ns >> (power - 2) & 3);
	return bucket < SYS_BUCKETS ? bucket : SYS_BUCKETS - 1;
}

static __always_inline void add_call(struct sys_stat *stat, const struct sys_done *done)
{
	__u32 bucket = bucket_of(done->ns);

	stat->calls++;
	stat->ns += done->ns;
	/* include/linux/err.h: results from -4095 to -1 are errors */
	if (done->result < 0 && done->result >= -4095)
		stat->errors++;
	if (done->off_ns) {
		stat->off_ns += done->off_ns;
		stat->wait_ns += done->wait_ns;
	}
	if (stat->max_ns < done->ns)
		stat->max_ns = done->ns;
	if (bucket < SYS_BUCKETS)
		stat->hist[bucket]++;
}

static __always_inline struct sys_stat *stat_of(__u32 cpu, __u32 group, __u32 nr)
{
	__u32 place = (cpu * groups + group) * SYS_CALLS + nr;

	return bpf_map_lookup_elem(&stats, &place);
}
