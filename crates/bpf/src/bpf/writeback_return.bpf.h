/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Syncs on filesystems that have a hook at their beginning and, except in newer kernels, none at
 * their end. Included by writeback.bpf.c only.
 *
 * Where a program can request a callback when a task returns to user space, that is taken as the
 * end. Elsewhere, and for threads that never return, only the beginning is reported, and the reader
 * polls whether the thread is still in the sync.
 */

/* include/linux/sched.h */
#define PF_IO_WORKER   0x00000010
#define PF_USER_WORKER 0x00004000

/* include/uapi/linux/bpf.h; the kernel recognises it by its name. */
struct bpf_task_work {
	__u64 __opaque;
} __attribute__((aligned(8)));

/* Not accessed, but the kernel compares a program's declarations of its functions with its own. */
struct bpf_map {
	__u32 id;
};

typedef int (*task_work_t)(struct bpf_map *map, void *key, void *value);

extern int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *work,
					 void *map__map, task_work_t callback) __ksym __weak;
/* The same function in the first kernel that had it. */
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *work,
					      void *map__map, task_work_t callback,
					      void *aux__prog) __ksym __weak;
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

struct writeback_return {
	struct bpf_task_work work;
	__u64 begin_ns;
	__u64 ino;
	__u64 subvolume;
	__u32 fs;
	__u32 generation;
	__u32 tid; /* 0 = free */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WRITEBACK_TASKS);
	__type(key, __u32);
	__type(value, struct writeback_return);
} returns SEC(".maps");

/* Reports the beginning of a sync only. */
static __always_inline int tell_began(__u64 inode)
{
	struct writeback_cpu *area;
	struct writeback_event *event = open_event(&area, WRITEBACK_SYNC_BEGAN);

	if (!event)
		return 0;
	note_inode(area, event, address_of(&area->cell, (void *)inode));
	NOTE_CURRENT(&area->cell, event);
	close_event(area);
	return 0;
}

/* Runs in the returning task, which may be preempted here: preemption is disabled so that this
 * CPU's part of the log has one writer at a time. */
static int on_return(struct bpf_map *map, void *key, void *value)
{
	struct writeback_return *back = value;
	struct writeback_cpu *area;
	struct writeback_event *event;

	bpf_preempt_disable();
	event = open_event(&area, WRITEBACK_SYNC);
	if (event) {
		event->begin_ns = back->begin_ns;
		event->ino = back->ino;
		event->subvolume = back->subvolume;
		event->fs = back->fs;
		event->generation = back->generation;
		NOTE_CURRENT(&area->cell, event);
		close_event(area);
	}
	bpf_preempt_enable();
	barrier();
	back->tid = 0;
	return 0;
}

static __always_inline int ask_for_return(struct writeback_return *back)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (bpf_ksym_exists(bpf_task_work_schedule_resume))
		return bpf_task_work_schedule_resume(task, &back->work, &returns, on_return);
	return bpf_task_work_schedule_resume_impl(task, &back->work, &returns, on_return, 0);
}

/* Reports a sync with its end: the return to user space. A system call that syncs several times is
 * reported once, from the first sync on. */
static __always_inline int tell_both(__u64 inode)
{
	__u32 tid = bpf_get_current_pid_tgid(), slot = tid & (WRITEBACK_TASKS - 1), flags;
	struct writeback_return *back = bpf_map_lookup_elem(&returns, &slot);
	__u32 cpu = bpf_get_smp_processor_id();
	struct writeback_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	__u64 sb;

	if (!back || !area)
		return 0;
	if (back->tid == tid)
		return 0;
	flags = NUMBER_AT(struct task_struct, bpf_get_current_task(), flags);
	if (flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER) ||
	    __sync_val_compare_and_swap(&back->tid, 0, tid))
		return tell_began(inode);
	area->runs++;
	inode = address_of(&area->cell, (void *)inode);
	sb = ADDRESS_AT(&area->cell, struct inode, inode, i_sb);
	back->begin_ns = bpf_ktime_get_ns();
	back->ino = NUMBER_AT(struct inode, inode, i_ino);
	back->generation = NUMBER_AT(struct inode, inode, i_generation);
	back->fs = NUMBER_AT(struct super_block, sb, s_dev);
	back->subvolume = subvolume_of(inode, NUMBER_AT(struct super_block, sb, s_magic));
	if (!ask_for_return(back))
		return 0;
	back->tid = 0;
	return tell_began(inode);
}

static __always_inline __u64 xfs_inode_of(unsigned long long *ctx)
{
	return argument(ctx, 0) + bpf_core_field_offset(struct xfs_inode, i_vnode);
}

static __always_inline __u64 file_inode_of(unsigned long long *ctx)
{
	struct file *file = (struct file *)argument(ctx, 0);
	struct inode *inode = 0;

	bpf_core_read(&inode, sizeof(inode), &file->f_inode);
	return (__u64)inode;
}

SEC("tp_btf/xfs_file_fsync")
int on_xfs_sync(unsigned long long *ctx)
{
	return tell_began(xfs_inode_of(ctx));
}

SEC("tp_btf/xfs_file_fsync")
int on_xfs_sync_both(unsigned long long *ctx)
{
	return tell_both(xfs_inode_of(ctx));
}

/* Newer kernels have hooks at both ends in place of btrfs_sync_file. */
SEC("tp_btf/btrfs_sync_file_enter")
int on_btrfs_sync_began(unsigned long long *ctx)
{
	return both_began();
}

SEC("tp_btf/btrfs_sync_file_exit")
int on_btrfs_sync_ended(unsigned long long *ctx)
{
	return sync_ended(file_inode_of(ctx));
}

SEC("tp_btf/btrfs_sync_file")
int on_btrfs_sync(unsigned long long *ctx)
{
	return tell_began(file_inode_of(ctx));
}

SEC("tp_btf/btrfs_sync_file")
int on_btrfs_sync_both(unsigned long long *ctx)
{
	return tell_both(file_inode_of(ctx));
}
