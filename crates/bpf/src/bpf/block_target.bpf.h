/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the pages of a request belong to, and the entries of the log. Included by block.bpf.c only.
 */

/* Low bits of page->mapping, include/linux/page-flags.h; of memcg_data, include/linux/memcontrol.h.
 */
#define MAPPING_ANON    1
#define MAPPING_MOVABLE 2
#define MAPPING_FLAGS   3
#define MEMCG_OBJECTS   3
#define MEMCG_FLAGS     7

/* In-memory filesystems, include/uapi/linux/magic.h: a transfer between their pages and a disk is
 * made by a process from shared memory. Pages that are swapped out have left them before. */
#define TMPFS_MAGIC     0x01021994
#define HUGETLBFS_MAGIC 0x958458f6

static __always_inline __u32 disk_of(__u64 *cell, __u64 rq)
{
	__u64 disk, queue;

	if (bpf_core_field_exists(((struct request_queue *)0)->disk)) {
		queue = ADDRESS_AT(cell, struct request, rq, q);
		disk = ADDRESS_AT(cell, struct request_queue, queue, disk);
	} else {
		disk = ADDRESS_AT(cell, struct request, rq, rq_disk);
	}
	return (__u32)NUMBER_AT(struct gendisk, disk, major) << 20 |
	       NUMBER_AT(struct gendisk, disk, first_minor);
}

/* The head page of the folio that this page belongs to. */
static __always_inline __u64 head_of(__u64 *cell, __u64 page)
{
	__u64 head;

	if (bpf_core_field_exists(((struct page *)0)->compound_head)) {
		head = ADDRESS_AT(cell, struct page, page, compound_head);
	} else {
		head = ADDRESS_AT(cell, struct page, page, compound_info);
		if (head & 1 && (__s64)head > -(1LL << 36))
			return page & (head | 1);
	}
	return head & 1 ? head - 1 : page;
}

static __always_inline __u64 mapping_of(__u64 *cell, __u64 page)
{
	if (bpf_core_field_exists(((struct folio *)0)->mapping))
		return ADDRESS_AT(cell, struct folio, page, mapping);
	return ADDRESS_AT(cell, struct page, page, mapping);
}

/* Id of the cgroup that the page is charged to; 0 = not known. */
static __always_inline __u64 owner_of(__u64 *cell, __u64 page)
{
	__u64 data = 0, cgroup, node;

	if (bpf_core_field_exists(((struct folio *)0)->memcg_data))
		data = ADDRESS_AT(cell, struct folio, page, memcg_data);
	else if (bpf_core_field_exists(((struct page *)0)->memcg_data))
		data = ADDRESS_AT(cell, struct page, page, memcg_data);
	else if (bpf_core_field_exists(((struct page *)0)->mem_cgroup))
		data = ADDRESS_AT(cell, struct page, page, mem_cgroup);
	if (!data || data & MEMCG_OBJECTS)
		return 0;
	data &= ~(__u64)MEMCG_FLAGS;
	cgroup = ADDRESS_AT(cell, struct mem_cgroup, data, css.cgroup);
	node = ADDRESS_AT(cell, struct cgroup, cgroup, kn);
	/* Where this does not lead back, it is an obj_cgroup. Only kernels that have the cast, too,
	 * charge file pages to those, and with the cast the check costs nothing. */
	if (bpf_ksym_exists(bpf_rdonly_cast) &&
	    bpf_core_field_exists(((struct obj_cgroup *)0)->memcg) &&
	    ADDRESS_AT(cell, struct kernfs_node, node, priv) != cgroup) {
		data = ADDRESS_AT(cell, struct obj_cgroup, data, memcg);
		cgroup = ADDRESS_AT(cell, struct mem_cgroup, data, css.cgroup);
		node = ADDRESS_AT(cell, struct cgroup, cgroup, kn);
		if (ADDRESS_AT(cell, struct kernfs_node, node, priv) != cgroup)
			return 0;
	}
	return NUMBER_AT(struct kernfs_node, node, id);
}

/* Stores the inode and its attributes in the scratch area. */
static __always_inline void note_inode(struct block_cpu *area, __u64 inode)
{
	__u64 sb = ADDRESS_AT(&area->scratch.cell, struct inode, inode, i_sb);
	__u64 magic = NUMBER_AT(struct super_block, sb, s_magic);

	area->scratch.inode = inode;
	area->scratch.ino = NUMBER_AT(struct inode, inode, i_ino);
	area->scratch.generation = NUMBER_AT(struct inode, inode, i_generation);
	area->scratch.fs = NUMBER_AT(struct super_block, sb, s_dev);
	area->scratch.subvolume = subvolume_of(inode, magic);
	/* btrfs keeps its trees in inode 1. */
	if (magic == BDEVFS_MAGIC || (magic == BTRFS_MAGIC && area->scratch.ino == 1))
		area->scratch.kind = BLOCK_DEVICE;
	else if (magic == TMPFS_MAGIC || magic == HUGETLBFS_MAGIC)
		area->scratch.kind = BLOCK_ANON;
	else
		area->scratch.kind = BLOCK_FILE;
}

#include "block_direct.bpf.h"

/* Whether a page that belongs to nothing is being swapped in: the request itself does not show it.
 */
static __always_inline bool is_swap(__u64 page)
{
	unsigned long flags = 0;

	if (!bpf_core_enum_value_exists(enum pageflags, PG_swapbacked))
		return false;
	if (bpf_core_field_exists(((struct page___memdesc *)0)->flags.f))
		flags = NUMBER_AT(struct page___memdesc, page, flags.f);
	else if (bpf_core_field_exists(((struct page *)0)->flags))
		flags = NUMBER_AT(struct page, page, flags);
	return flags >> bpf_core_enum_value(enum pageflags, PG_swapbacked) & 1;
}

/* Stores in the scratch area what the pages of this bio belong to, judged by the first page. */
static __always_inline void note_target(struct block_cpu *area, __u64 bio)
{
	__u64 *cell = &area->scratch.cell;
	__u64 end_io = ADDRESS_AT(cell, struct bio, bio, bi_end_io);
	__u64 vec = ADDRESS_AT(cell, struct bio, bio, bi_io_vec), page, mapping, inode;

	area->scratch.ino = 0;
	area->scratch.subvolume = 0;
	area->scratch.generation = 0;
	area->scratch.fs = 0;
	area->scratch.cgroup = 0;
	area->scratch.kind = BLOCK_NO_PAGES;
	if (!vec || !NUMBER_AT(struct bio, bio, bi_iter.bi_size))
		return;
	/* Before the pages are examined: a process may transfer memory that is mapped from a file
	 * or shared, and then the pages belong to that file. */
	if (direct_end_io ? note_known_direct(area, bio, end_io) : note_first_direct(area, bio))
		return;
	vec += NUMBER_AT(struct bio, bio, bi_iter.bi_idx) *
	       (__u64)bpf_core_type_size(struct bio_vec);
	page = ADDRESS_AT(cell, struct bio_vec, vec, bv_page);
	if (!page)
		return;
	page = head_of(cell, page);
	mapping = mapping_of(cell, page);
	if (mapping && !(mapping & MAPPING_FLAGS)) {
		inode = ADDRESS_AT(cell, struct address_space, mapping, host);
		/* XFS also submits buffers from slabs, whose pages hold something else here. */
		if (inode && ADDRESS_AT(cell, struct inode, inode, i_mapping) == mapping) {
			note_inode(area, inode);
			if (area->scratch.kind == BLOCK_ANON)
				note_btrfs(area, bio);
			area->scratch.cgroup = owner_of(cell, page);
			return;
		}
	}
	if (!note_btrfs(area, bio)) {
		if (mapping & MAPPING_ANON)
			area->scratch.kind = BLOCK_ANON;
		else
			area->scratch.kind = is_swap(page) ? BLOCK_SWAP : BLOCK_PRIVATE;
	}
	area->scratch.cgroup = owner_of(cell, page);
}

static __always_inline struct block_entry *entry_at(struct block_cpu *area, __u32 cpu)
{
	__u32 index = cpu * log_entries + (area->head & (log_entries - 1));

	return bpf_map_lookup_elem(&entries, &index);
}

/* Adds bytes to the open entry if it has the same target, or opens the next entry. */
static __always_inline void tell(struct block_cpu *area, struct block_start *start, __u32 cpu,
				 __u32 bytes)
{
	struct block_entry *entry = entry_at(area, cpu);

	if (!entry)
		return;
	if (area->scratch.open) {
		if (entry->ino == area->scratch.ino && entry->kind == area->scratch.kind &&
		    entry->fs == area->scratch.fs &&
		    entry->generation == area->scratch.generation &&
		    entry->subvolume == area->scratch.subvolume &&
		    entry->owner_cgroup == area->scratch.cgroup) {
			entry->bytes += bytes;
			return;
		}
		barrier();
		area->head++;
		barrier();
		entry = entry_at(area, cpu);
		if (!entry)
			return;
	}
	area->scratch.open = 1;
	entry->start_ns = start->start_ns;
	entry->issue_ns = start->issue_ns;
	entry->done_ns = area->scratch.now_ns;
	entry->ino = area->scratch.ino;
	entry->owner_cgroup = area->scratch.cgroup;
	entry->leader_boot_ns = start->leader_boot_ns;
	entry->bytes = bytes;
	entry->disk = area->scratch.disk;
	entry->fs = area->scratch.fs;
	entry->generation = area->scratch.generation;
	entry->subvolume = area->scratch.subvolume;
	entry->tid = start->tid;
	entry->tgid = start->tgid;
	entry->cmd_flags = area->scratch.cmd_flags;
	entry->weight = 1U << start->shift;
	__builtin_memcpy(entry->comm, start->comm, sizeof(entry->comm));
	entry->kind = area->scratch.kind;
	entry->reason = start->reason;
	entry->first = !start->reported;
	entry->by = start->by;
	entry->before = start->before;
	start->reported = 1;
}

/* Logs one bio of a request. Returns the next bio; 0 = done. Not inlined and not static, so that
 * the verifier checks it only once. */
__noinline __u64 tell_bio(__u64 bio, __u32 cpu, __u32 slot)
{
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct block_start *start = bpf_map_lookup_elem(&starts, &slot);
	__u64 bytes;

	if (!area || !start)
		return 0;
	bytes = NUMBER_AT(struct bio, bio, bi_iter.bi_size);
	if (bytes > area->scratch.left)
		bytes = area->scratch.left;
	area->scratch.left -= bytes;
	note_target(area, bio);
	if (area->scratch.kind == BLOCK_FILE)
		see(area, cpu);
	tell(area, start, cpu, bytes);
	if (!area->scratch.left)
		return 0;
	return ADDRESS_AT(&area->scratch.cell, struct bio, bio, bi_next);
}

/* Logs the remaining bytes of a request that has no pages, or too many bios. */
__noinline int tell_rest(__u32 cpu, __u32 slot)
{
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct block_start *start = bpf_map_lookup_elem(&starts, &slot);

	if (!area || !start)
		return 0;
	area->scratch.ino = 0;
	area->scratch.subvolume = 0;
	area->scratch.generation = 0;
	area->scratch.fs = 0;
	area->scratch.cgroup = 0;
	area->scratch.kind = area->scratch.open ? BLOCK_UNKNOWN : BLOCK_NO_PAGES;
	tell(area, start, cpu, area->scratch.left);
	return 0;
}
