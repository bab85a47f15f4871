// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How long threads free memory before they get some: at the limit of a memory cgroup, for the whole
 * host, or to get a large page (compaction).
 *
 * A thread does one of these at a time: what it allocates meanwhile takes from the reserves. All
 * hooks run in task context.
 */
#include "kern_mm.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "sched.h"
#include "reclaim.h"
#include "read.bpf.h"
#include "current.bpf.h"

/* Set by the loader. */
const volatile bool knows_threads; /* `areas` and `threads` are those of the scheduler probe */
const volatile bool has_bounds;    /* memory cgroups can be read */

/* Parity of the reader's current second; it reads the sums of the other one. */
__u32 half = 0;
__u64 window_start_ns = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sched_area);
} areas SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sched_thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reclaim_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RECLAIM_TASKS);
	__type(key, __u32);
	__type(value, struct reclaim_task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RECLAIM_SUMS);
	__type(key, struct reclaim_key);
	__type(value, struct reclaim_sum);
} sums SEC(".maps");

/* Variables that exist for their types, which the reader uses. */
struct reclaim_key exported_key = {};
struct reclaim_sum exported_sum = {};
enum reclaim_kind exported_kind = RECLAIM_LIMIT;
enum reclaim_bound exported_bound = RECLAIM_BY_NONE;

/* --- what the scheduler probe knows --- */

/* The current thread's entry in the table of the scheduler probe; 0 = it has none there. */
static __always_inline struct sched_thread *account_of(__u32 tid)
{
	__u32 cpu = bpf_get_smp_processor_id(), slot;
	struct sched_area *area;
	struct sched_thread *thread;

	if (!knows_threads)
		return 0;
	area = bpf_map_lookup_elem(&areas, &cpu);
	if (!area)
		return 0;
	slot = area->cpu.slot;
	thread = bpf_map_lookup_elem(&threads, &slot);
	return thread && thread->tid == tid && thread->state == ST_ON_CPU ? thread : 0;
}

static __always_inline __u64 off_cpu_ns(struct sched_thread *thread)
{
	__u64 sum = 0;

#pragma unroll
	for (int state = ST_QUEUED; state < ST_MAX; state++)
		sum += thread->in_state_ns[state];
	return sum;
}

#include "reclaim_bound.bpf.h"

/* --- beginning and end --- */

static __always_inline struct reclaim_cpu *this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline struct reclaim_task *task_slot(__u32 tid)
{
	__u32 slot = tid & (RECLAIM_TASKS - 1);

	return bpf_map_lookup_elem(&tasks, &slot);
}

static __always_inline struct reclaim_task *began(struct reclaim_cpu *area, __u8 kind)
{
	__u64 current = bpf_get_current_task(), leader;
	__u32 tid = bpf_get_current_pid_tgid();
	struct reclaim_task *task = task_slot(tid);
	struct sched_thread *thread;

	if (!task)
		return 0;
	area->runs++;
	if (task->tid)
		area->lost.tasks_collide++;
	task->tid = 0;
	barrier();
	leader = ADDRESS_AT(&area->cell, struct task_struct, current, group_leader);
	task->leader_boot_ns = NUMBER_AT(struct task_struct, leader, start_boottime);
	task->tgid = NUMBER_AT(struct task_struct, current, tgid);
	task->kernel = !!(NUMBER_AT(struct task_struct, current, flags) & PF_KTHREAD);
	task->kind = kind;
	task->bound = RECLAIM_BY_NONE;
	task->cgroup = 0;
	task->limit_pages = 0;
	task->usage_pages = 0;
	task->begin_ns = bpf_ktime_get_ns();
	thread = account_of(tid);
	task->known = !!thread;
	if (thread) {
		task->memory_ns = thread->in_state_ns[ST_MEM_STALL];
		task->off_cpu_ns = off_cpu_ns(thread);
	}
	barrier();
	task->tid = tid;
	return task;
}

static __always_inline struct reclaim_sum *sum_of(struct reclaim_cpu *area,
						  struct reclaim_task *task)
{
	struct reclaim_key key = {
		.leader_boot_ns = task->leader_boot_ns,
		.cgroup = task->cgroup,
		.tgid = task->tgid,
		.kind = task->kind,
		.bound = task->bound,
		.kernel = task->kernel,
		.half = half & 1,
	};
	struct reclaim_sum none = {}, *sum = bpf_map_lookup_elem(&sums, &key);
	__u64 leader;

	if (sum)
		return sum;
	leader = ADDRESS_AT(&area->cell, struct task_struct, bpf_get_current_task(), group_leader);
	bpf_probe_read_kernel(none.comm, sizeof(none.comm),
			      (void *)(leader + bpf_core_field_offset(struct task_struct, comm)));
	bpf_map_update_elem(&sums, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sums, &key);
}

static __always_inline int ended(__u8 kind, __u64 pages)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct reclaim_task *task = task_slot(tid);
	struct reclaim_cpu *area = this_cpu();
	__u64 now = bpf_ktime_get_ns(), ns, begin_ns;
	struct sched_thread *thread;
	struct reclaim_sum *sum;

	if (!area || !task)
		return 0;
	area->runs++;
	if (task->tid != tid || task->kind != kind) {
		area->lost.begin_unseen++;
		return 0;
	}
	task->tid = 0;
	sum = sum_of(area, task);
	if (!sum) {
		area->lost.sums_full++;
		return 0;
	}
	begin_ns = task->begin_ns;
	if (begin_ns < window_start_ns)
		begin_ns = window_start_ns;
	ns = now > begin_ns ? now - begin_ns : 0;
	__sync_fetch_and_add(&sum->ns, ns);
	__sync_fetch_and_add(&sum->count, 1);
	/* Of a constant 0 the compiler makes an operation that 5.10 does not have. */
	if (pages)
		__sync_fetch_and_add(&sum->pages, pages);
	if (ns > sum->longest_ns)
		sum->longest_ns = ns;
	sum->limit_pages = task->limit_pages;
	sum->usage_pages = task->usage_pages;
	thread = account_of(tid);
	if (thread && task->known) {
		__u64 memory = thread->in_state_ns[ST_MEM_STALL] - task->memory_ns;
		__u64 off = off_cpu_ns(thread) - task->off_cpu_ns;

		__sync_fetch_and_add(&sum->known_ns, ns);
		__sync_fetch_and_add(&sum->memory_ns, memory < ns ? memory : ns);
		__sync_fetch_and_add(&sum->off_cpu_ns, off < ns ? off : ns);
	}
	return 0;
}

static __always_inline int limit_began(__u64 given)
{
	struct reclaim_cpu *area = this_cpu();
	struct reclaim_task *task = area ? began(area, RECLAIM_LIMIT) : 0;

	if (task && has_bounds)
		note_limit(task, &area->cell, given);
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int on_limit_began_2(unsigned long long *ctx)
{
	return limit_began(0);
}

/* From 7.x on the kernel tells from which memory cgroup. */
SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int on_limit_began_3(unsigned long long *ctx)
{
	struct reclaim_cpu *area = this_cpu();

	return area ? limit_began(address_of(&area->cell, (void *)arg(ctx, 2))) : 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int on_limit_ended(unsigned long long *ctx)
{
	return ended(RECLAIM_LIMIT, arg(ctx, 0));
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int on_direct_began(unsigned long long *ctx)
{
	struct reclaim_cpu *area = this_cpu();

	if (area)
		began(area, RECLAIM_DIRECT);
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int on_direct_ended(unsigned long long *ctx)
{
	return ended(RECLAIM_DIRECT, arg(ctx, 0));
}

SEC("tp_btf/mm_compaction_begin")
int on_compaction_began(unsigned long long *ctx)
{
	struct reclaim_cpu *area = this_cpu();

	if (area)
		began(area, RECLAIM_COMPACTION);
	return 0;
}

SEC("tp_btf/mm_compaction_end")
int on_compaction_ended(unsigned long long *ctx)
{
	return ended(RECLAIM_COMPACTION, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
