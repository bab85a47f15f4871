/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which requests are followed. Included by block.bpf.c only.
 *
 * One in many is, where there are many; the others must cost next to nothing at every hook. It is
 * decided when a bio is queued, so that what it waits for before it has a request needs to be noted
 * of those only, and left in a byte for when the request is created. Where two bios share a byte,
 * or there was no bio, chance decides the same way as it would have: the sample stays what it is.
 *
 * Counting serves better than the address does: a submitter that waits for each of its requests
 * gets the same one again and again.
 */

/* In `decided`, with the shift that was used. */
#define DECIDED_YES 0x40
#define DECIDED_NO  0x80
#define SHIFT_MASK  31
/* Eight times rarer until the reader was there, when the log fills meanwhile. */
#define HASTE_SHIFT 3

/* One in 1 << so many requests is followed: what the reader wants, and what is done. */
volatile __u32 wanted_shift = 0;
volatile __u32 sample_shift = 0;
/* Entries of a log that may wait for the reader before fewer requests are followed. */
volatile __u32 log_room = ~0U;
/* All requests in flight are followed: one that is not known was lost. */
volatile __u32 all_followed = 0;

__u8 decided[BLOCK_DECIDED] = {};

/* The byte of a bio. */
static __always_inline __u8 *decision_of(__u64 bio)
{
	return &decided[(bio * 0x9e3779b97f4a7c15ULL) >> 36 & (BLOCK_DECIDED - 1)];
}

static __always_inline bool is_its_turn(__u32 number, __u32 shift)
{
	return !((number * 0x9e3779b1U) >> 12 & ((1U << (shift & SHIFT_MASK)) - 1));
}

/* A bio was queued: whether its request will be followed. */
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

/* Whether this request is followed; `*shift` = it will stand for 1 << so many. */
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

/* The same where a request may be asked for twice: the answer must be the same. */
static __always_inline bool is_always_followed(const struct request *rq, __u32 *shift)
{
	*shift = sample_shift;
	return is_its_turn(key_of(rq) >> 6 ^ rq->__sector, *shift);
}

/* An entry was logged. */
static __always_inline void mind_the_log(const struct block_cpu *area)
{
	if (area->head - area->read <= log_room)
		return;
	if (sample_shift == wanted_shift) {
		sample_shift = wanted_shift + HASTE_SHIFT;
		all_followed = 0;
	}
}
