/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What identifies an inode besides its number. Included by the programs.
 */
#ifndef DEBURR_INODE_BPF_H
#define DEBURR_INODE_BPF_H

/* include/uapi/linux/magic.h */
#define BTRFS_MAGIC 0x9123683e

/*
 * The subvolume of a btrfs inode: inode numbers are unique only within a subvolume, and generations
 * do not make them unique. 0 = another filesystem, or not known. The types may be those of a
 * module, for which there is no cast: they are read with a helper.
 */
static __always_inline __u64 subvolume_of(__u64 inode, __u64 magic)
{
	__u64 root = 0, subvolume = 0;

	if (magic != BTRFS_MAGIC || !bpf_core_field_exists(((struct btrfs_inode *)0)->root) ||
	    !bpf_core_field_exists(((struct btrfs_root *)0)->root_key))
		return 0;
	inode -= bpf_core_field_offset(struct btrfs_inode, vfs_inode);
	if (bpf_core_read(&root, sizeof(root), &((struct btrfs_inode *)inode)->root) || !root)
		return 0;
	bpf_core_read(&subvolume, sizeof(subvolume),
		      &((struct btrfs_root *)root)->root_key.objectid);
	return subvolume;
}

#endif
