/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Types shared by the block probe and its reader. Fixed-width fields with explicit padding; the
 * Rust types are generated from this file. All times are nanoseconds of CLOCK_MONOTONIC, read by
 * the probe: the kernel's own timestamps in a request are cached while a batch is submitted, and
 * are too early by up to milliseconds.
 */
#ifndef DEBURR_BLOCK_H
#define DEBURR_BLOCK_H

/* Sizes of tables: requests in flight, sampling decisions, files whose names were sent, workers. */
#define BLOCK_STARTS  16384
#define BLOCK_DECIDED 16384
#define BLOCK_SEEN    65536
#define BLOCK_WORKERS 1024
/* Pairs of slots for bios without a request yet; (cgroup, disk, operation) of throttled bios. */
#define BLOCK_QUEUED 4096
#define BLOCK_HELD   1024
/* `before` is in units of 1 << 5 = 32 ns: 32 bits hold more than two minutes. */
#define BLOCK_BEFORE_SHIFT 5
/* Limits: bios of a request that are examined, bytes of a path, components of a path. */
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
	BLOCK_PRIVATE = 5, /* kernel memory: a filesystem's own buffers */
	BLOCK_SWAP = 6,    /* memory of a process that is being swapped in */
};

/* On whose behalf a request was submitted. */
enum block_by {
	BLOCK_BY_PROCESS = 0,
	BLOCK_BY_KERNEL = 1,
	BLOCK_BY_LIMIT = 2, /* a kernel worker, for a bio that an IO limit had throttled */
};

/* A bio that was queued and has no request yet; the slot is free when `bio` is 0. */
struct block_queued {
	__u64 bio;
	__u64 end_io; /* bi_end_io: guards against reuse of the address by another kind of bio */
	__u64 t_ns;
	/*
	 * Time until its request was created, in units of 32 ns, + 1; 0 = not yet. Set only where
	 * on_create is attached.
	 */
	__u32 before;
	__u32 held;
};

struct block_queued_pair {
	struct block_queued either[2];
};

/* Transfers that were throttled by an IO limit before they were queued. */
struct block_held_key {
	__u64 cgroup;
	__u32 disk;
	__u32 op; /* 0 read, 1 write, 2 other */
};

struct block_held {
	__u64 ios;
	__u64 bytes;
};

/* A request in flight. Written by the CPU that handles it; the slot is free when `key` is 0. */
struct block_start {
	__u64 key;
	__u64 start_ns;
	__u64 issue_ns; /* when it was last issued; 0 = not yet */
	__u64 leader_boot_ns;
	__u32 tid; /* 0 = not known */
	__u32 tgid;
	__u8 comm[16];
	__u8 reason; /* writeback reason + 1; 0 = none */
	__u8 by;
	__u8 reported; /* an entry was written for a part of it */
	__u8 shift;    /* it represents 1 << shift requests */
	__u32 before;  /* from queueing of its bio to `start_ns`, in 32 ns, + 1; 0 = not known */
};

/* The bytes of one request that belong to one file. Valid once `head` has moved past it. */
struct block_entry {
	__u64 start_ns;
	__u64 issue_ns;
	__u64 done_ns;
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
	__u64 subvolume; /* btrfs only; 0 = none */
	__u64 pad[2];
};

/* The name of a file. Sent without the unused end of `path`. */
struct block_name {
	__u64 ino;
	__u64 subvolume;
	__u32 fs;
	__u32 generation;
	__u8 complete;
	__u8 deleted;
	__u16 length;
	__u32 pad;
	/* Components from the last to the first, each terminated by a 0. The extra 256 bytes let
	 * the verifier accept a component of any length.
	 */
	__u8 path[BLOCK_NAME + 256];
};

struct block_seen {
	__u64 ino;
	__u64 subvolume;
	__u32 fs;
	__u32 generation;
};

/* A kernel worker in a writeback pass. */
struct block_worker {
	__u32 tid;
	__u32 reason; /* writeback reason + 1 */
};

/* What was lost or truncated, counted per CPU. */
struct block_lost {
	__u64 starts_full;  /* requests not followed: both of their slots were taken */
	__u64 start_unseen; /* requests completed without having been seen before */
	/* Requests whose memory was reused before a completion was seen; weighted by 1 << shift. */
	__u64 completion_unseen;
	__u64 bios_beyond;     /* requests with more bios than are examined */
	__u64 names_deferred;  /* names not sent for lack of room; retried at the next transfer */
	__u64 workers_collide; /* writeback reasons lost because two workers share a slot */
	__u64 held_full;       /* throttled transfers not counted: the table is full */
	__u64 nested;          /* completions while another one was processed on this CPU */
};

/*
 * Variables kept in memory and not in registers, so that the verifier does not track their values.
 * They have no meaning between two events.
 */
struct block_scratch {
	__u64 cell;
	__u64 now_ns;
	__u64 left; /* bytes of the completion not yet written to an entry */
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
	__u64 read; /* entries that the reader has read */
	__u64 queued;
	__u64 begun;
	/* Where requests are sampled, those that are followed are weighted by 1 << shift. */
	__u64 issued;
	__u64 completed;
	__u64 start_cell;
	__u64 issue_cell;
	__u64 runs; /* runs of the other programs */
	__u64 queue_cell;
	__u64 held; /* throttled transfers */
	__u64 busy; /* a completion is being processed */
	struct block_scratch scratch;
	struct block_lost lost;
	__u64 pad[2];
};

_Static_assert(sizeof(struct block_queued_pair) == 64, "a cache line");
_Static_assert(sizeof(struct block_start) == 64, "a cache line");
_Static_assert(sizeof(struct block_entry) == 128, "two cache lines");
_Static_assert(sizeof(struct block_cpu) % 64 == 0, "CPUs do not share cache lines");

#endif
