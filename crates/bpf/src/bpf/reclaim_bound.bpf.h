/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The memory cgroup whose limit makes the current task reclaim. Included by reclaim.bpf.c only. */

#define LEVELS 16
/* No limit: the kernel's largest number of pages is above it with pages of any size. */
#define UNLIMITED (1ULL << 46)
/*
 * The limit that made a thread reclaim has less room than this. A charge is of 64 pages, or of a
 * large page; meanwhile other threads of the cgroup may have freed some.
 */
#define NEAR_PAGES 2048

static __always_inline __u64 id_of(__u64 *cell, __u64 memcg)
{
	__u64 address = ADDRESS_AT(cell, struct mem_cgroup, memcg, css.cgroup);

	address = address ? ADDRESS_AT(cell, struct cgroup, address, kn) : 0;
	return address ? NUMBER_AT(struct kernfs_node, address, id) : 0;
}

/* The memory cgroup of the current task; 0 = none is known. */
static __always_inline __u64 memcg_of_current(__u64 *cell)
{
	__u64 set = ADDRESS_AT(cell, struct task_struct, bpf_get_current_task(), cgroups), css = 0;

	if (!set)
		return 0;
	set += bpf_core_field_offset(struct css_set___subsys, subsys);
	set += bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id) * sizeof(void *);
	bpf_probe_read_kernel(&css, sizeof(css), (void *)set);
	return css ? css - bpf_core_field_offset(struct mem_cgroup, css) : 0;
}

/* Notes the limit of this level if it has less room than those before. */
static __always_inline void consider(struct reclaim_task *task, __u64 *cell, __u64 counter,
				     __s64 *least)
{
	__u64 max = NUMBER_AT(struct page_counter, counter, max), high = ~0ULL;
	__u64 usage = NUMBER_AT(struct page_counter, counter, usage.counter);
	__u8 bound = RECLAIM_BY_MAX;

	if (bpf_core_field_exists(((struct page_counter *)0)->high))
		high = NUMBER_AT(struct page_counter, counter, high);
	if (high < max) {
		max = high;
		bound = RECLAIM_BY_HIGH;
	}
	if (max >= UNLIMITED || (__s64)(max - usage) >= *least)
		return;
	*least = max - usage;
	task->bound = bound;
	task->limit_pages = max;
	task->usage_pages = usage;
	task->cgroup = id_of(cell, counter - bpf_core_field_offset(struct mem_cgroup, memory));
}

/* `given`: the memory cgroup that is reclaimed from, where the kernel tells; 0 = the one whose
 * limit has least room among those that the task is in. */
static __noinline int note_limit(struct reclaim_task *task, __u64 *cell, __u64 given)
{
	__u64 memcg = given ? given : memcg_of_current(cell), counter;
	__s64 least = given ? 1ULL << 62 : NEAR_PAGES;

	if (!memcg)
		return 0;
	counter = memcg + bpf_core_field_offset(struct mem_cgroup, memory);
	for (int level = 0; level < LEVELS; level++) {
		consider(task, cell, counter, &least);
		if (given)
			break;
		counter = ADDRESS_AT(cell, struct page_counter, counter, parent);
		if (!counter)
			break;
	}
	return 0;
}
