/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Transfers that were throttled by an IO limit (io.max, blkio.throttle.*). Included by block.bpf.c
 * only.
 *
 * The kernel holds back a bio above its cgroup's limit before it reaches any hook, and submits it
 * later from a dedicated work queue. So exactly the bios that are queued from that work queue were
 * throttled. The flags of a bio do not show this: they only mean that it was charged to a limit.
 */

#define LIMITS_QUEUE "kthrotld"

/* Whether the current task is a kernel worker that runs work of that queue. */
static __always_inline bool is_let_go(__u64 *cell)
{
	__u64 task = bpf_get_current_task(), address;
	char name[sizeof(LIMITS_QUEUE)] = {};
	__u32 i;

	if (!(NUMBER_AT(struct task_struct, task, flags) & PF_WQ_WORKER))
		return false;
	if (bpf_core_field_exists(((struct task_struct *)0)->worker_private))
		address = ADDRESS_AT(cell, struct task_struct, task, worker_private);
	else
		address = ADDRESS_AT(cell, struct task_struct, task, set_child_tid);
	if (!address)
		return false;
	address = ADDRESS_AT(cell, struct kthread, address, data);
	if (!address)
		return false;
	address = ADDRESS_AT(cell, struct worker, address, current_pwq);
	if (!address)
		return false;
	address = ADDRESS_AT(cell, struct pool_workqueue, address, wq);
	if (!address)
		return false;
	address += __builtin_preserve_field_info(((struct workqueue_struct *)0)->name,
						 BPF_FIELD_BYTE_OFFSET);
	if (bpf_probe_read_kernel(name, sizeof(name), (void *)address))
		return false;
#pragma unroll
	for (i = 0; i < sizeof(LIMITS_QUEUE); i++) {
		if (name[i] != LIMITS_QUEUE[i])
			return false;
	}
	return true;
}

static __always_inline __u64 blkcg_id(__u64 *cell, __u64 bio)
{
	__u64 address = ADDRESS_AT(cell, struct bio, bio, bi_blkg);

	if (!address)
		return 0;
	address = ADDRESS_AT(cell, struct blkcg_gq, address, blkcg);
	if (!address)
		return 0;
	address = ADDRESS_AT(cell, struct blkcg, address, css.cgroup);
	if (!address)
		return 0;
	address = ADDRESS_AT(cell, struct cgroup, address, kn);
	return address ? NUMBER_AT(struct kernfs_node, address, id) : 0;
}

static __always_inline __u32 disk_of_bio(__u64 *cell, __u64 bio)
{
	__u64 disk;

	if (bpf_core_field_exists(((struct bio *)0)->bi_disk)) {
		disk = ADDRESS_AT(cell, struct bio, bio, bi_disk);
	} else {
		disk = ADDRESS_AT(cell, struct bio, bio, bi_bdev);
		disk = disk ? ADDRESS_AT(cell, struct block_device, disk, bd_disk) : 0;
	}
	if (!disk)
		return 0;
	return NUMBER_AT(struct gendisk, disk, major) << 20 |
	       NUMBER_AT(struct gendisk, disk, first_minor);
}

static __always_inline void note_held(struct block_cpu *area, __u64 bio)
{
	__u64 *cell = &area->queue_cell;
	__u32 op = NUMBER_AT(struct bio, bio, bi_opf) & REQ_OP_MASK;
	struct block_held_key key = {
		.cgroup = blkcg_id(cell, bio),
		.disk = disk_of_bio(cell, bio),
		.op = op < 2 ? op : 2,
	};
	struct block_held none = {}, *sum = bpf_map_lookup_elem(&held, &key);

	area->held++;
	if (!sum) {
		bpf_map_update_elem(&held, &key, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&held, &key);
	}
	if (!sum) {
		area->lost.held_full++;
		return;
	}
	__sync_fetch_and_add(&sum->ios, 1);
	__sync_fetch_and_add(&sum->bytes, NUMBER_AT(struct bio, bio, bi_iter.bi_size));
}
