/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a bio waits for before it has a request: a tag, or writeback throttling. Included by
 * block.bpf.c only.
 *
 * A bio is found again by its address. That is used anew by others, without our being told where a
 * bio was merged into a request that existed; so it must still be of the same kind, and all that
 * are of a kind are queued. Requests whose bio is not found have no such time. Noted are bios whose
 * requests will be followed.
 */

static __always_inline struct block_queued_pair *pair_of(__u64 bio)
{
	__u32 slot = (bio * 0x9e3779b97f4a7c15ULL) >> 40 & (BLOCK_QUEUED - 1);

	return bpf_map_lookup_elem(&queued, &slot);
}

/* Where to note it: over itself, where there is room, or over the older one. */
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
	/* Other bios may bear these flags, too, but none of these lacks them. */
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

/* The front of a bio got one of its own; what is left of the bio comes again and is not told of. */
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

/* It gets a request now. Where that is told at the request's insertion only, which is later. */
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

/* Notes in the request how long its bio waited before, and forgets the bio. */
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
