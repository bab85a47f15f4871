/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which file a system call refers to, and the statistics of each file. Included by syscalls.bpf.c
 * only.
 */

/* A call that has returned. */
struct sys_done {
	__u64 ns;
	__u64 off_ns;
	__u64 wait_ns;
	__s64 result;
	__u32 op;
	__u32 group;
};

static __always_inline void add_to(struct sys_file *file, const struct sys_done *done)
{
	__u32 op = done->op & (SYS_OPS - 1);

	__sync_fetch_and_add(&file->calls[op], 1);
	__sync_fetch_and_add(&file->ns[op], done->ns);
	if (done->result < 0)
		__sync_fetch_and_add(&file->errors, 1);
	else if (op == SYS_READ || op == SYS_WRITE)
		__sync_fetch_and_add(&file->bytes, done->result);
	if (done->off_ns) {
		__sync_fetch_and_add(&file->off_ns, done->off_ns);
		__sync_fetch_and_add(&file->wait_ns, done->wait_ns);
	}
	if (file->max_ns < done->ns)
		file->max_ns = done->ns;
}

/* Whether a new file may be added: the second half of the table is reserved for long calls. */
static __always_inline bool admits(const struct sys_done *done)
{
	return files_used < files_limit / 2 ||
	       (files_used < files_limit && done->ns >= SYS_LONG_NS);
}

/* Location of a file, or of a path passed to a call. */
struct sys_place {
	struct sys_key key;
	/* Of the file, or of the directory that the path is relative to. */
	__u64 mnt;
	__u64 dentry;
	__u64 magic;
};

/* Adds a call to the statistics of its file, which is added to the table if there is room. */
static __always_inline void account(struct sys_cpu *area, struct sys_scratch *scratch,
				    const struct sys_place *place, const struct sys_done *done,
				    __u32 cpu)
{
	struct sys_file *file = bpf_map_lookup_elem(&files, &place->key);

	if (file) {
		add_to(file, done);
		return;
	}
	if (admits(done)) {
		__builtin_memset(&scratch->file, 0, __builtin_offsetof(struct sys_file, text));
		scratch->file.length = scratch->file.text;
		scratch->file.complete = 0;
		scratch->file.magic = place->magic;
		write_path(place->mnt, place->dentry, cpu);
		if (!bpf_map_update_elem(&files, &place->key, &scratch->file, BPF_NOEXIST))
			__sync_fetch_and_add(&files_used, 1);
		file = bpf_map_lookup_elem(&files, &place->key);
		if (file) {
			add_to(file, done);
			return;
		}
	}
	area->lost.files_full++;
	area->lost.files_full_ns += done->ns;
}

/* Finds the open file of a descriptor. */
static __always_inline bool locate_fd(struct sys_place *place, __u64 *cell, __u64 task, __u32 fd)
{
	__u64 file = file_of(cell, task, fd);
	__u64 inode, super;

	if (!file)
		return false;
	inode = ADDRESS_AT(cell, struct file, file, f_inode);
	super = ADDRESS_AT(cell, struct inode, inode, i_sb);
	place->key.id = NUMBER_AT(struct inode, inode, i_ino);
	place->key.fs = NUMBER_AT(struct super_block, super, s_dev);
	place->magic = NUMBER_AT(struct super_block, super, s_magic);
	place->mnt = ADDRESS_AT(cell, struct file, file, f_path.mnt);
	place->dentry = ADDRESS_AT(cell, struct file, file, f_path.dentry);
	return true;
}

/* Finds the directory that a relative path starts from. */
static __always_inline bool locate_start(struct sys_place *place, __u64 *cell, __u64 task, __u32 fd)
{
	__u64 from;

	if (fd == (__u32)AT_FDCWD) {
		from = ADDRESS_AT(cell, struct task_struct, task, fs);
		place->mnt = ADDRESS_AT(cell, struct fs_struct, from, pwd.mnt);
		place->dentry = ADDRESS_AT(cell, struct fs_struct, from, pwd.dentry);
	} else {
		from = file_of(cell, task, fd);
		if (!from)
			return false;
		place->mnt = ADDRESS_AT(cell, struct file, from, f_path.mnt);
		place->dentry = ADDRESS_AT(cell, struct file, from, f_path.dentry);
	}
	return true;
}

/* Adds a call to the statistics of the file that its arguments, or its result, name. */
static __always_inline void account_file(struct sys_cpu *area, __u64 *cell, __u32 where,
					 __u64 first, __u64 second, const struct sys_done *done,
					 __u32 cpu)
{
	struct sys_scratch *scratch = bpf_map_lookup_elem(&scratches, &cpu);
	struct sys_place place = {};
	__u64 task = bpf_get_current_task();
	__u32 fd = where == SYS_FD_1 ? second : first;
	bool by_fd = where <= SYS_FD_1;
	bool opened = (where == SYS_OPENS || where == SYS_OPENS_0) && done->result >= 0;
	long length = 0;

	if (!scratch)
		return;
	scratch->file.text = 0;
	scratch->file.cut = 0;
	if (opened) {
		fd = done->result;
	} else if (!by_fd) {
		bool at = where == SYS_AT || where == SYS_OPENS;

		length = bpf_probe_read_user_str(scratch->file.path, SYS_TEXT,
						 (void *)(at ? second : first));
		if (!at)
			fd = AT_FDCWD;
		if (length <= 0 || length > SYS_TEXT)
			goto unread;
	}
	/* An empty path means the descriptor itself. */
	if (by_fd || opened || length == 1) {
		if (!locate_fd(&place, cell, task, fd))
			goto unread;
	} else {
		if (scratch->file.path[0] != '/' && !locate_start(&place, cell, task, fd))
			goto unread;
		scratch->file.text = length - 1;
		scratch->file.cut = length == SYS_TEXT;
		place.key.id = hash_text(scratch, length - 1, place.dentry);
		place.key.fs = length;
		place.key.of = 1;
	}
	place.key.of |= done->group << 1;
	account(area, scratch, &place, done, cpu);
	return;
unread:
	area->lost.unread++;
	area->lost.unread_ns += done->ns;
}
