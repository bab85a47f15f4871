/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Behind whom a thread waited: each CPU keeps the last RUNS stays of threads on it, and a wait is
 * laid over them. Included by sched.bpf.c only.
 *
 * Most waits lie within one stay; a few more are walked exactly. The rest of a longer wait is
 * sampled at POINTS random moments, one in each equal part, so that the blame is unbiased and its
 * sum exact.
 */

static __always_inline __u32 wait_bucket(__u64 ns)
{
	/* ns / 1000 for what fits into 32 bits, by multiplication: off by at most 1 in 10^6 at the
	 * edges */
	__u64 us = unlikely(ns >> 32) ? ns / 1000 : (ns * 4294968) >> 32;
	__u32 bucket = 0;

	/* Four powers of two at a time: a short wait takes one comparison. */
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
		/* Full, or another CPU was first. */
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
 * Which stay on that CPU a moment lies in, counted back from the newest (1): the oldest that ends
 * after it, by a search without branches.
 */
static __always_inline __u32 stay_at(struct sched_area *area, __u64 head, __u64 moment)
{
	__u32 age = 1;

#pragma unroll
	for (__u32 step = RUNS / 2; step; step >>= 1) {
		__s64 later = moment - area->run[(head - age - step) & (RUNS - 1)].end_ns;

		/* The sign as a mask; a comparison would be a branch, and 2^12 ways to verify. */
		asm volatile("" : "+r"(later));
		age += step & (__u32)(later >> 63);
	}
	return age;
}

/* Samples the scratch's [from, to) of that CPU, if a long look-up is affordable; else carries it.
 */
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
	/* What the division leaves over stays for the next time. */
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
 * The scratch's [from, to) on that CPU, from its end on, over the stay in progress there and the
 * EXACT_RUNS before. Leaves the part that was not walked in the scratch.
 */
static __noinline int blame_walk(struct sched_area *area, struct sched_area *where,
				 struct sched_blame *blame, __u32 victim)
{
	volatile struct sched_scratch *scratch = &area->cpu.scratch;
	__u64 head = where->cpu.head, since = where->cpu.since_ns, end = scratch->to_ns;
	__u32 age = 0;

	/* On another CPU others run meanwhile, and ran since. */
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
	/* Unrolled: some compilers fall from a loop's end into its head, which 5.10 refuses. */
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
 * Takes from the scratch's wait what the reader told of it while it was in progress: its beginning.
 * Returns how much of the wait is left.
 */
static __noinline __u64 untold(struct sched_area *area)
{
	volatile struct sched_scratch *scratch = &area->cpu.scratch;
	__u64 left = area->cpu.queued_ns;
	__u32 slot = scratch->slot;
	struct sched_told *told;

	if (left < long_wait_ns)
		return left;
	told = bpf_map_lookup_elem(&tolds, &slot);
	if (!told || told->since_ns != scratch->was_off_ns)
		return left;
	left -= told->queued_ns < left ? told->queued_ns : left;
	if (scratch->local_ns > left)
		scratch->local_ns = left;
	return left;
}

/* The waits that are not within one stay on this CPU, and those that the reader may have told. */
static __noinline int blame_long(struct sched_area *area, struct sched_blame *blame)
{
	volatile struct sched_scratch *scratch = &area->cpu.scratch;
	__u64 left = untold(area), elsewhere = left - scratch->local_ns;
	__u32 cpu_id = scratch->was_cpu;
	struct sched_area *where;

	if (scratch->local_ns) {
		scratch->to_ns = area->cpu.since_ns;
		scratch->from_ns = scratch->to_ns - scratch->local_ns;
		blame_walk(area, area, blame, area->cpu.tgid);
		if (scratch->to_ns > scratch->from_ns)
			blame_sampled(area, area, blame, area->cpu.tgid);
	}
	if (!elsewhere)
		return 0;
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
 * Counts a wait whose end, at `arrival`, no switch told of. Where all of it was on this CPU's
 * queue, the stays there tell behind whom: the last of them ends at the arrival (began_unseen).
 */
static __noinline int count_unseen_wait(struct sched_area *area, struct sched_thread *t,
					__u64 arrival, __u64 wait, bool local)
{
	volatile struct sched_scratch *scratch = &area->cpu.scratch;
	__u32 slot = slot_of(t->tid), bucket = wait_bucket(wait);
	__u32 current = *(volatile __u32 *)&epoch;
	struct sched_waits *w = bpf_map_lookup_elem(&waits, &slot);
	struct sched_told *told = bpf_map_lookup_elem(&tolds, &slot);
	struct sched_blame *blame;

	if (!w || !told)
		return 0;
	if (bucket < WAIT_BUCKETS) {
		w->bucket[bucket].count++;
		w->bucket[bucket].ns += wait;
	}
	if (wait > t->wait_max_ns)
		t->wait_max_ns = wait;
	blame = &w->blame[current & 1];
	if (blame->epoch != current)
		begin_epoch(blame, current);
	if (told->since_ns == t->since_ns)
		wait -= told->queued_ns < wait ? told->queued_ns : wait;
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
 * Counts a wait of the thread that this CPU just got. `local` of it was on this CPU's queue, up to
 * now; `alone`: that lies within the last stay there, of process `culprit`. Returns from a function
 * are dear where they are protected against speculation: the ordinary case has none.
 */
static __always_inline void count_wait(struct sched_area *area, __u32 slot, __u64 queued,
				       __u64 local, bool alone, __u32 culprit)
{
	struct sched_waits *w = bpf_map_lookup_elem(&waits, &slot);
	struct sched_culprit *place;
	struct sched_blame *blame;
	__u32 bucket, current;

	if (unlikely(!w)) {
		__u32 tid = area->cpu.tid;
		struct sched_overflow *entry = bpf_map_lookup_elem(&overflow, &tid);

		if (!entry)
			return;
		/* Or the compiler adds the offset before the check, which the verifier refuses. */
		asm volatile("" : "+r"(entry));
		w = &entry->waits;
	}
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
		blame_long(area, blame);
	}
}
