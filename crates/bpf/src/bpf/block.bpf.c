// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What is read from and written to block devices: by which process, for which file, why, and how
 * long it took.
 *
 * The submitter of a request is known only when it is created, the owners of its pages only when it
 * is completed: requests are merged in between. A request in flight has a slot in an array, found
 * by its address. At completion, one entry for each file is written to the CPU's part of a log that
 * the reader maps.
 */
#include "kern_io.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "block.h"
#include "read.bpf.h"
#include "current.bpf.h"
#include "inode.bpf.h"

#define barrier() asm volatile("" ::: "memory")

/* A request that is not completed within this time is stale: this probe missed its completion. */
#define STALE_NS 120000000000ULL

/* enum req_op (req_opf): the low values are the same in all kernels */
#define REQ_OP_MASK  0xff
#define REQ_OP_FLUSH 2
/* include/uapi/linux/magic.h */
#define BDEVFS_MAGIC 0x62646576

/* Set by the loader from facts about this kernel. */
const volatile __u32 log_entries = 4096; /* per CPU, a power of two */
const volatile bool io_start = true;     /* on_start is attached */
const volatile bool limits = false;      /* transfers throttled by a limit can be identified */
const volatile __u32 limit_flags = 0;    /* flags of a bio that was charged to an IO limit */

/* bi_end_io of iomap's direct IO, learned from the first such bio; 0 = none seen yet. */
__u64 direct_end_io = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BLOCK_STARTS);
	__type(key, __u32);
	__type(value, struct block_start);
} starts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BLOCK_QUEUED);
	__type(key, __u32);
	__type(value, struct block_queued_pair);
} queued SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BLOCK_HELD);
	__type(key, struct block_held_key);
	__type(value, struct block_held);
} held SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct block_entry);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct block_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BLOCK_WORKERS);
	__type(key, __u32);
	__type(value, struct block_worker);
} workers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BLOCK_SEEN);
	__type(key, __u32);
	__type(value, struct block_seen);
} seen SEC(".maps");

/* One entry per CPU: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct block_name);
} name_space SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} names SEC(".maps");

struct block_name exported_name = {};

#include "block_key.bpf.h"
#include "block_sample.bpf.h"
#include "block_held.bpf.h"
#include "block_queue.bpf.h"
#include "block_start.bpf.h"
#include "block_name.bpf.h"
#include "block_target.bpf.h"

/*
 * Defines two programs, of which the loader takes one: the request or bio is the first argument, or
 * the second one where the request queue comes first (up to 5.10).
 */
#define EITHER_HOOK(point, name, note)                     \
	SEC("tp_btf/" #point)                              \
	int name##_1(unsigned long long *ctx)              \
	{                                                  \
		unsigned long long hook_arg = arg(ctx, 0); \
                                                           \
		return note;                               \
	}                                                  \
	SEC("tp_btf/" #point)                              \
	int name##_2(unsigned long long *ctx)              \
	{                                                  \
		unsigned long long hook_arg = arg(ctx, 1); \
                                                           \
		return note;                               \
	}

/* --- before a request --- */

EITHER_HOOK(block_bio_queue, on_queue, queue(hook_arg))
EITHER_HOOK(block_split, on_split, split(hook_arg))
/* Used where there is no block_io_start. */
EITHER_HOOK(block_getrq, on_create, create(hook_arg))

/* --- creation --- */

SEC("tp_btf/block_io_start")
int on_start(unsigned long long *ctx)
{
	return begin((void *)arg(ctx, 0), false);
}

/* Used where there is no block_io_start. Requests that bypass the IO scheduler do not reach it. */
EITHER_HOOK(block_rq_insert, on_insert, begin((void *)hook_arg, true))
EITHER_HOOK(block_rq_issue, on_issue, issue((void *)hook_arg))
/* The request was merged into another one. */
EITHER_HOOK(block_rq_merge, on_merge, forget((void *)hook_arg))

/* --- completion --- */

/* May run several times for one request, each time for a part of it. */
SEC("tp_btf/block_rq_complete")
int on_complete(unsigned long long *ctx)
{
	__u32 cpu, bytes = arg(ctx, 2), slot = 0, i;
	struct block_cpu *area;
	struct block_start *start = 0;
	__u64 key = key_of((void *)arg(ctx, 0)), rq, bio;
	bool last;

	if (may_be_followed(key))
		start = find(key, &slot);
	if (!start && !all_followed)
		return 0;
	cpu = bpf_get_smp_processor_id();
	area = bpf_map_lookup_elem(&cpus, &cpu);
	if (!area)
		return 0;
	if (!start) {
		area->completed++;
		/* A request with a flush is completed a second time, with 0 bytes. */
		if (bytes)
			area->lost.start_unseen++;
		return 0;
	}
	area->completed += 1ULL << (start->shift & SHIFT_MASK);
	/* Before 6.2, a tracepoint's program may run again in an interrupt that arrives while it
	 * runs. */
	if (area->busy) {
		area->lost.nested++;
		release(start, slot);
		return 0;
	}
	area->busy = 1;
	barrier();
	rq = address_of(&area->scratch.cell, (void *)arg(ctx, 0));
	area->scratch.now_ns = bpf_ktime_get_ns();
	area->scratch.left = bytes;
	area->scratch.open = 0;
	area->scratch.cmd_flags = NUMBER_AT(struct request, rq, cmd_flags);
	area->scratch.disk = disk_of(&area->scratch.cell, rq);
	last = bytes >= NUMBER_AT(struct request, rq, __data_len);
	bio = ADDRESS_AT(&area->scratch.cell, struct request, rq, bio);
	if (!bio)
		tell_rest(cpu, slot);
	for (i = 0; i < BLOCK_BIOS && bio; i++)
		bio = tell_bio(bio, cpu, slot);
	if (i == BLOCK_BIOS && bio && area->scratch.left) {
		area->lost.bios_beyond++;
		tell_rest(cpu, slot);
	}
	if (area->scratch.open) {
		barrier();
		area->head++;
	}
	mind_the_log(area);
	if (last)
		release(start, slot);
	barrier();
	area->busy = 0;
	return 0;
}

/* --- why the kernel's workers write --- */

SEC("tp_btf/writeback_start")
int on_writeback_start(unsigned long long *ctx)
{
	struct wb_writeback_work *work = (void *)arg(ctx, 1);
	__u32 tid = bpf_get_current_pid_tgid(), cpu = bpf_get_smp_processor_id();
	__u32 slot = tid & (BLOCK_WORKERS - 1);
	struct block_worker *worker = bpf_map_lookup_elem(&workers, &slot);
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);

	if (!worker || !area)
		return 0;
	area->runs++;
	if (worker->tid && worker->tid != tid)
		area->lost.workers_collide++;
	worker->reason = work->reason + 1;
	worker->tid = tid;
	return 0;
}

SEC("tp_btf/writeback_written")
int on_writeback_written(unsigned long long *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid(), cpu = bpf_get_smp_processor_id();
	__u32 slot = tid & (BLOCK_WORKERS - 1);
	struct block_worker *worker = bpf_map_lookup_elem(&workers, &slot);
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);

	if (!worker || !area)
		return 0;
	area->runs++;
	if (worker->tid == tid)
		worker->tid = 0;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
