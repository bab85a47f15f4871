/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Requests in flight: who submitted each, and when. Included by block.bpf.c only.
 *
 * Where requests are sampled, the others must cost next to nothing: one byte shows whether a
 * request may be a followed one, before anything else is read.
 *
 * A request may be in either of two neighbouring slots. When two CPUs take the same slot within the
 * same nanoseconds, it holds the second request; the first then completes unseen, which is counted.
 */

/* For each pair of slots, whether one of them is taken. */
__u8 followed[BLOCK_STARTS / 2] = {};

static __always_inline __u32 slot_of(__u64 key)
{
	return (key * 0x9e3779b97f4a7c15ULL) >> 32 & (BLOCK_STARTS - 1);
}

static __always_inline bool may_be_followed(__u64 key)
{
	return followed[slot_of(key) >> 1];
}

static __always_inline struct block_start *find(__u64 key, __u32 *slot)
{
	struct block_start *start;

	*slot = slot_of(key);
	start = bpf_map_lookup_elem(&starts, slot);
	if (start && start->key == key)
		return start;
	*slot ^= 1;
	start = bpf_map_lookup_elem(&starts, slot);
	return start && start->key == key ? start : 0;
}

/* Frees the slot of a request. */
static __always_inline void release(struct block_start *start, __u32 slot)
{
	__u32 other = slot ^ 1;
	struct block_start *beside = bpf_map_lookup_elem(&starts, &other);

	start->key = 0;
	followed[(slot & (BLOCK_STARTS - 1)) >> 1] = beside && beside->key;
}

/* The writeback reason of the current task, + 1; 0 = it is not a worker in a writeback pass. */
static __always_inline __u8 writeback_reason(__u32 tid, __u32 flags)
{
	__u32 slot = tid & (BLOCK_WORKERS - 1);
	struct block_worker *worker;

	if (!(flags & PF_WQ_WORKER))
		return 0;
	worker = bpf_map_lookup_elem(&workers, &slot);
	return worker && worker->tid == tid ? worker->reason : 0;
}

static __always_inline struct block_start *place(struct block_cpu *area, __u64 key, __u64 now)
{
	__u32 slot = slot_of(key), i;
	struct block_start *start;

#pragma unroll
	for (i = 0; i < 2; i++, slot ^= 1) {
		start = bpf_map_lookup_elem(&starts, &slot);
		if (start && (!start->key || now - start->start_ns > STALE_NS))
			return start;
	}
	area->lost.starts_full++;
	return 0;
}

/*
 * Starts to follow a request. `start` = its slot, if it has one already. `by_submitter` = the
 * current task submitted it; `bio` is its first bio then.
 */
static __always_inline void take(struct block_cpu *area, __u64 *cell, __u64 key, __u64 bio,
				 struct block_start *start, __u32 shift, bool by_submitter)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 flags;

	if (!start)
		start = place(area, key, now);
	if (!start)
		return;
	start->start_ns = now;
	start->issue_ns = 0;
	start->reported = 0;
	start->shift = shift;
	start->before = 0;
	if (by_submitter) {
		flags = NOTE_CURRENT(cell, start);
		start->by = flags & PF_KTHREAD ? BLOCK_BY_KERNEL : BLOCK_BY_PROCESS;
		start->reason = writeback_reason(start->tid, flags);
		note_before(cell, start, bio);
	} else {
		start->tid = 0;
		start->tgid = 0;
		start->leader_boot_ns = 0;
		start->by = BLOCK_BY_PROCESS;
		start->reason = 0;
		__builtin_memset(start->comm, 0, sizeof(start->comm));
	}
	followed[slot_of(key) >> 1] = 1;
	barrier();
	start->key = key;
}

/* A request is created or inserted. `again` = it may be a request that is known already. */
static __always_inline int begin(struct request *rq, bool again)
{
	__u32 cpu = bpf_get_smp_processor_id(), slot, shift;
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct block_start *start;
	__u64 key = key_of(rq), bio;
	bool wanted;

	if (!area)
		return 0;
	area->begun++;
	bio = ADDRESS_AT(&area->start_cell, struct request, rq, bio);
	wanted = again ? is_always_followed(rq, &shift) : is_followed(area, bio, &shift);
	if (!wanted && !may_be_followed(key))
		return 0;
	start = find(key, &slot);
	if (again && start)
		return 0;
	/* The kernel reused the request's memory: it was completed without the hook being called.
	 * Some kernels run no program in an interrupt of a protected process. */
	if (start)
		area->lost.completion_unseen += 1ULL << (start->shift & SHIFT_MASK);
	if (wanted)
		take(area, &area->start_cell, key, bio, start, shift, true);
	else if (start)
		release(start, slot);
	return 0;
}

/* A request is issued that has no slot yet. */
static __always_inline struct block_start *begin_late(struct block_cpu *area, struct request *rq,
						      bool flush)
{
	__u64 *cell = &area->issue_cell, key = key_of(rq);
	__u32 slot, shift;

	if (flush) {
		shift = sample_shift;
		if (!is_its_turn(bpf_get_prandom_u32(), shift))
			return 0;
	} else if (!is_always_followed(rq, &shift)) {
		return 0;
	}
	take(area, cell, key, ADDRESS_AT(cell, struct request, rq, bio), 0, shift, !flush);
	return find(key, &slot);
}

static __always_inline int issue(struct request *rq)
{
	struct block_start *start = 0;
	struct block_cpu *area;
	__u64 key = key_of(rq);
	__u32 cpu, slot;
	bool flush = false;

	if (may_be_followed(key))
		start = find(key, &slot);
	if (!start) {
		/* The block layer's own flushes do not pass the hook for creation. The task that
		 * issues one is not its submitter. */
		flush = (rq->cmd_flags & REQ_OP_MASK) == REQ_OP_FLUSH;
		if (io_start && !flush)
			return 0;
	}
	cpu = bpf_get_smp_processor_id();
	area = bpf_map_lookup_elem(&cpus, &cpu);
	if (!area)
		return 0;
	if (!start)
		start = begin_late(area, rq, flush);
	if (!start)
		return 0;
	area->issued += 1ULL << (start->shift & SHIFT_MASK);
	start->issue_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int forget(struct request *rq)
{
	__u32 cpu = bpf_get_smp_processor_id(), slot;
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct block_start *start;
	__u64 key = key_of(rq);

	if (area)
		area->runs++;
	if (!may_be_followed(key))
		return 0;
	start = find(key, &slot);
	if (start)
		release(start, slot);
	return 0;
}
