/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the block probe and its reader share. Fixed-width fields, padding written out; the Rust
 * types are generated from here. All times are CLOCK_MONOTONIC: those that the kernel keeps in a
 * request are cached while a batch is submitted, and too early by up to milliseconds.
 */
#ifndef DEBURR_BLOCK_H
#define DEBURR_BLOCK_H

/* Requests in flight that are known, and files whose names were told. */
#define BLOCK_STARTS  16384
#define BLOCK_DECIDED 16384
#define BLOCK_SEEN    65536
#define BLOCK_WORKERS 1024
/* Pairs of bios that wait for their request, and kinds of those that a limit held back. */
#define BLOCK_QUEUED 4096
#define BLOCK_HELD   1024
/* Unit of the time before a request: 32 bits of it are more than two minutes. */
#define BLOCK_BEFORE_SHIFT 5
/* Parts of a request that are looked at one by one. */
#define BLOCK_BIOS  256
#define BLOCK_NAME  512
#define BLOCK_PARTS 20

/* What the pages of a transfer belong to. */
enum block_kind {
	BLOCK_UNKNOWN = 0,
	BLOCK_FILE = 1,
	BLOCK_DEVICE = 2, /* page cache of the device: metadata, journal */
	BLOCK_ANON = 3,   /* memory of a process */
	BLOCK_NO_PAGES = 4,
	BLOCK_PRIVATE = 5, /* memory of the kernel: a filesystem's own buffers */
	BLOCK_SWAP = 6,    /* memory of a process that it does not have yet */
};

/* On whose behalf a request was submitted. */
enum block_by {
	BLOCK_BY_PROCESS = 0,
	BLOCK_BY_KERNEL = 1,
	BLOCK_BY_LIMIT = 2, /* a kernel worker, when a limit of IO let it go */
};

/* A bio that was queued and has no request yet; free when `bio` is 0. */
struct block_queued {
	__u64 bio;
	__u64 end_io; /* what is done when it ends: by whom it was made */
	__u64 t_ns;
	/* Until it was created, + 1, where that is not told with the request; 0 = not yet. */
	__u32 before;
	__u32 held;
};

struct block_queued_pair {
	struct block_queued either[2];
};

/* Transfers that a limit of IO held back before they were queued. */
struct block_held_key {
	__u64 cgroup;
	__u32 disk;
	__u32 op; /* 0 read, 1 write, 2 other */
};

struct block_held {
	__u64 ios;
	__u64 bytes;
};

/* A request in flight. Written by the CPU that handles it; free when `key` is 0. */
struct block_start {
	__u64 key;
	__u64 start_ns;
	__u64 issue_ns; /* last time; 0 = not yet */
	__u64 leader_boot_ns;
	__u32 tid; /* 0 = not known */
	__u32 tgid;
	__u8 comm[16];
	__u8 reason; /* of writeback, + 1; 0 = none */
	__u8 by;
	__u8 told;    /* part of it was completed */
	__u8 shift;   /* it stands for 1 << shift */
	__u32 before; /* from the queueing of its bio to `start_ns`, + 1; 0 = not known */
};

/* Bytes of one request that belong to one file. Written once; then `head` moves on. */
struct block_entry {
	__u64 start_ns;
	__u64 issue_ns;
	__u64 done_ns;
	__u64 request;
	__u64 sector;
	__u64 ino;
	__u64 owner_cgroup;
	__u64 leader_boot_ns;
	__u32 bytes;
	__u32 disk;
	__u32 fs;
	__u32 generation;
	__u32 tid;
	__u32 tgid;
	__u32 cmd_flags;
	__u32 weight;
	__u8 comm[16];
	__u8 kind;
	__u8 reason;
	__u8 first;
	__u8 by;
	__u32 before;    /* as in `block_start` */
	__u64 subvolume; /* of btrfs */
};

/* The name of a file. Sent without what is unused of `path`. */
struct block_name {
	__u64 ino;
	__u64 subvolume;
	__u32 fs;
	__u32 generation;
	__u8 complete;
	__u8 deleted;
	__u16 length;
	__u32 pad;
	/* components from the last to the first, each ended by a 0; room for one more than is sent
	 */
	__u8 path[BLOCK_NAME + 256];
};

struct block_seen {
	__u64 ino;
	__u64 subvolume;
	__u32 fs;
	__u32 generation;
};

/* A kernel worker that writes back. */
struct block_worker {
	__u32 tid;
	__u32 reason; /* + 1 */
};

/* What was lost or cut short, counted on each CPU. */
struct block_lost {
	__u64 starts_full;  /* requests not followed: their places were taken */
	__u64 start_unseen; /* completed without having been seen before */
	/* begun anew without having been completed, so many as they stand for */
	__u64 completion_unseen;
	__u64 bios_beyond;     /* requests with more parts than are looked at */
	__u64 names_deferred;  /* not sent for want of room; tried again with the next transfer */
	__u64 workers_collide; /* reasons of writeback forgotten */
	__u64 held_full;       /* transfers that were held back and are of no kind with room */
};

/*
 * Variables that are here and not in registers so that the verifier knows nothing of their values.
 * They mean nothing between two events.
 */
struct block_scratch {
	__u64 cell;
	__u64 now_ns;
	__u64 left; /* bytes of the completion not yet told */
	__u64 ino;
	__u64 subvolume;
	__u64 inode;
	__u64 cgroup;
	__u32 fs;
	__u32 generation;
	__u32 disk;
	__u32 cmd_flags;
	__u32 kind;
	__u32 open; /* an entry at `head` is being written */
};

struct block_cpu {
	/* first cache line */
	__u64 head; /* entries ever written to this CPU's part of the log */
	__u64 read; /* so many of them the reader has seen */
	__u64 queued;
	__u64 begun;
	/* those that are followed for as many as they stand for */
	__u64 issued;
	__u64 completed;
	__u64 start_cell;
	__u64 issue_cell;
	__u64 runs; /* of the other programs */
	__u64 queue_cell;
	__u64 held; /* transfers that were held back */
	struct block_scratch scratch;
	struct block_lost lost;
	__u64 pad[4];
};

_Static_assert(sizeof(struct block_queued_pair) == 64, "a cache line");
_Static_assert(sizeof(struct block_start) == 64, "a cache line");
_Static_assert(sizeof(struct block_entry) == 128, "two cache lines");
_Static_assert(sizeof(struct block_cpu) % 64 == 0, "CPUs do not share cache lines");

#endif
