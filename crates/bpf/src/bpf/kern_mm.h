/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel fields of memory cgroups that the reclaim programs read, besides those of kern.h and
 * with the same conventions.
 */
#ifndef DEBURR_KERN_MM_H
#define DEBURR_KERN_MM_H

#include "kern.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* The cgroups of a task, by controller. */
struct css_set___subsys {
	struct cgroup_subsys_state *subsys[1];
};

/* include/linux/cgroup_subsys.h: its values differ between configurations */
enum cgroup_subsys_id {
	memory_cgrp_id,
};

struct counted {
	unsigned long counter;
};

/* In pages. */
struct page_counter {
	struct counted usage;
	unsigned long high; /* from 5.9; before, in struct mem_cgroup, and not read there */
	unsigned long max;
	struct page_counter *parent;
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
	struct page_counter memory;
};

#pragma clang attribute pop

#endif
