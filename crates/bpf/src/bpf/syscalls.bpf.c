// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the system calls of selected threads cost: how many, how long, on which files.
 *
 * While these programs are attached, every thread of the host runs them at each system call, so
 * they begin with one array look-up at the index given by the thread's pid. The kernel does not run
 * a program that already runs on that CPU, so per-CPU amounts need no atomic operations; events
 * missed for that reason are counted by the kernel.
 */
#include "kern_sys.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "syscalls.h"
#include "read.bpf.h"
#include "fd.bpf.h"
#include "compat.bpf.h"

/* Only calls at least this long may take entries in the second half of the table of files. */
#define SYS_LONG_NS 100000

/* Set by the loader. */
const volatile __u32 thread_mask = 0; /* size of the thread table, a power of two, - 1 */
const volatile __u32 groups = 1;      /* number of groups of threads */
const volatile __u32 files_limit = SYS_FILES;
const volatile __u8 where_of[SYS_CALLS] = {}; /* enum sys_where | enum sys_op << 4 */

/* Children of this thread are observed from their first exec on; 0 = no such thread. */
__u32 starter = 0;
__u32 files_used = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sys_thread);
} threads SEC(".maps");

/* Statistics by CPU, group and system call number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SYS_CALLS);
	__type(key, __u32);
	__type(value, struct sys_stat);
} stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sys_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SYS_FILES);
	__type(key, struct sys_key);
	__type(value, struct sys_file);
} files SEC(".maps");

/* One entry per CPU: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sys_scratch);
} scratches SEC(".maps");

struct sys_cell {
	__u64 cell;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sys_cell);
} cell_space SEC(".maps");

/* Variables that exist for their types, which the reader uses. */
struct sys_key exported_key = {};
struct sys_file exported_file = {};
enum sys_op exported_op = SYS_OPEN;
enum sys_where exported_where = SYS_NOWHERE;

#include "syscalls_path.bpf.h"
#include "syscalls_file.bpf.h"
#include "syscalls_stat.bpf.h"

/* The entry of the thread table for this pid; it may hold another thread's pid, or 0. */
static __always_inline struct sys_thread *place_of(__u32 pid)
{
	__u32 place = pid & thread_mask;

	return bpf_map_lookup_elem(&threads, &place);
}

static __always_inline struct sys_cpu *this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline bool is_compat(const void *regs)
{
	if (bpf_core_field_exists(((struct thread_info *)0)->status))
		return is_compat_x86(bpf_get_current_task());
	if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->pstate))
		return ((const struct pt_regs___arm64 *)regs)->pstate & PSR_MODE32_BIT;
	return false;
}

static __always_inline __u64 first_argument(const void *regs)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->di))
		return ((const struct pt_regs___x86 *)regs)->di;
	if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->orig_x0))
		return ((const struct pt_regs___arm64 *)regs)->orig_x0;
	return 0;
}

static __always_inline __u64 second_argument(const void *regs)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->si))
		return ((const struct pt_regs___x86 *)regs)->si;
	if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->regs))
		return ((const struct pt_regs___arm64 *)regs)->regs[1];
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_enter, struct pt_regs *regs, long nr)
{
	__u32 pid = bpf_get_current_pid_tgid();
	struct sys_thread *thread = place_of(pid);

	if (!thread || thread->pid != pid)
		return 0;
	thread->off = 0;
	thread->off_ns = 0;
	thread->off_since_ns = 0;
	thread->nr = is_compat(regs)                 ? SYS_COMPAT
		     : (unsigned long)nr < SYS_OTHER ? (__u32)nr
						     : SYS_OTHER;
	thread->since_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_exit, struct pt_regs *regs, long result)
{
	__u32 pid = bpf_get_current_pid_tgid(), cpu, nr, where;
	struct sys_thread *thread = place_of(pid);
	struct sys_done done;
	struct sys_stat *stat;
	struct sys_cpu *area;

	if (!thread || thread->pid != pid)
		return 0;
	nr = thread->nr;
	thread->nr = SYS_NONE;
	if (nr >= SYS_CALLS || thread->armed)
		return 0;
	done.ns = bpf_ktime_get_ns() - thread->since_ns;
	done.off_ns = 0;
	done.wait_ns = 0;
	done.result = result;
	done.group = thread->group;
	if (thread->off) {
		__u64 task = bpf_get_current_task();

		done.off_ns = thread->off_ns < done.ns ? thread->off_ns : done.ns;
		if (bpf_core_field_exists(((struct sched_info *)0)->run_delay)) {
			done.wait_ns = NUMBER_AT(struct task_struct, task, sched_info.run_delay) -
				       thread->run_delay_ns;
			if (done.wait_ns > done.off_ns)
				done.wait_ns = done.off_ns;
		}
	}
	cpu = bpf_get_smp_processor_id();
	stat = stat_of(cpu, done.group, nr);
	if (!stat)
		return 0;
	add_call(stat, &done);
	where = where_of[nr];
	if (!where)
		return 0;
	area = bpf_map_lookup_elem(&cpus, &cpu);
	if (!area)
		return 0;
	done.op = where >> 4;
	account_file(area, &thread->cell, where & 15, first_argument(regs), second_argument(regs),
		     &done, cpu);
	return 0;
}

/* --- time off the CPU --- */

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 prev_pid = prev->pid, next_pid = next->pid;
	struct sys_thread *thread = place_of(prev_pid);

	if (thread && thread->pid == prev_pid && prev_pid && thread->nr != SYS_NONE) {
		if (!thread->off) {
			thread->off = 1;
			if (bpf_core_field_exists(((struct sched_info *)0)->run_delay))
				thread->run_delay_ns = prev->sched_info.run_delay;
		}
		thread->off_since_ns = bpf_ktime_get_ns();
	}
	thread = place_of(next_pid);
	if (thread && thread->pid == next_pid && thread->off_since_ns) {
		thread->off_ns += bpf_ktime_get_ns() - thread->off_since_ns;
		thread->off_since_ns = 0;
	}
	return 0;
}

/* --- which threads are observed --- */

static __always_inline void follow(__u32 pid, __u32 tgid, __u32 group, __u32 armed)
{
	struct sys_thread *thread = place_of(pid);
	struct sys_cpu *area = this_cpu();

	if (!thread || !area)
		return;
	/* Two live threads share this entry: the one that was there first is observed. */
	if (thread->pid && thread->pid != pid) {
		area->lost.threads_collide++;
		return;
	}
	thread->tgid = tgid;
	thread->group = group;
	thread->armed = armed;
	thread->nr = SYS_NONE;
	thread->off = 0;
	thread->off_since_ns = 0;
	thread->pid = pid;
	area->threads++;
	if (tgid == pid)
		area->processes++;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_pid = parent->pid, pid = child->pid, tgid = child->tgid;
	struct sys_thread *from = place_of(parent_pid);

	if (from && from->pid == parent_pid)
		follow(pid, tgid, from->group, from->armed);
	else if (starter && parent_pid == starter && pid == tgid)
		follow(pid, tgid, 0, 1);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, __u32 old_pid)
{
	__u32 pid = task->pid;
	struct sys_thread *thread = place_of(old_pid), *now;

	if (!thread || thread->pid != old_pid)
		return 0;
	thread->armed = 0;
	if (pid == old_pid)
		return 0;
	/* After an exec by a thread other than the leader, it continues under the leader's id. */
	now = place_of(pid);
	if (now && (!now->pid || now->pid == pid)) {
		*now = *thread;
		now->pid = pid;
	}
	thread->pid = 0;
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_end, struct task_struct *task)
{
	__u32 pid = task->pid;
	struct sys_thread *thread = place_of(pid);
	struct sys_stat *stat;

	if (!thread || thread->pid != pid)
		return 0;
	thread->pid = 0;
	if (thread->nr >= SYS_CALLS || thread->armed)
		return 0;
	stat = stat_of(bpf_get_smp_processor_id(), thread->group, thread->nr);
	if (stat)
		stat->unfinished++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
