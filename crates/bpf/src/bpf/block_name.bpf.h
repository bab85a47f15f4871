/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sends the name of each file once, read from the dentries that the kernel has in memory. Included
 * by block.bpf.c only.
 */

static __always_inline __u64 dentry_of(__u64 *cell, __u64 inode)
{
	__u64 alias = ADDRESS_AT(cell, struct inode, inode, i_dentry.first);

	if (!alias)
		return 0;
	if (bpf_core_field_exists(((struct dentry *)0)->d_u.d_alias))
		return alias - bpf_core_field_offset(struct dentry, d_u.d_alias);
	return alias - bpf_core_field_offset(struct dentry, d_alias);
}

/*
 * Sends the name of the file described by the scratch area; 0 = sent. Not inlined and not static,
 * so that the verifier checks it only once.
 */
__noinline int send_name(__u64 inode, __u32 cpu)
{
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct block_name *name = bpf_map_lookup_elem(&name_space, &cpu);
	__u64 dentry, parent, text;
	__u32 offset = 0, length, i;

	if (!area || !name)
		return 1;
	name->ino = area->scratch.ino;
	name->subvolume = area->scratch.subvolume;
	name->fs = area->scratch.fs;
	name->generation = area->scratch.generation;
	name->deleted = !NUMBER_AT(struct inode, inode, i_nlink);
	name->complete = 0;
	dentry = dentry_of(&area->scratch.cell, inode);
	for (i = 0; i < BLOCK_PARTS && dentry; i++) {
		parent = ADDRESS_AT(&area->scratch.cell, struct dentry, dentry, d_parent);
		if (parent == dentry) {
			name->complete = 1;
			break;
		}
		text = ADDRESS_AT(&area->scratch.cell, struct dentry, dentry, d_name.name);
		length = NUMBER_AT(struct dentry, dentry, d_name.len);
		if (length > 255 || offset >= BLOCK_NAME || offset + length >= BLOCK_NAME)
			break;
		if (bpf_probe_read_kernel(name->path + offset, length, (void *)text))
			break;
		offset += length;
		if (offset >= BLOCK_NAME)
			break;
		name->path[offset++] = 0;
		dentry = parent;
	}
	if (offset > BLOCK_NAME)
		offset = BLOCK_NAME;
	name->length = offset;
	if (!bpf_ringbuf_output(&names, name, __builtin_offsetof(struct block_name, path) + offset,
				BPF_RB_NO_WAKEUP))
		return 0;
	area->lost.names_deferred++;
	return 1;
}

static __always_inline bool is_seen(struct block_seen *file, struct block_scratch *scratch)
{
	return file->ino == scratch->ino && file->fs == scratch->fs &&
	       file->generation == scratch->generation && file->subvolume == scratch->subvolume;
}

/* Sends the name of a file that is not in `seen`: it is new, or another file took its slot. */
static __always_inline void see(struct block_cpu *area, __u32 cpu)
{
	struct block_scratch *scratch = &area->scratch;
	__u64 key = (scratch->ino ^ (__u64)scratch->fs << 32) + scratch->generation +
		    (scratch->subvolume << 40);
	__u32 slot = (key * 0x9e3779b97f4a7c15ULL) >> 32 & (BLOCK_SEEN - 1), other = slot ^ 1;
	struct block_seen *file = bpf_map_lookup_elem(&seen, &slot), *beside;

	if (!file || is_seen(file, scratch))
		return;
	beside = bpf_map_lookup_elem(&seen, &other);
	if (!beside || is_seen(beside, scratch))
		return;
	if (send_name(scratch->inode, cpu))
		return;
	if (file->ino && (!beside->ino || area->head & 1))
		file = beside;
	file->ino = scratch->ino;
	file->subvolume = scratch->subvolume;
	file->fs = scratch->fs;
	file->generation = scratch->generation;
}
