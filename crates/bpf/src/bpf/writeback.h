/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Types shared by the writeback probe and its reader. Fixed-width fields with explicit padding; the
 * Rust types are generated from this file. Times are nanoseconds of CLOCK_MONOTONIC unless they are
 * in jiffies.
 */
#ifndef DEBURR_WRITEBACK_H
#define DEBURR_WRITEBACK_H

/* Table sizes: inodes with the time of their last writeback; tasks in a sync or a commit. */
#define WRITEBACK_INODES 65536
#define WRITEBACK_TASKS  4096
/* Table size: buffers of xfs logs that are being written; each filesystem has up to 8. */
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
	WRITEBACK_SYNC_BEGAN = 8, /* no event will report its end */
	WRITEBACK_ASKED = 9,
};

enum writeback_journal {
	WRITEBACK_JBD2 = 0,
	WRITEBACK_XFS = 1,
	WRITEBACK_BTRFS = 2,
};

/* The valid fields depend on `kind`; the others hold leftovers of earlier events. */
struct writeback_event {
	__u64 t_ns; /* when it happened, or ended */
	/* SYNC, COMMIT: begin; WRITTEN: previous writeback of the inode; 0 = not known. */
	__u64 begin_ns;
	/*
	 * WRITTEN: jiffies since it was dirtied, ~0 = not known; PAUSE: jiffies; COMMIT: blocks +
	 * 1, 0 = not known.
	 */
	__u64 amount;
	__u64 ino;
	__u64 subvolume; /* btrfs only; 0 = none */
	__u64 leader_boot_ns;
	__u32 fs;
	__u32 generation;
	__u32 tid;
	__u32 tgid;
	__u8 comm[16];
	__u8 bdi[24];
	__u8 kind;
	__u8 journal;
	__u8 pad[2];
	__u32 reason; /* writeback reason + 1 */
};

struct writeback_inode {
	__u64 ino;
	__u64 subvolume;
	__u32 fs;
	__u32 generation;
	__u64 written_ns;
};

/* A task in a sync or a commit. */
struct writeback_task {
	__u64 begin_ns;
	__u64 blocks; /* of a commit, + 1; 0 = not known */
	__u32 tid;
	__u32 pad;
};

/* A buffer of an xfs log that is being written. */
struct writeback_buffer {
	__u64 buffer; /* its address; 0 = none */
	__u64 begin_ns;
};

/* What was lost, counted per CPU. */
struct writeback_lost {
	__u64 inodes_evicted; /* inodes whose entry was taken by another inode */
	__u64 tasks_collide;  /* begun syncs and commits whose entry was taken by another task */
	__u64 begin_unseen;   /* ends of syncs and commits whose beginning was not seen */
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
