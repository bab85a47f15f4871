/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which connections hold back what does not fill a segment, because the segment before, which was
 * not full either, is not confirmed yet (Nagle's rule, tcp_nagle_check()), or because the program
 * asked for it (TCP_CORK). Included by net_unread.bpf.h only.
 */
#ifndef DEBURR_NET_HELD_BACK_BPF_H
#define DEBURR_NET_HELD_BACK_BPF_H

#define TCP_NAGLE_OFF  1
#define TCP_NAGLE_CORK 2
#define TCP_NAGLE_PUSH 4 /* all goes out now */

/* Whether `a` is after `b`: numbers of bytes wrap around. */
#define IS_AFTER(a, b) ((__s32)((b) - (a)) < 0)

static __always_inline __u32 nagle_of(__u64 sock)
{
	return BPF_CORE_READ_BITFIELD_PROBED((struct tcp_sock *)sock, nonagle);
}

/* Whether a segment that was not full is on its way, and the network would take another one. Of one
 * that was lost the timer is waited for, whatever this end would do. */
static __always_inline bool small_is_on_its_way(__u64 sock, __u32 next)
{
	__u32 small = NUMBER_AT(struct tcp_sock, sock, snd_sml);
	__u32 sent = NUMBER_AT(struct tcp_sock, sock, packets_out);

	return sent && sent < NUMBER_AT(struct tcp_sock, sock, snd_cwnd) &&
	       !NUMBER_AT(struct tcp_sock, sock, lost_out) &&
	       !NUMBER_AT(struct tcp_sock, sock, retrans_out) &&
	       !NUMBER_AT(struct inet_connection_sock, sock, icsk_retransmits) &&
	       IS_AFTER(small, NUMBER_AT(struct tcp_sock, sock, snd_una)) && !IS_AFTER(small, next);
}

/* What holds back what a connection has to send, of enum net_reader_state; 0 = nothing, or
 * something else than these two. */
static __always_inline __u32 held_by(__u64 sock, __u32 nagle, __u32 next, __u32 unsent)
{
	__u32 room = NUMBER_AT(struct tcp_sock, sock, snd_una) +
		     NUMBER_AT(struct tcp_sock, sock, snd_wnd) - next;

	if (!unsent || nagle & TCP_NAGLE_PUSH ||
	    unsent >= NUMBER_AT(struct tcp_sock, sock, mss_cache) || (__s32)(room - unsent) < 0)
		return 0;
	if (nagle & TCP_NAGLE_CORK)
		return HELD_CORKED;
	return !nagle && small_is_on_its_way(sock, next) ? HELD_SMALL : 0;
}

/* Tells of a connection that holds something back. Returns whether it may do so at all. */
static __always_inline bool tell_of_held_back(struct bpf_iter__task_file *ctx, __u64 *cell,
					      __u64 sock)
{
	__u32 nagle = nagle_of(sock), next, unsent, state;

	if (nagle & TCP_NAGLE_OFF && !(nagle & TCP_NAGLE_CORK))
		return false;
	next = NUMBER_AT(struct tcp_sock, sock, snd_nxt);
	unsent = NUMBER_AT(struct tcp_sock, sock, write_seq) - next;
	state = held_by(sock, nagle, next, unsent);
	if (!state)
		return true;
	unread.state = state;
	unread.reader = unread.watched = unread.room_bytes = 0;
	unread.unread_bytes = unsent;
	unread.age_jiffies = (__u32)bpf_jiffies64() - NUMBER_AT(struct tcp_sock, sock, lsndtime);
	unread.sent = next;
	if (NUMBER_AT(struct tcp_sock, sock, bytes_received))
		unread.answers = NUMBER_AT(struct tcp_sock, sock, rcv_nxt) | 1;
	note_ends(&unread.ends, cell, sock);
	bpf_seq_write(ctx->meta->seq, &unread, sizeof(unread));
	unread.answers = unread.sent = 0;
	return true;
}

#endif
