/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel fields that the block and writeback programs read, besides those of kern.h and with
 * the same conventions. Fields that only some kernels have are in the same struct as the others:
 * each additional struct costs libbpf a search of all kernel types, most of a millisecond.
 */
#ifndef DEBURR_KERN_IO_H
#define DEBURR_KERN_IO_H

#include "kern.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};

struct bvec_iter {
	unsigned int bi_size;
	unsigned int bi_idx;
};

struct bio {
	struct bio *bi_next;
	unsigned int bi_opf;
	unsigned short bi_flags;
	struct bvec_iter bi_iter;
	void *bi_end_io;
	void *bi_private;
	struct bio_vec *bi_io_vec;
	/* from 5.12: "block: store a block_device pointer in struct bio" */
	struct block_device *bi_bdev;
	struct gendisk *bi_disk; /* up to 5.11 */
	struct blkcg_gq *bi_blkg;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

/* --- the work queue that a kernel worker serves --- */

struct kthread {
	void *data;
};

struct worker {
	struct pool_workqueue *current_pwq;
};

struct pool_workqueue {
	struct workqueue_struct *wq;
};

struct workqueue_struct {
	char name[24];
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

/* from 6.18; before, "flags" is a number */
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

/* from 5.16; before, in struct page */
struct folio {
	struct address_space *mapping;
	unsigned long memcg_data;
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
};

/* Represents a mem_cgroup that may be removed; newer kernels charge file pages to it. */
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
	unsigned short i_mode;
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	unsigned int i_nlink;
	__u32 i_rdev; /* of a device */
	__u32 i_generation;
	unsigned long dirtied_when;
	struct hlist_head i_dentry;
};

/* --- btrfs, where it is built in or loaded --- */

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

/* From 6.3, "btrfs: store the inode in struct btrfs_bio". Contains the bio. */
struct btrfs_bio {
	struct btrfs_inode *inode;
	struct bio bio;
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

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	void *private_data;
	struct inode *f_inode;
	struct address_space *f_mapping;
	struct path f_path;
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

/* Its values differ between kernels. */
enum wb_reason {
	WB_REASON_ANY,
};

struct wb_writeback_work {
	enum wb_reason reason;
};

struct block_device {
	__u32 bd_dev;
	struct gendisk *bd_disk;
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

#pragma clang attribute pop

#endif
