/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Requests in flight: who submitted each, and when. Included by block.bpf.c only.
 *
 * A request may be in either of two neighbouring slots. Two CPUs that take the same slot within the
 * same nanoseconds leave the second request in it; the first is then completed unseen, and counted.
 */

static __always_inline __u32 slot_of(__u64 rq)
{
	return (rq * 0x9e3779b97f4a7c15ULL) >> 32 & (BLOCK_STARTS - 1);
}

static __always_inline struct block_start *find(__u64 rq, __u32 *slot)
{
	struct block_start *start;

	*slot = slot_of(rq);
	start = bpf_map_lookup_elem(&starts, slot);
	if (start && start->rq == rq)
		return start;
	*slot ^= 1;
	start = bpf_map_lookup_elem(&starts, slot);
	return start && start->rq == rq ? start : 0;
}

/* Whether this one is followed. Counting serves better than the request's address does: a
 * submitter that waits for each of its requests gets the same one again and again. Where a request
 * is asked for twice, the answer must be the same, and the counter cannot serve. */
static __always_inline bool is_sampled(struct block_cpu *area, __u64 rq, bool twice)
{
	__u32 number = area->begun, every = (1U << (sample_shift & 31)) - 1;

	if (!every)
		return true;
	if (twice)
		number = rq >> 6 ^ NUMBER_AT(struct request, rq, __sector);
	return !((number * 0x9e3779b1U) >> 12 & every);
}

/* Why the current task writes back, + 1; 0 = it does not, or for itself. */
static __always_inline __u8 writeback_reason(__u32 tid, __u32 flags)
{
	__u32 slot = tid & (BLOCK_WORKERS - 1);
	struct block_worker *worker;

	if (!(flags & PF_WQ_WORKER))
		return 0;
	worker = bpf_map_lookup_elem(&workers, &slot);
	return worker && worker->tid == tid ? worker->reason : 0;
}

static __always_inline struct block_start *place(struct block_cpu *area, __u64 rq, __u64 now)
{
	__u32 slot = slot_of(rq), i;
	struct block_start *start;

#pragma unroll
	for (i = 0; i < 2; i++, slot ^= 1) {
		start = bpf_map_lookup_elem(&starts, &slot);
		if (start && (!start->rq || now - start->start_ns > STALE_NS))
			return start;
	}
	area->lost.starts_full++;
	return 0;
}

static __always_inline void take(struct block_cpu *area, __u64 *cell, __u64 rq,
				 struct block_start *start, bool by_submitter)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 flags;

	if (!start)
		start = place(area, rq, now);
	if (!start)
		return;
	start->start_ns = now;
	start->issue_ns = 0;
	start->told = 0;
	start->shift = sample_shift;
	start->before = 0;
	if (by_submitter) {
		flags = NOTE_CURRENT(cell, start);
		start->by = flags & PF_KTHREAD ? BLOCK_BY_KERNEL : BLOCK_BY_PROCESS;
		start->reason = writeback_reason(start->tid, flags);
		note_before(cell, start, ADDRESS_AT(cell, struct request, rq, bio));
	} else {
		start->tid = 0;
		start->tgid = 0;
		start->leader_boot_ns = 0;
		start->by = BLOCK_BY_PROCESS;
		start->reason = 0;
		__builtin_memset(start->comm, 0, sizeof(start->comm));
	}
	barrier();
	start->rq = rq;
}

/* `again` = it may be a request that is known already. */
static __always_inline int begin(__u64 argument, bool again)
{
	__u32 cpu = bpf_get_smp_processor_id(), slot;
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct block_start *start;
	__u64 rq;

	if (!area)
		return 0;
	area->begun++;
	rq = address_of(&area->start_cell, (void *)argument);
	start = find(rq, &slot);
	if (again && start)
		return 0;
	if (is_sampled(area, rq, again))
		take(area, &area->start_cell, rq, start, true);
	else if (start)
		start->rq = 0;
	return 0;
}

static __always_inline int issue(__u64 argument)
{
	__u32 cpu = bpf_get_smp_processor_id(), slot;
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct block_start *start;
	__u64 rq;

	if (!area)
		return 0;
	area->issued++;
	rq = address_of(&area->issue_cell, (void *)argument);
	start = find(rq, &slot);
	if (!start) {
		bool flush =
			(NUMBER_AT(struct request, rq, cmd_flags) & REQ_OP_MASK) == REQ_OP_FLUSH;

		/* The block layer's own flushes are not created. Whoever issues one did so for
		 * others. */
		if (io_start ? !flush : false)
			return 0;
		if (!is_sampled(area, rq, true))
			return 0;
		take(area, &area->issue_cell, rq, 0, !flush);
		start = find(rq, &slot);
		if (!start)
			return 0;
	}
	start->issue_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int forget(__u64 argument)
{
	__u32 cpu = bpf_get_smp_processor_id(), slot;
	struct block_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct block_start *start;

	if (!area)
		return 0;
	area->runs++;
	start = find(address_of(&area->merge_cell, (void *)argument), &slot);
	if (start)
		start->rq = 0;
	return 0;
}
