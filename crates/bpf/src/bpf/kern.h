/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel fields that deburr's programs read; they depend on no others. Offsets are relocated
 * against the running kernel's BTF when a program is loaded (CO-RE), so order and padding are
 * irrelevant here. A suffix after three underscores marks another version of the same struct.
 */
#ifndef DEBURR_KERN_H
#define DEBURR_KERN_H

#include "base.h"

#define TASK_COMM_LEN 16

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
	void *priv;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_group {
	struct cgroup_subsys_state css;
};

struct rq {
	__u64 clock;
	__u64 clock_task;
	int cpu;
};

/* 5.18 "sched/fair: Consider CPU utilization in clock_pelt": throttling is accounted on clock_pelt.
 */
struct rq___pelt {
	__u64 clock_pelt;
	unsigned long lost_idle_time;
};

struct cfs_rq {
	struct rq *rq;
};

struct cfs_rq___bandwidth {
	int throttle_count;
};

/* up to 5.17 */
struct cfs_rq___task_clock {
	__u64 throttled_clock_task;
	__u64 throttled_clock_task_time;
};

/* 5.18 to 6.5 (still there later, but second choice) */
struct cfs_rq___pelt_clock {
	__u64 throttled_clock_pelt;
	__u64 throttled_clock_pelt_time;
};

/* from 6.6: "sched: add throttled time stat for throttled children" */
struct cfs_rq___self_clock {
	__u64 throttled_clock_self;
	__u64 throttled_clock_self_time;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct sched_info {
	unsigned long pcount;
	unsigned long long run_delay;
	unsigned long long last_arrival;
	unsigned long long last_queued;
};

struct thread_info {
	__u32 cpu;
	__u32 status; /* x86 only */
};

struct signal_struct {
	struct {
		unsigned int counter;
	} live; /* threads of the process that have not begun to end */
};

struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	unsigned int on_cpu; /* one byte in 7.x: CO-RE adapts the size of unsigned loads only */
	unsigned int on_rq;  /* likewise */
	unsigned int flags;
	unsigned int exit_state; /* not 0: it has ended */
	char comm[TASK_COMM_LEN];
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct sched_entity se;
	struct sched_info sched_info;
	struct css_set *cgroups;
	struct task_group *sched_task_group;
	unsigned int in_iowait : 1;
	void *worker_private; /* from 5.17: struct kthread of a kernel thread */
	int *set_child_tid;   /* up to 5.16: the same for kernel threads */
	struct files_struct *files;
	struct fs_struct *fs;
	struct signal_struct *signal;
	void *stack;
};

/* For loads whose size CO-RE does not adapt: all of them have the number in the first byte. */
struct task_struct___first_byte {
	__u8 on_cpu;
};

/* up to 5.15: "sched: move CPU field back into thread_info if THREAD_INFO_IN_TASK=y" */
struct task_struct___old_cpu {
	unsigned int cpu;
};

/* from 6.16, with CONFIG_DETECT_HUNG_TASK_BLOCKER; rw-semaphores from 6.17 */
struct task_struct___blocker {
	unsigned long blocker; /* the lock that it sleeps for; low bits: of what kind */
};

struct rw_semaphore {
	unsigned int count; /* only its place is used */
};

/* from 5.8 */
struct mm_struct___lock {
	struct rw_semaphore mmap_lock;
};

struct task_struct___mm {
	void *mm;
};

/* with CONFIG_CGROUPS */
struct task_struct___cgroups {
	unsigned int frozen : 1;
};

/* with CONFIG_PSI */
struct task_struct___psi {
	unsigned int in_memstall : 1;
};

struct psi_group_cpu {
	__u64 state_start;
};

/* from 5.14: "sched: Change task_struct::state" */
struct task_struct___new_state {
	unsigned int __state;
};

struct task_struct___old_state {
	unsigned long state;
};

/* from 6.18: "sched/fair: Switch to task based throttle model" */
struct task_struct___task_throttle {
	bool throttled;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct file;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
};

#pragma clang attribute pop

/* include/linux/sched.h; the values are the same from 4.14 to 7.x */
#define TASK_INTERRUPTIBLE     0x0001
#define TASK_UNINTERRUPTIBLE   0x0002
#define TASK_STOPPED_OR_TRACED 0x000c
#define TASK_DEAD              0x0080
#define TASK_NOLOAD            0x0400
#define TASK_RTLOCK_WAIT       0x1000
#define TASK_FROZEN            0x8000 /* since 6.1; no state before */

/* The same header: kernel threads, and threads of a process that work for the kernel only. */
#define PF_KTHREAD     0x00200000
#define PF_IO_WORKER   0x00000010
#define PF_USER_WORKER 0x00004000

/* include/linux/preempt.h: what a CPU does besides running a thread */
#define SERVES_SOFTIRQ 0x00000100
#define HARDIRQ_MASK   0x000f0000
#define NMI_MASK       0x00f00000

#endif
