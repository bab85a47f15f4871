/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The kernel fields about system calls and descriptors that the probes read, besides those of
 * kern.h and kern_io.h. */
#ifndef DEBURR_KERN_SYS_H
#define DEBURR_KERN_SYS_H

#include "kern_io.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs___x86 {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long r10;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long sp;
};

struct pt_regs___arm64 {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 orig_x0;
	__u64 pstate;
	__s32 syscallno;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct fs_struct {
	struct path pwd;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

#pragma clang attribute pop

/* arch/x86/include/asm/thread_info.h: in thread_info.status, in a call of the 32-bit interface */
#define TS_COMPAT 0x0002
/* arch/arm64/include/uapi/asm/ptrace.h */
#define PSR_MODE32_BIT 0x10
/* include/uapi/linux/fcntl.h */
#define AT_FDCWD -100

#endif
