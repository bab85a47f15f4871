/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Types shared by the probe of stacks and its reader. Fixed-width fields with explicit padding; the
 * Rust types are generated from this file.
 */
#ifndef DEBURR_STACKS_H
#define DEBURR_STACKS_H

/* Entries of each CPU's part of the log, a power of two. */
#define STACK_ENTRIES 1024
/* Frames that are kept of each stack, from the innermost on. */
#define STACK_FRAMES 64
#define STACK_KERNEL 32

/* Places at which a thread goes to sleep that are told apart, a power of two. */
#define STACK_PLACES 16

/* Of which stacks the part in the kernel is read, too. */
enum stack_parts {
	STACK_OF_PROGRAM = 0,
	STACK_WITH_KERNEL = 1,
};

/* A watched thread. */
struct stacks_sleeper {
	__u64 since_ns; /* CLOCK_MONOTONIC; 0 = it does not sleep, or this sleep is not looked at */
	__u64 slot;     /* of time, 134 ms */
	__u32 tid;
	__u32 weight;               /* of this sleep */
	__u16 sleeps[STACK_PLACES]; /* that began in it, by place */
	__u32 parts;                /* of its stacks that are read: enum stack_parts */
	__u8 pad[4];
};

/* It begins: the stack of the thread. It ends: that of the thread that ended it. */
struct stacks_entry {
	__u64 since_ns;       /* when the sleep began */
	__u64 slept_ns;       /* 0 = it begins */
	__u64 address;        /* first argument of the system call */
	__u64 leader_boot_ns; /* of the process whose stack it is */
	__u32 tgid; /* of that process; 0 = it ended in an interrupt, or it is not known */
	__u32 tid;
	__u32 sleeper; /* thread that sleeps */
	__u32 weight;  /* sleeps that this one stands for */
	__s16 call;    /* in which the sleeper is, or the thread that ended it: enum sleep_call */
	__u16 frames;
	__u16 kernel_frames;
	__u8 comm[16];
	__u8 pad[2];
	__u64 user[STACK_FRAMES];
	__u64 kernel[STACK_KERNEL];
};

/* Of one CPU. */
struct stacks_cpu {
	__u64 runs;    /* of the programs */
	__u64 written; /* entries so far */
	__u64 cell;    /* for numbers that the verifier shall not track */
	__u64 slot;    /* of time */
	__u64 taken;   /* stacks of threads that went to sleep in it */
};

#endif
