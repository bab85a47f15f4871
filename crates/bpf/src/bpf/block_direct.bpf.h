/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The file of a transfer that does not go through the page cache: its pages are those of a process,
 * or of nobody, and lead to no file. Included by block_target.bpf.h only.
 */

/*
 * The inode that a direct transfer belongs to, if `bi_private` is what iomap keeps of one: a file
 * on the filesystem on this device, and all that should lead back to it does. Nothing else passes
 * for that.
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
 * The same for a transfer of which it is known what a direct one looks like. A large one is split:
 * the parts but the last are bios of the block layer, and lead to the whole by `bi_private`.
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

/* The same, and learns what they look like. */
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
 * The same for a transfer whose pages lead to no file: what btrfs reads directly, or compressed. It
 * keeps the inode beside the bio; all that should lead back to it does. The types may be those of a
 * module.
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
