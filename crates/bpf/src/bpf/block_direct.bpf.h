/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Finds the file of a transfer that bypasses the page cache: its pages belong to a process, or to
 * nothing, and do not lead to the file. Included by block_target.bpf.h only.
 */

/*
 * The inode of a direct transfer, if `bi_private` points to iomap's struct iomap_dio: the pointers
 * must lead to a file on a filesystem on this device, and back. Nothing else passes these checks.
 * `sure` = bi_end_io was recognised, so the checks are omitted. 0 = not a direct transfer of a
 * file.
 */
static __always_inline __u64 direct_inode(__u64 *cell, __u64 bio, bool sure)
{
	__u64 at = ADDRESS_AT(cell, struct bio, bio, bi_private), file, inode, mapping;

	if (!bpf_core_field_exists(((struct iomap_dio *)0)->iocb) || !at)
		return 0;
	at = ADDRESS_AT(cell, struct iomap_dio, at, iocb);
	file = ADDRESS_AT(cell, struct kiocb, at, ki_filp);
	inode = ADDRESS_AT(cell, struct file, file, f_inode);
	if (sure || !inode)
		return inode;
	mapping = ADDRESS_AT(cell, struct file, file, f_mapping);
	if (!mapping || ADDRESS_AT(cell, struct inode, inode, i_mapping) != mapping ||
	    ADDRESS_AT(cell, struct address_space, mapping, host) != inode)
		return 0;
	at = ADDRESS_AT(cell, struct inode, inode, i_sb);
	if (bpf_core_field_exists(((struct bio *)0)->bi_bdev) &&
	    ADDRESS_AT(cell, struct super_block, at, s_bdev) !=
		    ADDRESS_AT(cell, struct bio, bio, bi_bdev))
		return 0;
	return NUMBER_AT(struct super_block, at, s_magic) == BDEVFS_MAGIC ? 0 : inode;
}

static __always_inline bool note_direct(struct block_cpu *area, __u64 bio, bool sure)
{
	__u64 inode = direct_inode(&area->scratch.cell, bio, sure);

	if (!inode)
		return false;
	note_inode(area, inode);
	return true;
}

/*
 * The same once bi_end_io of direct transfers is known. A large transfer is split: all parts but
 * the last are bios of the block layer, whose `bi_private` points to the whole bio.
 */
static __always_inline bool note_known_direct(struct block_cpu *area, __u64 bio, __u64 end_io)
{
	__u64 *cell = &area->scratch.cell;

	if (end_io == direct_end_io)
		return note_direct(area, bio, true);
	bio = ADDRESS_AT(cell, struct bio, bio, bi_private);
	return bio && ADDRESS_AT(cell, struct bio, bio, bi_end_io) == direct_end_io &&
	       note_direct(area, bio, true);
}

/* The same before that, and learns bi_end_io from the first direct transfer. */
static __always_inline bool note_first_direct(struct block_cpu *area, __u64 bio)
{
	__u64 *cell = &area->scratch.cell;

	if (!note_direct(area, bio, false)) {
		bio = ADDRESS_AT(cell, struct bio, bio, bi_private);
		if (!bio || !note_direct(area, bio, false))
			return false;
	}
	direct_end_io = ADDRESS_AT(cell, struct bio, bio, bi_end_io);
	return true;
}

/*
 * The same for direct and compressed transfers of btrfs, whose pages do not lead to a file. btrfs
 * keeps the inode in the structure that contains the bio; its pointers must lead back to it. The
 * types may be those of a module.
 */
static __always_inline bool note_btrfs(struct block_cpu *area, __u64 bio)
{
	__u64 *cell = &area->scratch.cell;
	__u64 inode = 0, mapping, sb;

	if (!bpf_core_field_exists(((struct btrfs_bio *)0)->inode))
		return false;
	bio -= bpf_core_field_offset(struct btrfs_bio, bio);
	if (bpf_core_read(&inode, sizeof(inode), &((struct btrfs_bio *)bio)->inode) || !inode)
		return false;
	inode += bpf_core_field_offset(struct btrfs_inode, vfs_inode);
	mapping = ADDRESS_AT(cell, struct inode, inode, i_mapping);
	if (!mapping || ADDRESS_AT(cell, struct address_space, mapping, host) != inode)
		return false;
	sb = ADDRESS_AT(cell, struct inode, inode, i_sb);
	if (NUMBER_AT(struct super_block, sb, s_magic) != BTRFS_MAGIC)
		return false;
	note_inode(area, inode);
	return true;
}
