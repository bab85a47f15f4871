/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the writeback probe and its reader share. Fixed-width fields, padding written out; the Rust
 * types are generated from here. Times are CLOCK_MONOTONIC unless they are in jiffies.
 */
#ifndef DEBURR_WRITEBACK_H
#define DEBURR_WRITEBACK_H

/* Inodes of which it is known when they were written back last; tasks in a sync or a commit. */
#define WRITEBACK_INODES 65536
#define WRITEBACK_TASKS  4096
/* Buffers of the logs of xfs that are being written: each filesystem has up to 8. */
#define WRITEBACK_BUFFERS 256

enum writeback_kind {
	WRITEBACK_NOTHING = 0,
	WRITEBACK_PASS_BEGAN = 1,
	WRITEBACK_PASS_ENDED = 2,
	WRITEBACK_WRITTEN = 3,
	WRITEBACK_DIRTIED = 4,
	WRITEBACK_COMMIT = 5,
	WRITEBACK_SYNC = 6,
	WRITEBACK_PAUSE = 7,
	WRITEBACK_SYNC_BEGAN = 8, /* and nobody will tell of its end */
	WRITEBACK_ASKED = 9,
};

enum writeback_journal {
	WRITEBACK_JBD2 = 0,
	WRITEBACK_XFS = 1,
	WRITEBACK_BTRFS = 2,
};

/* Which fields mean what depends on `kind`; those that mean nothing hold what was there before. */
struct writeback_event {
	__u64 t_ns;     /* it happened, or ended */
	__u64 begin_ns; /* SYNC, COMMIT; WRITTEN: the same inode was written last, 0 = not known */
	__u64 amount; /* WRITTEN: dirty for so many jiffies, ~0 = not known; PAUSE: jiffies; COMMIT:
			 blocks + 1 */
	__u64 ino;
	__u64 subvolume; /* of btrfs */
	__u64 leader_boot_ns;
	__u32 fs;
	__u32 generation;
	__u32 tid;
	__u32 tgid;
	__u8 comm[16];
	__u8 bdi[24];
	__u8 kind;
	__u8 data_only;
	__u8 journal;
	__u8 pad;
	__u32 reason; /* + 1 */
};

struct writeback_inode {
	__u64 ino;
	__u64 subvolume;
	__u32 fs;
	__u32 generation;
	__u64 written_ns;
};

/* A task between the two ends of what it does. */
struct writeback_task {
	__u64 begin_ns;
	__u64 blocks; /* + 1 */
	__u32 tid;
	__u32 data_only;
};

/* A buffer of a log on its way to the device. */
struct writeback_buffer {
	__u64 buffer; /* its address; 0 = none */
	__u64 begin_ns;
};

/* What was lost or cut short, counted on each CPU. */
struct writeback_lost {
	__u64 inodes_evicted; /* times of writing back forgotten for those of other inodes */
	__u64 tasks_collide;  /* begun syncs and commits forgotten for those of other tasks */
	__u64 begin_unseen;   /* ends of syncs and commits of which the begin was not seen */
};

struct writeback_cpu {
	__u64 head; /* events ever written to this CPU's part of the log */
	__u64 runs;
	__u64 cell;
	struct writeback_lost lost;
	__u64 pad[2];
};

_Static_assert(sizeof(struct writeback_event) == 112, "no hidden padding");
_Static_assert(sizeof(struct writeback_cpu) == 64, "CPUs do not share cache lines");

#endif
