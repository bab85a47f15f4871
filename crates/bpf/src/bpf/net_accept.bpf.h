/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which connections wait to be accepted at a listening socket. Included by net_unread.bpf.h only.
 */
#ifndef DEBURR_NET_ACCEPT_BPF_H
#define DEBURR_NET_ACCEPT_BPF_H

/* Connections of a queue that are looked at. */
#define QUEUED_TO_ACCEPT 8

/*
 * Sets what the first connection of a queue has sent that has sent anything, and how long ago. One
 * whose client has closed it waits there until it is accepted as well; one that was reset has no
 * port any more. Nothing holds them while this looks: what was accepted meanwhile may be another
 * one's memory.
 */
static __always_inline void note_first_asker(__u64 *cell, __u64 sock)
{
	__u64 request = ADDRESS_AT(cell, struct inet_connection_sock, sock,
				   icsk_accept_queue.rskq_accept_head),
	      first;
	__u16 port = NUMBER_AT(struct sock, sock, __sk_common.skc_num);

	for (int i = 0; i < QUEUED_TO_ACCEPT && request; i++) {
		first = ADDRESS_AT(cell, struct request_sock, request, sk);
		unread.unread_bytes = first ? unread_bytes_of(first) : 0;
		if (unread.unread_bytes &&
		    NUMBER_AT(struct sock, first, __sk_common.skc_num) == port) {
			unread.age_jiffies =
				(__u32)bpf_jiffies64() -
				NUMBER_AT(struct inet_connection_sock, first, icsk_ack.lrcvtime);
			return;
		}
		request = ADDRESS_AT(cell, struct request_sock, request, dl_next);
	}
	unread.unread_bytes = unread.age_jiffies = 0;
}

/* Whether a socket listens: then it tells of it. */
static __always_inline bool tell_of_listener(struct bpf_iter__task_file *ctx, __u64 *cell,
					     __u64 socket)
{
	__u64 sock = socket ? ADDRESS_AT(cell, struct socket, socket, sk) : 0;

	if (!sock || NUMBER_AT(struct sock, sock, __sk_common.skc_state) != TCP_LISTEN ||
	    NUMBER_AT(struct sock, sock, sk_protocol) != IPPROTO_TCP)
		return false;
	unread.state = READER_NONE;
	unread.reader = unread.watched = unread.room_bytes = 0;
	unread.waiting = NUMBER_AT(struct sock, sock, sk_ack_backlog);
	note_first_asker(cell, sock);
	note_ends(&unread.ends, cell, sock);
	bpf_seq_write(ctx->meta->seq, &unread, sizeof(unread));
	unread.waiting = 0;
	return true;
}

#endif
