// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Why there is something to write at a given time: passes of the flusher, the inodes that they
 * write and how long those were dirty, the threads that dirtied them, journal commits, syncs, and
 * pauses of threads that dirty too much.
 *
 * All hooks run in task context, none in interrupts, and tracepoints run with preemption disabled:
 * each CPU's part of the log has one writer at a time. (Real-time kernels from 7.x on may preempt:
 * there two events within the same microsecond can become one.)
 */
#include "kern_io.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "writeback.h"
#include "read.bpf.h"
#include "current.bpf.h"
#include "inode.bpf.h"

#define barrier() asm volatile("" ::: "memory")

/* Set by the loader. */
const volatile __u32 log_entries = 4096; /* per CPU, a power of two */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct writeback_event);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct writeback_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WRITEBACK_INODES);
	__type(key, __u32);
	__type(value, struct writeback_inode);
} inodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WRITEBACK_TASKS);
	__type(key, __u32);
	__type(value, struct writeback_task);
} tasks SEC(".maps");

/* --- the log --- */

/* The next entry of this CPU's part of the log, with its kind and time set. */
static __always_inline struct writeback_event *open_event(struct writeback_cpu **area, __u8 kind)
{
	__u32 cpu = bpf_get_smp_processor_id(), index;
	struct writeback_event *event;

	*area = bpf_map_lookup_elem(&cpus, &cpu);
	if (!*area)
		return 0;
	(*area)->runs++;
	index = cpu * log_entries + ((*area)->head & (log_entries - 1));
	event = bpf_map_lookup_elem(&entries, &index);
	if (!event)
		return 0;
	event->kind = kind;
	event->t_ns = bpf_ktime_get_ns();
	return event;
}

static __always_inline void close_event(struct writeback_cpu *area)
{
	barrier();
	area->head++;
}

static __always_inline void note_inode(struct writeback_cpu *area, struct writeback_event *event,
				       __u64 inode)
{
	__u64 sb = ADDRESS_AT(&area->cell, struct inode, inode, i_sb);

	event->ino = NUMBER_AT(struct inode, inode, i_ino);
	event->generation = NUMBER_AT(struct inode, inode, i_generation);
	event->fs = NUMBER_AT(struct super_block, sb, s_dev);
	event->subvolume = subvolume_of(inode, NUMBER_AT(struct super_block, sb, s_magic));
}

static __always_inline void note_bdi(struct writeback_cpu *area, struct writeback_event *event,
				     __u64 wb)
{
	__u64 bdi = ADDRESS_AT(&area->cell, struct bdi_writeback, wb, bdi);

	bpf_probe_read_kernel_str(
		event->bdi, sizeof(event->bdi),
		(void *)(bdi + bpf_core_field_offset(struct backing_dev_info, dev_name)));
}

/* --- the flusher --- */

static __always_inline int pass(unsigned long long *ctx, __u8 kind)
{
	struct wb_writeback_work *work = (void *)arg(ctx, 1);
	__u32 reason = work->reason + 1;
	struct writeback_cpu *area;
	struct writeback_event *event = open_event(&area, kind);

	if (!event)
		return 0;
	event->reason = reason;
	event->tid = bpf_get_current_pid_tgid();
	note_bdi(area, event, address_of(&area->cell, (void *)arg(ctx, 0)));
	close_event(area);
	return 0;
}

SEC("tp_btf/writeback_start")
int on_start(unsigned long long *ctx)
{
	return pass(ctx, WRITEBACK_PASS_BEGAN);
}

SEC("tp_btf/writeback_written")
int on_written(unsigned long long *ctx)
{
	return pass(ctx, WRITEBACK_PASS_ENDED);
}

/* A thread requests work from the flusher, and usually waits for it: sync(2), syncfs(2), a remount.
 * Writeback that the flusher starts by itself does not pass this hook. */
SEC("tp_btf/writeback_queue")
int on_asked(unsigned long long *ctx)
{
	struct wb_writeback_work *work = (void *)arg(ctx, 1);
	__u32 reason = work->reason + 1;
	struct writeback_cpu *area;
	struct writeback_event *event = open_event(&area, WRITEBACK_ASKED);

	if (!event)
		return 0;
	event->reason = reason;
	note_bdi(area, event, address_of(&area->cell, (void *)arg(ctx, 0)));
	NOTE_CURRENT(&area->cell, event);
	close_event(area);
	return 0;
}

static __always_inline bool is_same(struct writeback_inode *inode, struct writeback_event *event)
{
	return inode->ino == event->ino && inode->fs == event->fs &&
	       inode->generation == event->generation && inode->subvolume == event->subvolume;
}

/*
 * When this inode was last written back, 0 = not known; records that it is being written now. It
 * may be in either of two neighbouring slots; the less recently written of two inodes is evicted.
 */
static __always_inline __u64 written_before(struct writeback_cpu *area,
					    struct writeback_event *event)
{
	__u64 key = (event->ino ^ (__u64)event->fs << 32) + event->generation +
		    (event->subvolume << 40),
	      last = 0;
	__u32 slot = (key * 0x9e3779b97f4a7c15ULL) >> 32 & (WRITEBACK_INODES - 1);
	__u32 other = slot ^ 1;
	struct writeback_inode *inode = bpf_map_lookup_elem(&inodes, &slot);
	struct writeback_inode *beside = bpf_map_lookup_elem(&inodes, &other);

	if (!inode || !beside)
		return 0;
	if (!is_same(inode, event) &&
	    (is_same(beside, event) || beside->written_ns < inode->written_ns))
		inode = beside;
	if (is_same(inode, event)) {
		last = inode->written_ns;
	} else {
		if (inode->written_ns)
			area->lost.inodes_evicted++;
		inode->ino = event->ino;
		inode->subvolume = event->subvolume;
		inode->fs = event->fs;
		inode->generation = event->generation;
	}
	inode->written_ns = event->t_ns;
	return last;
}

/* At the start and not the end: by then the inode may have been dirtied again. */
SEC("tp_btf/writeback_single_inode_start")
int on_inode(unsigned long long *ctx)
{
	struct writeback_cpu *area;
	struct writeback_event *event = open_event(&area, WRITEBACK_WRITTEN);
	__u64 inode, dirtied;

	if (!event)
		return 0;
	inode = address_of(&area->cell, (void *)arg(ctx, 0));
	note_inode(area, event, inode);
	event->tid = bpf_get_current_pid_tgid();
	dirtied = NUMBER_AT(struct inode, inode, dirtied_when);
	event->amount = dirtied ? bpf_jiffies64() - dirtied : ~0ULL;
	event->begin_ns = written_before(area, event);
	close_event(area);
	return 0;
}

/* Called once each time a clean inode becomes dirty. */
SEC("tp_btf/writeback_dirty_inode_enqueue")
int on_dirtied(unsigned long long *ctx)
{
	struct writeback_cpu *area;
	struct writeback_event *event = open_event(&area, WRITEBACK_DIRTIED);

	if (!event)
		return 0;
	note_inode(area, event, address_of(&area->cell, (void *)arg(ctx, 0)));
	NOTE_CURRENT(&area->cell, event);
	close_event(area);
	return 0;
}

/* --- operations with a beginning and an end: commits and syncs --- */

static __always_inline struct writeback_task *task_slot(void)
{
	__u32 slot = (__u32)bpf_get_current_pid_tgid() & (WRITEBACK_TASKS - 1);

	return bpf_map_lookup_elem(&tasks, &slot);
}

static __always_inline int both_began(void)
{
	__u32 tid = bpf_get_current_pid_tgid(), cpu = bpf_get_smp_processor_id();
	struct writeback_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct writeback_task *task = task_slot();

	if (!area || !task)
		return 0;
	area->runs++;
	if (task->tid && task->tid != tid)
		area->lost.tasks_collide++;
	task->tid = tid;
	task->begin_ns = bpf_ktime_get_ns();
	task->blocks = 0;
	return 0;
}

/* Takes the operation that the current task began out of the table; 0 = none is known. */
static __always_inline struct writeback_task *both_ended(struct writeback_cpu *area)
{
	struct writeback_task *task = task_slot();

	if (!task || task->tid != (__u32)bpf_get_current_pid_tgid()) {
		area->lost.begin_unseen++;
		return 0;
	}
	task->tid = 0;
	return task;
}

SEC("tp_btf/ext4_sync_file_enter")
int on_sync_began(unsigned long long *ctx)
{
	return both_began();
}

static __always_inline int sync_ended(__u64 inode)
{
	struct writeback_cpu *area;
	struct writeback_event *event = open_event(&area, WRITEBACK_SYNC);
	struct writeback_task *task;

	if (!event)
		return 0;
	task = both_ended(area);
	if (!task)
		return 0;
	event->begin_ns = task->begin_ns;
	note_inode(area, event, address_of(&area->cell, (void *)inode));
	NOTE_CURRENT(&area->cell, event);
	close_event(area);
	return 0;
}

SEC("tp_btf/ext4_sync_file_exit")
int on_sync_ended(unsigned long long *ctx)
{
	return sync_ended(arg(ctx, 0));
}

#include "writeback_log.bpf.h"
#include "writeback_return.bpf.h"

/* --- pauses --- */

static __always_inline int paused(unsigned long long *ctx, __s64 jiffies)
{
	struct writeback_cpu *area;
	struct writeback_event *event;

	/* The hook is called, too, when the pause is too short to be made. */
	if (jiffies <= 0)
		return 0;
	event = open_event(&area, WRITEBACK_PAUSE);
	if (!event)
		return 0;
	event->amount = jiffies;
	note_bdi(area, event, address_of(&area->cell, (void *)arg(ctx, 0)));
	NOTE_CURRENT(&area->cell, event);
	close_event(area);
	return 0;
}

/* The pause is the second to last argument; kernels differ in the number of arguments. */
SEC("tp_btf/balance_dirty_pages")
int on_paused_8(unsigned long long *ctx)
{
	return paused(ctx, arg(ctx, 6));
}

SEC("tp_btf/balance_dirty_pages")
int on_paused_12(unsigned long long *ctx)
{
	return paused(ctx, arg(ctx, 10));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
