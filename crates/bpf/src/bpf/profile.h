/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Types shared by the profile probe and its reader. Fixed-width fields with explicit padding; the
 * Rust types are generated from this file.
 */
#ifndef DEBURR_PROFILE_H
#define DEBURR_PROFILE_H

/* Entries of each CPU's part of the log, a power of two: 0.6 s at 99 samples a second. */
#define PROFILE_ENTRIES 64
/* Frames that are kept of each stack, from the innermost on. */
#define PROFILE_USER   64
#define PROFILE_KERNEL 32

/* Where the clock found a CPU. */
struct profile_sample {
	__u64 leader_boot_ns;
	__u32 tgid;
	__u32 tid;
	__u16 user_frames;
	__u16 kernel_frames;
	__u8 kernel; /* a thread of the kernel */
	__u8 pad[3];
	__u8 comm[16];
	__u64 user[PROFILE_USER];
	__u64 kernel_stack[PROFILE_KERNEL];
};

/* Of one CPU. */
struct profile_cpu {
	__u64 written; /* samples so far */
	__u64 cell;    /* for a number that the verifier shall not track */
};

#endif
