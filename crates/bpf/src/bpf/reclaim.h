/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Types shared by the reclaim probe and its reader. Fixed-width fields with explicit padding; the
 * Rust types are generated from this file. Times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef DEBURR_RECLAIM_H
#define DEBURR_RECLAIM_H

/* Table sizes: tasks that reclaim now; sums of two seconds. */
#define RECLAIM_TASKS 1024
#define RECLAIM_SUMS  4096

enum reclaim_kind {
	RECLAIM_LIMIT = 0,      /* at the limit of a memory cgroup */
	RECLAIM_DIRECT = 1,     /* for the host */
	RECLAIM_COMPACTION = 2, /* for a large page */
};

/* Which limit of the cgroup binds. */
enum reclaim_bound {
	RECLAIM_BY_NONE = 0, /* not known */
	RECLAIM_BY_MAX = 1,
	RECLAIM_BY_HIGH = 2,
};

/* A task that reclaims. Free when `tid` is 0. */
struct reclaim_task {
	__u64 begin_ns;
	__u64 memory_ns;  /* what the scheduler probe had counted by then: sleep for memory, ... */
	__u64 off_cpu_ns; /* ... and all time off the CPU */
	__u64 leader_boot_ns;
	__u64 cgroup; /* whose limit binds; 0 = not known */
	__u64 limit_pages;
	__u64 usage_pages;
	__u32 tid;
	__u32 tgid;
	__u8 kind;
	__u8 bound;
	__u8 known;  /* memory_ns and off_cpu_ns are */
	__u8 kernel; /* a thread of the kernel */
	__u32 pad;
};

struct reclaim_key {
	__u64 leader_boot_ns;
	__u64 cgroup;
	__u32 tgid;
	__u8 kind;
	__u8 bound;
	__u8 kernel;
	__u8 half; /* parity of the second */
};

/* Sums of a process in one second. */
struct reclaim_sum {
	__u64 ns;
	__u64 known_ns; /* the part of `ns` of which the next two are known */
	__u64 memory_ns;
	__u64 off_cpu_ns;
	__u64 count;
	__u64 longest_ns;
	__u64 pages;
	__u64 limit_pages; /* at the last one */
	__u64 usage_pages;
	__u8 comm[16];
};

/* What was lost, counted per CPU. */
struct reclaim_lost {
	__u64 sums_full;     /* reclaims for which the table of sums had no room */
	__u64 tasks_collide; /* reclaims whose entry was taken by another task */
	__u64 begin_unseen;  /* ends whose beginning was not seen */
};

struct reclaim_cpu {
	__u64 runs;
	__u64 cell;
	struct reclaim_lost lost;
	__u64 pad[3];
};

_Static_assert(sizeof(struct reclaim_task) == 72, "no hidden padding");
_Static_assert(sizeof(struct reclaim_key) == 24, "no hidden padding");
_Static_assert(sizeof(struct reclaim_sum) == 88, "no hidden padding");
_Static_assert(sizeof(struct reclaim_cpu) == 64, "CPUs do not share cache lines");

#endif
