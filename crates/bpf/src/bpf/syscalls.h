/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Types shared by the system call probe and its reader. Fixed-width fields with explicit padding;
 * the Rust types are generated from this file. Times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef DEBURR_SYSCALLS_H
#define DEBURR_SYSCALLS_H

/* Statistics are kept by system call number; two more entries are for all other calls. */
#define SYS_CALLS  512
#define SYS_OTHER  510 /* numbers from 510 on, and negative ones */
#define SYS_COMPAT 511 /* calls of 32-bit programs, whose numbers mean other calls */
/* No system call is under way. */
#define SYS_NONE 0xffffffff

/* Bucket 0 is [0, 2^6 ns); then there are four buckets per power of two; the last one is open. */
#define SYS_SHIFT   6
#define SYS_BUCKETS 120

#define SYS_FILES 8192
#define SYS_PATH  448
#define SYS_TEXT  256
#define SYS_PARTS 40

/* Kind of operation on a file. */
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

/* Which arguments of a system call name its file. Stored in the low 4 bits of a byte, with the
 * sys_op in the high 4. */
enum sys_where {
	SYS_NOWHERE = 0,
	SYS_FD_0 = 1,    /* the first argument is a descriptor */
	SYS_FD_1 = 2,    /* the second one */
	SYS_PATH_0 = 3,  /* the first argument is a path */
	SYS_AT = 4,      /* a directory's descriptor and a path */
	SYS_OPENS_0 = 5, /* like SYS_PATH_0, and the result is a descriptor of the file */
	SYS_OPENS = 6,   /* like SYS_AT, and the result is a descriptor of the file */
};

/* An observed thread, at the index given by its pid. Free when `pid` is 0. */
struct sys_thread {
	__u32 pid;
	__u32 tgid;
	__u32 group;
	__u32 armed; /* its calls count only from its next exec on */
	__u32 nr;    /* number of the call in progress, or SYS_NONE */
	__u32 off;   /* it left a CPU during this call */
	__u64 since_ns;
	__u64 off_since_ns; /* when it left the CPU; 0 = it has one */
	__u64 off_ns;
	__u64 run_delay_ns; /* sched_info.run_delay when it first left the CPU during this call */
	__u64 cell; /* numbers are stored here and read back, so that the verifier forgets them */
};

/* System calls with one number, by one group, on one CPU. */
struct sys_stat {
	__u64 calls;
	__u64 errors;
	__u64 unfinished; /* calls that did not return: the thread ended in them */
	__u64 ns;
	__u64 off_ns;  /* part of ns off the CPU */
	__u64 wait_ns; /* part of off_ns in a run queue */
	__u64 max_ns;
	__u32 hist[SYS_BUCKETS];
};

/* Identifies a file, or a path that was passed to a call without being opened. */
struct sys_key {
	__u64 id; /* inode number, or hash of the path */
	__u32 fs; /* s_dev, or length of the path + 1 */
	__u32 of; /* group << 1 | 1 for a path */
};

struct sys_file {
	__u64 calls[SYS_OPS];
	__u64 ns[SYS_OPS];
	__u64 errors;
	__u64 max_ns;
	__u64 off_ns;
	__u64 wait_ns;
	__u64 bytes;
	__u64 magic;  /* of its filesystem; 0 = not known */
	__u16 text;   /* length of the path passed to the call, at the start of `path` */
	__u16 length; /* end of the components that follow, last to first, each terminated by a 0 */
	__u8 complete; /* the components lead to the root */
	__u8 cut;      /* the path passed to the call was longer */
	__u8 pad[2];
	char path[SYS_PATH];
};

/* A file with room after its path for a component that does not fit. */
struct sys_scratch {
	struct sys_file file;
	char beyond[256];
};

/* What did not fit or could not be read. */
struct sys_lost {
	__u64 threads_collide;
	__u64 files_full;    /* calls on files for which the table had no room */
	__u64 files_full_ns; /* wall time of those calls */
	__u64 unread;        /* calls whose file or path could not be read */
	__u64 unread_ns;
};

struct sys_cpu {
	struct sys_lost lost;
	__u64 processes; /* observed processes that were started, besides the initial ones */
	__u64 threads; /* observed threads that were started, first threads of processes included */
	__u64 pad;
};

_Static_assert(sizeof(struct sys_cpu) == 64, "CPUs do not share cache lines");

#endif
