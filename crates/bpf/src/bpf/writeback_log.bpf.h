/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Commits of journals and logs. Included by writeback.bpf.c only.
 *
 * All types here may be those of a module, for which bpf_rdonly_cast() cannot be used.
 */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WRITEBACK_BUFFERS);
	__type(key, __u32);
	__type(value, struct writeback_buffer);
} buffers SEC(".maps");

static __always_inline struct writeback_buffer *buffer_slot(__u64 buffer)
{
	__u32 slot = (buffer * 0x9e3779b97f4a7c15ULL) >> 32 & (WRITEBACK_BUFFERS - 1);

	return bpf_map_lookup_elem(&buffers, &slot);
}

/* The argument as a number. Some kernels treat arguments of a module's hook as pointers that may be
 * NULL, and allow no arithmetic on them. */
static __always_inline __u64 argument(unsigned long long *ctx, int number)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct writeback_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);

	return area ? address_of(&area->cell, (void *)arg(ctx, number)) : 0;
}

static __always_inline __u32 device_of_sb(struct super_block *sb)
{
	__u32 device = 0;

	bpf_core_read(&device, sizeof(device), &sb->s_dev);
	return device;
}

/* --- jbd2: ext4, ocfs2 --- */

SEC("tp_btf/jbd2_start_commit")
int on_commit_began(unsigned long long *ctx)
{
	return both_began();
}

SEC("tp_btf/jbd2_run_stats")
int on_commit_counted(unsigned long long *ctx)
{
	struct transaction_run_stats_s *stats = (void *)argument(ctx, 2);
	__u32 blocks = 0, cpu = bpf_get_smp_processor_id();
	struct writeback_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct writeback_task *task = task_slot();

	if (area)
		area->runs++;
	bpf_core_read(&blocks, sizeof(blocks), &stats->rs_blocks_logged);
	if (task && task->tid == (__u32)bpf_get_current_pid_tgid())
		task->blocks = (__u64)blocks + 1;
	return 0;
}

SEC("tp_btf/jbd2_end_commit")
int on_commit_ended(unsigned long long *ctx)
{
	struct journal_s *journal = (void *)argument(ctx, 0);
	struct block_device *device = 0;
	struct writeback_cpu *area;
	struct writeback_event *event = open_event(&area, WRITEBACK_COMMIT);
	struct writeback_task *task;

	if (!event)
		return 0;
	task = both_ended(area);
	if (!task)
		return 0;
	event->begin_ns = task->begin_ns;
	event->amount = task->blocks;
	event->journal = WRITEBACK_JBD2;
	bpf_core_read(&device, sizeof(device), &journal->j_fs_dev);
	event->fs = 0;
	bpf_core_read(&event->fs, sizeof(event->fs), &device->bd_dev);
	close_event(area);
	return 0;
}

/* --- xfs --- */

/* xfs writes its log in buffers (iclogs); each is written and waited for as a unit. */
SEC("tp_btf/xlog_iclog_sync")
int on_buffer_began(unsigned long long *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct writeback_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	__u64 address;
	struct writeback_buffer *buffer;

	if (!area)
		return 0;
	area->runs++;
	address = address_of(&area->cell, (void *)arg(ctx, 0));
	buffer = buffer_slot(address);
	if (!buffer)
		return 0;
	if (buffer->buffer && buffer->buffer != address)
		area->lost.tasks_collide++;
	buffer->buffer = address;
	buffer->begin_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/xlog_iclog_sync_done")
int on_buffer_ended(unsigned long long *ctx)
{
	struct writeback_cpu *area;
	struct writeback_event *event = open_event(&area, WRITEBACK_COMMIT);
	struct writeback_buffer *buffer;
	struct xfs_mount *mount = 0;
	struct super_block *sb = 0;
	struct xlog *log = 0;
	__u64 address;

	if (!event)
		return 0;
	address = address_of(&area->cell, (void *)arg(ctx, 0));
	buffer = buffer_slot(address);
	if (!buffer || buffer->buffer != address) {
		area->lost.begin_unseen++;
		return 0;
	}
	buffer->buffer = 0;
	event->begin_ns = buffer->begin_ns;
	event->amount = 0;
	event->journal = WRITEBACK_XFS;
	bpf_core_read(&log, sizeof(log), &((struct xlog_in_core *)address)->ic_log);
	bpf_core_read(&mount, sizeof(mount), &log->l_mp);
	bpf_core_read(&sb, sizeof(sb), &mount->m_super);
	event->fs = device_of_sb(sb);
	close_event(area);
	return 0;
}

/* --- btrfs --- */

/* Called at the end. The reader finds the duration in the kernel's own statistics. */
SEC("tp_btf/btrfs_transaction_commit")
int on_transaction_ended(unsigned long long *ctx)
{
	struct writeback_cpu *area;
	struct writeback_event *event = open_event(&area, WRITEBACK_COMMIT);
	struct btrfs_fs_info *info;
	struct super_block *sb = 0;
	__u64 address;
	void *back = 0;

	if (!event)
		return 0;
	address = address_of(&area->cell, (void *)arg(ctx, 0));
	info = (struct btrfs_fs_info *)address;
	bpf_core_read(&sb, sizeof(sb), &info->sb);
	bpf_core_read(&back, sizeof(back), &sb->s_fs_info);
	event->begin_ns = 0;
	event->amount = 0;
	event->journal = WRITEBACK_BTRFS;
	/* Other kernels pass another structure, such as a root: then the filesystem is not known.
	 */
	event->fs = back == info ? device_of_sb(sb) : 0;
	close_event(area);
	return 0;
}
