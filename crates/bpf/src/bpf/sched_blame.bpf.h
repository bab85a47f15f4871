/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which processes a thread waited behind: each CPU keeps its last RUNS runs of threads in a ring,
 * and a wait is compared with them. Included by sched.bpf.c only.
 *
 * Most waits lie within one run; a few more runs are walked exactly. The rest of a longer wait is
 * sampled at POINTS random times, one in each of as many equal parts, so that the blame is unbiased
 * and its sum exact.
 */

static __always_inline __u32 wait_bucket(__u64 ns)
{
	/* ns / 1000; for values of 32 bits by multiplication, with a relative error of at most
	 * 10^-6 at bucket boundaries. */
	__u64 us = unlikely(ns >> 32) ? ns / 1000 : (ns * 4294968) >> 32;
	__u32 bucket = 0;

	/* Four powers of two at a time: a short wait needs one comparison. */
	while (us >= 16 && bucket < WAIT_BUCKETS) {
		us >>= 4;
		bucket += 4;
	}
	/* 0 -> 0, 1 -> 1, 2..3 -> 2, 4..7 -> 3, 8..15 -> 4 */
	bucket += (0x4444444433332210ULL >> ((us & 15) * 4)) & 15;
	return bucket < WAIT_BUCKETS ? bucket : WAIT_BUCKETS - 1;
}

static __noinline int spill_over(struct sched_area *area, __u32 victim, __u32 culprit, __u64 ns)
{
	struct sched_spill_key key = { .victim = victim, .culprit = culprit };
	__u64 *sum = bpf_map_lookup_elem(&spill, &key);

	if (sum) {
		__sync_fetch_and_add(sum, ns);
		return 0;
	}
	area->cpu.spills++;
	if (bpf_map_update_elem(&spill, &key, &ns, BPF_NOEXIST)) {
		/* The map is full, or another CPU inserted the pair first. */
		sum = bpf_map_lookup_elem(&spill, &key);
		if (sum)
			__sync_fetch_and_add(sum, ns);
		else
			area->cpu.lost.blame_table_full_ns += ns;
	}
	return 0;
}

static __always_inline __u32 first_place(__u32 tgid)
{
	return (tgid ^ (tgid >> 3)) & (CULPRITS - 1);
}

static __noinline int add_culprit(struct sched_area *area, struct sched_blame *blame, __u32 victim,
				  __u32 tgid, __u64 ns)
{
	__u32 first = first_place(tgid), second = first ^ (CULPRITS / 2);
	struct sched_culprit *c = &blame->culprit[first], *d = &blame->culprit[second];

	if (!tgid) {
		blame->wakeup_ns += ns;
	} else if (c->tgid == tgid || (!c->tgid && d->tgid != tgid)) {
		c->tgid = tgid;
		c->ns += ns;
	} else if (d->tgid == tgid || !d->tgid) {
		d->tgid = tgid;
		d->ns += ns;
	} else {
		spill_over(area, victim, tgid, ns);
	}
	return 0;
}

/*
 * Which run on that CPU includes this time, counted back from the newest (1): the oldest one that
 * ends after it, found by a search without branches.
 */
static __always_inline __u32 stay_at(struct sched_area *area, __u64 head, __u64 moment)
{
	__u32 age = 1;

#pragma unroll
	for (__u32 step = RUNS / 2; step; step >>= 1) {
		__s64 later = moment - area->run[(head - age - step) & (RUNS - 1)].end_ns;

		/* The sign as a mask: a comparison would be a branch, and make 2^12 paths to
		 * verify. */
		asm volatile("" : "+r"(later));
		age += step & (__u32)(later >> 63);
	}
	return age;
}

/* Samples [from_ns, to_ns) of the scratch area on that CPU, if that is within budget; otherwise
 * adds it to unsampled_ns. */
static __noinline int blame_sampled(struct sched_area *area, struct sched_area *where,
				    struct sched_blame *blame, __u32 victim)
{
	volatile struct sched_scratch *scratch = &area->cpu.scratch;
	__u64 now = area->cpu.since_ns, head = where->cpu.head,
	      all = scratch->to_ns - scratch->from_ns + blame->unsampled_ns;

	if (now < area->cpu.long_blame_after_ns) {
		blame->unsampled_ns = all;
		return 0;
	}
	area->cpu.long_blame_after_ns = now + LONG_BLAME_NS;
	scratch->weight_ns = all / POINTS;
	/* The remainder of the division is carried to the next look-up. */
	blame->unsampled_ns = all % POINTS;
	for (int i = 0; i < POINTS; i++) {
		__u64 part = (scratch->to_ns - scratch->from_ns) / POINTS;
		__u64 moment = scratch->from_ns + part * i +
			       ((part * (bpf_get_prandom_u32() >> 16)) >> 16);
		__u32 age = stay_at(where, head, moment);

		add_culprit(area, blame, victim, where->run[(head - age) & (RUNS - 1)].tgid,
			    scratch->weight_ns);
	}
	return 0;
}

/*
 * Blames [from_ns, to_ns) of the scratch area exactly, backward from its end, on the current run of
 * that CPU and the EXACT_RUNS before it. Leaves the part that was not covered in the scratch area.
 */
static __noinline int blame_walk(struct sched_area *area, struct sched_area *where,
				 struct sched_blame *blame, __u32 victim)
{
	volatile struct sched_scratch *scratch = &area->cpu.scratch;
	__u64 head = where->cpu.head, since = where->cpu.since_ns, end = scratch->to_ns;
	__u32 age = 0;

	/* On another CPU, a run is in progress, and others may have ended since the wait did. */
	if (where != area) {
		if (since < end) {
			if (since < scratch->from_ns)
				since = scratch->from_ns;
			scratch->to_ns = since;
			add_culprit(area, blame, victim, where->cpu.tgid, end - since);
		} else {
			age = stay_at(where, head, end - 1) - 1;
		}
	}
	/* Unrolled: some compilers let a loop's end fall through into its head, which the verifier
	 * of 5.10 rejects. */
#pragma unroll
	for (int i = 1; i <= EXACT_RUNS; i++) {
		__u64 start = where->run[(head - age - i - 1) & (RUNS - 1)].end_ns;
		__u32 tgid = where->run[(head - age - i) & (RUNS - 1)].tgid;
		__u64 from = scratch->from_ns;

		end = scratch->to_ns;
		if (start < from)
			start = from;
		/* Nothing is left once `to_ns` came down to `from_ns`. */
		if (start < end) {
			scratch->to_ns = start;
			add_culprit(area, blame, victim, tgid, end - start);
		}
	}
	return 0;
}

/*
 * Subtracts from the wait the part that the reader reported while it was in progress, which is its
 * beginning. Returns the rest.
 */
static __noinline __u64 untold(struct sched_area *area)
{
	volatile struct sched_scratch *scratch = &area->cpu.scratch;
	__u64 left = area->cpu.waited;
	__u32 slot = scratch->slot;
	struct sched_reported *reported;

	if (left < long_wait_ns)
		return left;
	reported = bpf_map_lookup_elem(&reported_waits, &slot);
	if (!reported || reported->since_ns != scratch->was_off_ns)
		return left;
	left -= reported->queued_ns < left ? reported->queued_ns : left;
	if (scratch->local_ns > left)
		scratch->local_ns = left;
	return left;
}

static __always_inline struct sched_waits *waits_of(struct sched_area *area, __u32 slot)
{
	struct sched_waits *w = bpf_map_lookup_elem(&waits, &slot);
	struct sched_overflow *entry;
	__u32 tid = area->cpu.tid;

	if (likely(w))
		return w;
	entry = bpf_map_lookup_elem(&overflow, &tid);
	if (!entry)
		return 0;
	/* Otherwise the compiler adds the offset before the check, which the verifier rejects. */
	asm volatile("" : "+r"(entry));
	return &entry->waits;
}

/*
 * Blames a wait that is not within one run on this CPU, or that the reader may have reported: of
 * the thread that just got that CPU, in the current epoch or the one before. A global function,
 * which the verifier checks once and not on each path that leads to a call.
 */
__noinline int blame_long(__u32 cpu_id, __u32 current)
{
	struct sched_area *area = bpf_map_lookup_elem(&areas, &cpu_id), *where;
	volatile struct sched_scratch *scratch;
	struct sched_blame *blame;
	struct sched_waits *w;
	__u64 left, elsewhere;

	if (!area)
		return 0;
	scratch = &area->cpu.scratch;
	w = waits_of(area, scratch->slot);
	if (!w)
		return 0;
	blame = &w->blame[current & 1];
	left = untold(area);
	elsewhere = left - scratch->local_ns;
	if (scratch->local_ns) {
		scratch->to_ns = area->cpu.since_ns;
		scratch->from_ns = scratch->to_ns - scratch->local_ns;
		blame_walk(area, area, blame, area->cpu.tgid);
		if (scratch->to_ns > scratch->from_ns)
			blame_sampled(area, area, blame, area->cpu.tgid);
	}
	if (!elsewhere)
		return 0;
	cpu_id = scratch->was_cpu;
	where = bpf_map_lookup_elem(&areas, &cpu_id);
	if (!where) {
		blame->migrated_ns += elsewhere;
		return 0;
	}
	scratch->to_ns = scratch->moved_ns;
	scratch->from_ns = scratch->to_ns - elsewhere;
	blame_walk(area, where, blame, area->cpu.tgid);
	if (scratch->to_ns > scratch->from_ns)
		blame_sampled(area, where, blame, area->cpu.tgid);
	return 0;
}

static __noinline int begin_epoch(struct sched_blame *blame, __u32 current)
{
	__builtin_memset(blame, 0, sizeof(*blame));
	blame->epoch = current;
	return 0;
}

/*
 * Counts a wait whose end, at `arrival`, was not reported by a switch. If all of it was on this
 * CPU's queue, the runs there show the culprits: the last of them ends at the arrival
 * (began_unseen). A global function like blame_long().
 */
__noinline int count_unseen_wait(__u32 cpu_id, __u32 tid, __u64 arrival, __u64 wait, __u32 local)
{
	struct sched_area *area = bpf_map_lookup_elem(&areas, &cpu_id);
	__u32 slot = slot_of(tid), bucket = wait_bucket(wait);
	__u32 current = *(volatile __u32 *)&epoch;
	struct sched_thread *t = bpf_map_lookup_elem(&threads, &slot);
	struct sched_waits *w = bpf_map_lookup_elem(&waits, &slot);
	struct sched_reported *reported = bpf_map_lookup_elem(&reported_waits, &slot);
	volatile struct sched_scratch *scratch;
	struct sched_blame *blame;

	if (!area || !t || !w || !reported)
		return 0;
	scratch = &area->cpu.scratch;
	if (bucket < WAIT_BUCKETS) {
		w->bucket[bucket].count++;
		w->bucket[bucket].ns += wait;
	}
	if (wait > t->wait_max_ns)
		t->wait_max_ns = wait;
	blame = &w->blame[current & 1];
	if (blame->epoch != current)
		begin_epoch(blame, current);
	if (reported->since_ns == t->since_ns)
		wait -= reported->queued_ns < wait ? reported->queued_ns : wait;
	if (!local) {
		blame->unsampled_ns += wait;
		return 0;
	}
	scratch->to_ns = arrival;
	scratch->from_ns = arrival - wait;
	blame_walk(area, area, blame, t->tgid);
	if (scratch->to_ns > scratch->from_ns)
		blame_sampled(area, area, blame, t->tgid);
	return 0;
}

/*
 * Counts a wait of the thread that just got this CPU. `local` of it was on this CPU's queue, up to
 * now; `alone` = that part lies within the last run there, of process `culprit`. The common case
 * calls no function, because returns are expensive with speculation mitigations.
 */
static __always_inline void count_wait(struct sched_area *area, __u32 slot, __u64 queued,
				       __u64 local, bool alone, __u32 culprit)
{
	struct sched_waits *w = waits_of(area, slot);
	struct sched_culprit *place;
	struct sched_blame *blame;
	__u32 bucket, current;

	if (unlikely(!w))
		return;
	area->cpu.waits++;
	bucket = wait_bucket(queued);
	if (bucket < WAIT_BUCKETS) {
		w->bucket[bucket].count++;
		w->bucket[bucket].ns += queued;
	}
	/* Read once: the reader may end the epoch at any time. */
	current = *(volatile __u32 *)&epoch;
	blame = &w->blame[current & 1];
	if (unlikely(blame->epoch != current))
		begin_epoch(blame, current);
	if (likely(alone && local == queued && queued < long_wait_ns)) {
		place = &blame->culprit[first_place(culprit)];
		if (!culprit)
			blame->wakeup_ns += queued;
		else if (likely(place->tgid == culprit))
			place->ns += queued;
		else
			add_culprit(area, blame, area->cpu.tgid, culprit, queued);
	} else {
		area->cpu.scratch.local_ns = local;
		area->cpu.scratch.slot = slot;
		blame_long(area->cpu.id, current);
	}
}
