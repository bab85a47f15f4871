/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * By what the connections of a process are held up that have something to send. Included by
 * net.bpf.c only.
 *
 * The kernel tells the same to whoever asks a socket (TCP_INFO), but takes the socket's lock, which
 * its owner may hold for as long as it likes. This takes none: what the kernel changed
 * meanwhile is read again.
 */
#ifndef DEBURR_NET_SENDING_BPF_H
#define DEBURR_NET_SENDING_BPF_H

/* The sum of one state, and of it so far if it is that. */
#define SUM_OF(sock, type, now, started, state)                     \
	(NUMBER_AT(struct tcp_sock, sock, chrono_stat[(state)-1]) + \
	 ((type) == (state) ? (now) - (started) : 0))

static __always_inline __u32 state_of_sending(__u64 sock)
{
	return BPF_CORE_READ_BITFIELD_PROBED((struct tcp_sock *)sock, chrono_type);
}

/* Returns whether the state lasted while its times were read: the kernel adds a state's time to its
 * sum as it ends, and then it would count twice. */
static __always_inline bool note_times(struct net_sending *it, __u64 sock)
{
	__u32 type = state_of_sending(sock);
	__u32 started = NUMBER_AT(struct tcp_sock, sock, chrono_start);
	__u32 now = (__u32)bpf_jiffies64();

	it->window_jiffies = SUM_OF(sock, type, now, started, TCP_CHRONO_BUSY + 1);
	it->buffer_jiffies = SUM_OF(sock, type, now, started, TCP_CHRONO_BUSY + 2);
	it->busy_jiffies = SUM_OF(sock, type, now, started, TCP_CHRONO_BUSY) + it->window_jiffies +
			   it->buffer_jiffies;
	barrier();
	return state_of_sending(sock) == type &&
	       NUMBER_AT(struct tcp_sock, sock, chrono_start) == started;
}

static __always_inline bool note_sending(struct net_sending *it, __u64 sock)
{
	if (!note_times(it, sock))
		note_times(it, sock);
	return it->busy_jiffies != 0;
}

/* What is written. One process reads, one iteration at a time. */
struct net_sending sending;
__u64 cell_of_files;

/* Runs over the open files of a process. */
SEC("iter/task_file")
int on_file(struct bpf_iter__task_file *ctx)
{
	struct file *file = ctx->file;
	__u64 sock, *cell = &cell_of_files;
	__u16 family;

	if (!file)
		return 0;
	sock = socket_of(cell, file);
	if (!sock)
		return 0;
	family = NUMBER_AT(struct sock, sock, __sk_common.skc_family);
	/* Where the other end has reset the connection, its last state seems to last for ever. */
	if ((family != AF_INET && family != AF_INET6) ||
	    NUMBER_AT(struct sock, sock, __sk_common.skc_state) == TCP_CLOSE ||
	    NUMBER_AT(struct sock, sock, sk_protocol) != IPPROTO_TCP ||
	    !note_sending(&sending, sock))
		return 0;
	note_ends(&sending.ends, cell, sock);
	sending.srtt_us8 = NUMBER_AT(struct tcp_sock, sock, srtt_us);
	sending.window_bytes = NUMBER_AT(struct tcp_sock, sock, snd_wnd);
	sending.buffer_bytes = NUMBER_AT(struct sock, sock, sk_sndbuf);
	sending.waiting_bytes = NUMBER_AT(struct tcp_sock, sock, write_seq) -
				NUMBER_AT(struct tcp_sock, sock, snd_nxt);
	bpf_seq_write(ctx->meta->seq, &sending, sizeof(sending));
	return 0;
}

#endif
