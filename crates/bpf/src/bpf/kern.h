/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel fields that deburr's programs read: nothing else of the kernel is depended on. Offsets
 * are relocated against the running kernel's BTF when a program is loaded (CO-RE), so order and
 * padding here mean nothing. A suffix after three underscores marks another shape of the same
 * struct.
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
};

struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	unsigned int on_cpu; /* a byte in 7.x: only loads of unsigned fields adapt their size */
	unsigned int flags;
	char comm[TASK_COMM_LEN];
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct sched_entity se;
	struct sched_info sched_info;
	struct css_set *cgroups;
	struct task_group *sched_task_group;
	unsigned int in_iowait : 1;
};

/* up to 5.15: "sched: move CPU field back into thread_info if THREAD_INFO_IN_TASK=y" */
struct task_struct___old_cpu {
	unsigned int cpu;
};

/* with CONFIG_PSI */
struct task_struct___psi {
	unsigned int in_memstall : 1;
};

/* from 5.14: "sched: Change task_struct::state" */
struct task_struct___new_state {
	unsigned int __state;
};

struct task_struct___old_state {
	volatile long state;
};

/* from 6.18: "sched/fair: Switch to task based throttle model" */
struct task_struct___task_throttle {
	bool throttled;
};

/*
 * --- block IO ---
 *
 * Fields that not all kernels have stand beside the others: each different struct here costs libbpf
 * a search of all the kernel's types, most of a millisecond.
 */

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};

struct bvec_iter {
	__u64 bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
};

struct bio {
	struct bio *bi_next;
	struct bvec_iter bi_iter;
	void *bi_end_io;
	void *bi_private;
	struct bio_vec *bi_io_vec;
	/* from 5.12: "block: store a block_device pointer in struct bio" */
	struct block_device *bi_bdev;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk; /* from 5.17: "block: remove the rq_disk field in struct request" */
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	__u64 __sector;
	struct bio *bio;
	struct gendisk *rq_disk; /* up to 5.16 */
};

/* include/linux/page-flags.h: its values differ between kernels */
enum pageflags {
	PG_swapbacked,
};

/* from 6.18; "flags" is a number before */
struct page___memdesc {
	struct {
		unsigned long f;
	} flags;
};

struct page {
	unsigned long flags;
	unsigned long compound_head;
	/* From 7.x: the address of the head, or where sizeof(struct page) is a power of two, a mask
	 * for it. */
	unsigned long compound_info;
	struct address_space *mapping;
	unsigned long memcg_data;      /* from 5.11 */
	struct mem_cgroup *mem_cgroup; /* up to 5.10 */
};

/* from 5.16; "page" before */
struct folio {
	struct address_space *mapping;
	unsigned long memcg_data;
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
};

/* Stands for a mem_cgroup that may go; newer kernels charge the pages of files to it. */
struct obj_cgroup {
	struct mem_cgroup *memcg;
};

struct address_space {
	struct inode *host;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
	struct block_device *s_bdev;
	struct backing_dev_info *s_bdi;
	void *s_fs_info;
};

struct inode {
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	unsigned int i_nlink;
	__u32 i_generation;
	unsigned long dirtied_when;
	struct hlist_head i_dentry;
};

/* --- btrfs, where it is there --- */

struct btrfs_key {
	__u64 objectid;
};

struct btrfs_root {
	struct btrfs_key root_key;
};

struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
};

struct qstr {
	__u32 len;
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	union {
		struct hlist_node d_alias;
	} d_u;
	struct hlist_node d_alias; /* newer kernels may have it here */
};

struct file {
	struct inode *f_inode;
	struct address_space *f_mapping;
};

struct kiocb {
	struct file *ki_filp;
};

struct iomap_dio {
	struct kiocb *iocb;
};

/* --- writeback --- */

struct backing_dev_info {
	char dev_name[64];
};

struct bdi_writeback {
	struct backing_dev_info *bdi;
};

/* its values differ between kernels */
enum wb_reason {
	WB_REASON_ANY,
};

struct wb_writeback_work {
	enum wb_reason reason;
};

struct block_device {
	__u32 bd_dev;
};

struct journal_s {
	struct block_device *j_fs_dev;
};

struct transaction_run_stats_s {
	__u32 rs_blocks_logged;
};

struct xfs_inode {
	struct inode i_vnode;
};

struct xfs_mount {
	struct super_block *m_super;
};

struct xlog {
	struct xfs_mount *l_mp;
};

struct xlog_in_core {
	struct xlog *ic_log;
};

struct btrfs_fs_info {
	struct super_block *sb;
};

struct bpf_iter_meta;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* include/linux/sched.h; the values are the same from 4.14 to 7.x */
#define TASK_INTERRUPTIBLE     0x0001
#define TASK_UNINTERRUPTIBLE   0x0002
#define TASK_STOPPED_OR_TRACED 0x000c
#define TASK_DEAD              0x0080
#define TASK_NOLOAD            0x0400
#define TASK_RTLOCK_WAIT       0x1000

#endif
