/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which interrupts each CPU serves: the probe of interrupts writes it, that of the scheduler reads
 * it where a thread is woken. The table is shared; without the first probe it stays empty.
 */
#ifndef DEBURR_SERVING_BPF_H
#define DEBURR_SERVING_BPF_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct irq_serving);
} serving SEC(".maps");

/* By that CPU; 0 = not told. */
static __always_inline struct irq_serving *served_by(__u32 cpu)
{
	return bpf_map_lookup_elem(&serving, &cpu);
}

#endif
