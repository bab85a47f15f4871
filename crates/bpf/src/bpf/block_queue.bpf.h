/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How long a bio waits before it has a request: for a tag, or in writeback throttling. Included by
 * block.bpf.c only.
 *
 * A bio is found again by its address, which the kernel may reuse unnoticed after the bio was
 * merged into an existing request. So its bi_end_io must still be the same, for all bios with the
 * same bi_end_io pass the hook. Requests whose bio is not found have no such time. Only bios whose
 * requests will be followed are noted.
 */

static __always_inline struct block_queued_pair *pair_of(__u64 bio)
{
	__u32 slot = (bio * 0x9e3779b97f4a7c15ULL) >> 40 & (BLOCK_QUEUED - 1);

	return bpf_map_lookup_elem(&queued, &slot);
}

/* The slot to note a bio in: its own, a free one, or that of the older of the two. */
static __always_inline struct block_queued *room_for(__u64 bio)
{
	struct block_queued_pair *pair = pair_of(bio);
	struct block_queued *first, *second;

	if (!pair)
		return 0;
	first = &pair->either[0];
	second = &pair->either[1];
	if (second->bio == bio)
		return second;
	if (first->bio == bio || !first->bio)
		return first;
	return !second->bio || second->t_ns < first->t_ns ? second : first;
}

static __always_inline struct block_queued *find_queued(__u64 *cell, __u64 bio)
{
	struct block_queued_pair *pair = pair_of(bio);
	struct block_queued *it;

	if (!pair)
		return 0;
	it = &pair->either[0];
	if (it->bio != bio)
		it = &pair->either[1];
	if (!bio || it->bio != bio)
		return 0;
	return it->end_io == ADDRESS_AT(cell, struct bio, bio, bi_end_io) ? it : 0;
}

static __always_inline int queue(__u64 argument)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct block_queued *it;
	bool wanted, let_go;
	__u64 bio;

	if (!area)
		return 0;
	area->queued++;
	bio = address_of(&area->queue_cell, (void *)argument);
	wanted = decide(area, bio);
	/* Every throttled bio has one of these flags; others may have them, too. */
	let_go = limits && NUMBER_AT(struct bio, bio, bi_flags) & limit_flags &&
		 is_let_go(&area->queue_cell);
	if (let_go)
		note_held(area, bio);
	if (!wanted)
		return 0;
	it = room_for(bio);
	if (!it)
		return 0;
	it->t_ns = bpf_ktime_get_ns();
	it->end_io = ADDRESS_AT(&area->queue_cell, struct bio, bio, bi_end_io);
	it->before = 0;
	it->held = let_go;
	it->bio = bio;
	return 0;
}

/*
 * A bio was split: its front became a bio of its own. The rest is submitted again without passing
 * block_bio_queue.
 */
static __always_inline int split(__u64 argument)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct block_queued *whole, *it;
	__u64 bio, rest, *cell;
	__u8 decision;

	if (!area)
		return 0;
	area->runs++;
	cell = &area->queue_cell;
	bio = address_of(cell, (void *)argument);
	rest = ADDRESS_AT(cell, struct bio, bio, bi_private);
	decision = *decision_of(rest);
	*decision_of(bio) = decision;
	if (decision & DECIDED_NO)
		return 0;
	whole = find_queued(cell, rest);
	it = room_for(bio);
	if (!whole || !it || it == whole)
		return 0;
	it->t_ns = whole->t_ns;
	it->held = whole->held;
	it->end_io = ADDRESS_AT(cell, struct bio, bio, bi_end_io);
	it->before = 0;
	it->bio = bio;
	return 0;
}

static __always_inline __u32 before(__u64 ns)
{
	ns >>= BLOCK_BEFORE_SHIFT;
	return ns < 0xfffffffeU ? ns + 1 : 0xffffffffU;
}

/*
 * A bio gets its request now. Used where requests are otherwise first seen at their insertion,
 * which is later.
 */
static __always_inline int create(__u64 argument)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct block_queued *it;

	if (!area)
		return 0;
	area->runs++;
	it = find_queued(&area->queue_cell, address_of(&area->queue_cell, (void *)argument));
	if (it)
		it->before = before(bpf_ktime_get_ns() - it->t_ns);
	return 0;
}

/* Stores in the request how long its bio waited before it, and frees the bio's slot. */
static __always_inline void note_before(__u64 *cell, struct block_start *start, __u64 bio)
{
	struct block_queued *it = find_queued(cell, bio);

	if (!it)
		return;
	if (it->before) {
		start->before = it->before;
		start->start_ns = it->t_ns + ((__u64)(it->before - 1) << BLOCK_BEFORE_SHIFT);
	} else {
		start->before = before(start->start_ns - it->t_ns);
	}
	if (it->held)
		start->by = BLOCK_BY_LIMIT;
	it->bio = 0;
}
