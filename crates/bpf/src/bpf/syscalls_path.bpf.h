/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Builds paths of files from the kernel's dentries, through mounts up to the root of the mount
 * namespace. Included by syscalls.bpf.c only.
 */

/*
 * Writes the path components of `mnt` and `dentry` into this CPU's scratch area, from the last to
 * the first, after the path passed to the call. Not inlined and not static, so that the verifier
 * checks it only once.
 */
__noinline int write_path(__u64 mnt, __u64 dentry, __u32 cpu)
{
	struct sys_scratch *scratch = bpf_map_lookup_elem(&scratches, &cpu);
	struct sys_cell *cells = bpf_map_lookup_elem(&cell_space, &cpu);
	__u64 mount, parent, text;
	__u32 offset, length, i;

	if (!scratch || !cells || !mnt || !dentry)
		return 0;
	mount = mnt - bpf_core_field_offset(struct mount, mnt);
	offset = scratch->file.text;
	for (i = 0; i < SYS_PARTS; i++) {
		__u64 root = ADDRESS_AT(&cells->cell, struct vfsmount, mnt, mnt_root);

		if (dentry == root) {
			parent = ADDRESS_AT(&cells->cell, struct mount, mount, mnt_parent);
			if (!parent || parent == mount) {
				scratch->file.complete = 1;
				break;
			}
			dentry = ADDRESS_AT(&cells->cell, struct mount, mount, mnt_mountpoint);
			mount = parent;
			mnt = mount + bpf_core_field_offset(struct mount, mnt);
			continue;
		}
		parent = ADDRESS_AT(&cells->cell, struct dentry, dentry, d_parent);
		text = ADDRESS_AT(&cells->cell, struct dentry, dentry, d_name.name);
		length = NUMBER_AT(struct dentry, dentry, d_name.len);
		if (length > 255 || offset >= SYS_PATH || offset + length >= SYS_PATH)
			break;
		if (bpf_probe_read_kernel(scratch->file.path + offset, length, (void *)text))
			break;
		offset += length;
		if (offset >= SYS_PATH)
			break;
		scratch->file.path[offset++] = 0;
		if (!parent || parent == dentry)
			break;
		dentry = parent;
	}
	scratch->file.length = offset;
	return 0;
}

/* Hash of the path of this length in the scratch area; the rest of its last word is ignored. */
static __always_inline __u64 hash_text(struct sys_scratch *scratch, __u32 length, __u64 hash)
{
	__u32 i;

	for (i = 0; i < SYS_TEXT / 8; i++) {
		__u64 word = *(__u64 *)(scratch->file.path + i * 8);

		if (i * 8 >= length)
			break;
		if (length - i * 8 < 8)
			word &= (1ULL << (length - i * 8) * 8) - 1;
		hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
	}
	return hash;
}
