/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the system call probe and its reader share. Fixed-width fields, padding written out; the
 * Rust types are generated from here. Times are CLOCK_MONOTONIC.
 */
#ifndef DEBURR_SYSCALLS_H
#define DEBURR_SYSCALLS_H

/* Numbers of system calls that have an account of their own, and two accounts for the others. */
#define SYS_CALLS  512
#define SYS_OTHER  510 /* of no known number */
#define SYS_COMPAT 511 /* of 32-bit programs: other numbers mean other calls */
/* No system call is under way. */
#define SYS_NONE 0xffffffff

/* Bucket 0 is [0, 2^6 ns); from there on four buckets for each power of two; the last one is open.
 */
#define SYS_SHIFT   6
#define SYS_BUCKETS 120

#define SYS_FILES 8192
#define SYS_PATH  448
#define SYS_TEXT  256
#define SYS_PARTS 40

/* What is done with a file. */
enum sys_op {
	SYS_OPEN = 0,
	SYS_READ = 1,
	SYS_WRITE = 2,
	SYS_LIST = 3,
	SYS_IOCTL = 4,
	SYS_STAT = 5,
	SYS_LINK = 6, /* readlink */
	SYS_MORE = 7,
	SYS_OPS = 8,
};

/* Where a system call names its file; in the low half of a byte, the operation in the high one. */
enum sys_where {
	SYS_NOWHERE = 0,
	SYS_FD_0 = 1,    /* the first argument is a descriptor */
	SYS_FD_1 = 2,    /* the second one */
	SYS_PATH_0 = 3,  /* the first argument is a path */
	SYS_AT = 4,      /* a directory's descriptor and a path */
	SYS_OPENS_0 = 5, /* like SYS_PATH_0, and the result is a descriptor of it */
	SYS_OPENS = 6,   /* the same of SYS_AT */
};

/* A thread that is looked at, at the place that its pid has. Free when `pid` is 0. */
struct sys_thread {
	__u32 pid;
	__u32 tgid;
	__u32 group;
	__u32 armed; /* counts from its next exec on */
	__u32 nr;
	__u32 off; /* it left a CPU in this call */
	__u64 since_ns;
	__u64 off_since_ns; /* 0 = it has a CPU */
	__u64 off_ns;
	__u64 run_delay_ns; /* when it left the CPU for the first time in this call */
	__u64 cell;         /* numbers pass through here, so that the verifier forgets them */
};

/* System calls of one number, of one group, on one CPU. */
struct sys_stat {
	__u64 calls;
	__u64 errors;
	__u64 unfinished; /* began and never returned: the thread ended in it */
	__u64 ns;
	__u64 off_ns;  /* of it: without a CPU */
	__u64 wait_ns; /* of that: ready to run */
	__u64 max_ns;
	__u32 hist[SYS_BUCKETS];
};

/* A file, or a name that was asked for. */
struct sys_key {
	__u64 id; /* inode number, or hash of a name */
	__u32 fs; /* s_dev, or length of the name */
	__u32 of; /* group << 1 | it is a name */
};

struct sys_file {
	__u64 calls[SYS_OPS];
	__u64 ns[SYS_OPS];
	__u64 errors;
	__u64 max_ns;
	__u64 off_ns;
	__u64 wait_ns;
	__u64 bytes;
	__u64 magic; /* of its filesystem; 0 = not known */
	__u64 ino;
	__u16 text;    /* so many bytes at the start of `path` are the name that was asked for */
	__u16 length;  /* up to here: components from the last to the first, each ended by 0 */
	__u8 complete; /* they lead to the root */
	__u8 cut;      /* the name was longer */
	__u8 pad[2];
	char path[SYS_PATH];
};

/* Room beyond the path for a component that does not fit. */
struct sys_scratch {
	struct sys_file file;
	char beyond[256];
};

/* What did not fit or could not be read; and how many threads there were. */
struct sys_lost {
	__u64 threads_collide;
	__u64 files_full;    /* calls on files that found no room */
	__u64 files_full_ns; /* their time */
	__u64 unread;        /* calls whose file or name could not be read */
	__u64 unread_ns;
};

struct sys_cpu {
	struct sys_lost lost;
	__u64 processes; /* that began, besides the first ones */
	__u64 threads;   /* the same, of those too */
	__u64 ended;     /* threads */
};

#endif
