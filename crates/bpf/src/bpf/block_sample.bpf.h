/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which requests are followed. Included by block.bpf.c only.
 *
 * At high rates only a sample of the requests is followed; the others must cost next to nothing at
 * every hook. The decision is made when a bio is queued, so that queueing times are noted only for
 * sampled bios, and is kept in a byte until the request is created. Where two bios share a byte, or
 * there was no bio, the decision is made with the same probability: the sample stays unbiased.
 *
 * The decision is a hash of a counter and not of the request's address: a submitter that waits for
 * each of its requests gets the same address again and again.
 */

/* Values in `decided`; DECIDED_YES is combined with the shift that was used. */
#define DECIDED_YES 0x40
#define DECIDED_NO  0x80
#define SHIFT_MASK  31
/* When the log fills between two reads, eight times fewer requests are followed until the next. */
#define HASTE_SHIFT 3

/* One in 1 << shift requests is followed: the shift that the reader wants, and the current one. */
volatile __u32 wanted_shift = 0;
volatile __u32 sample_shift = 0;
/* Unread entries in a CPU's part of the log above which fewer requests are followed. */
volatile __u32 log_room = ~0U;
/* All requests in flight are followed: an unknown one was missed, and counts as lost. */
volatile __u32 all_followed = 0;

__u8 decided[BLOCK_DECIDED] = {};

/* The decision byte of a bio. */
static __always_inline __u8 *decision_of(__u64 bio)
{
	return &decided[(bio * 0x9e3779b97f4a7c15ULL) >> 36 & (BLOCK_DECIDED - 1)];
}

static __always_inline bool is_its_turn(__u32 number, __u32 shift)
{
	return !((number * 0x9e3779b1U) >> 12 & ((1U << (shift & SHIFT_MASK)) - 1));
}

/* A bio was queued: decides and returns whether its request will be followed. */
static __always_inline bool decide(struct block_cpu *area, __u64 bio)
{
	__u8 *decision = decision_of(bio);
	__u32 shift = sample_shift;

	if (!shift || !io_start) {
		if (*decision)
			*decision = 0;
		return true;
	}
	if (is_its_turn(area->queued, shift)) {
		*decision = DECIDED_YES | shift;
		return true;
	}
	*decision = DECIDED_NO;
	return false;
}

/* Whether this request is followed; if so, it represents 1 << *shift requests. */
static __always_inline bool is_followed(struct block_cpu *area, __u64 bio, __u32 *shift)
{
	__u8 *decision = decision_of(bio), before = *decision;

	if (!before) {
		*shift = sample_shift;
		return is_its_turn(area->begun, *shift);
	}
	*decision = 0;
	*shift = before & SHIFT_MASK;
	return before & DECIDED_YES;
}

/* The same where a request may be seen twice: the answer depends only on the request. */
static __always_inline bool is_always_followed(const struct request *rq, __u32 *shift)
{
	*shift = sample_shift;
	return is_its_turn(key_of(rq) >> 6 ^ rq->__sector, *shift);
}

/* Reduces the sampling rate if too many entries of this CPU's log are unread. */
static __always_inline void mind_the_log(const struct block_cpu *area)
{
	if (area->head - area->read <= log_room)
		return;
	if (sample_shift == wanted_shift) {
		sample_shift = wanted_shift + HASTE_SHIFT;
		all_followed = 0;
	}
}
