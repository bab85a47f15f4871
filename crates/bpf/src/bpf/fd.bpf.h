/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which file a descriptor of a process means. Included by the programs. */
#ifndef DEBURR_FD_BPF_H
#define DEBURR_FD_BPF_H

/* The open file of a descriptor; 0 = none. */
static __always_inline __u64 file_of(__u64 *cell, __u64 task, __u32 fd)
{
	__u64 files = ADDRESS_AT(cell, struct task_struct, task, files);
	__u64 table, all;

	if (!files)
		return 0;
	table = ADDRESS_AT(cell, struct files_struct, files, fdt);
	if (fd >= NUMBER_AT(struct fdtable, table, max_fds))
		return 0;
	all = ADDRESS_AT(cell, struct fdtable, table, fd);
	/* struct hlist_head serves as a kernel type that is a single pointer. */
	return ADDRESS_AT(cell, struct hlist_head, all + 8ULL * fd, first);
}

#endif
