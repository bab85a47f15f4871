// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Which connections of TCP had to send again, and what the timer had waited; and by what those of a
 * process are held up that have something to send, which have something to read that nobody
 * fetches or wait to be accepted, and who has their other ends open.
 *
 * The hook is called for nothing but segments that are sent again. It runs in a soft interrupt or
 * in a system call; the kernel does not run a program that already runs on that CPU, and counts
 * that: each CPU's part of the log has one writer at a time.
 */
#include "kern_net.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "net.h"
#include "read.bpf.h"

/* Set by the loader. */
const volatile __u32 log_entries = 4096; /* per CPU, a power of two */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct net_resent);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct net_cpu);
} cpus SEC(".maps");

static __always_inline void note_addresses(struct net_ends *ends, __u64 sock)
{
	ends->family = NUMBER_AT(struct sock, sock, __sk_common.skc_family);
	ends->local_port = NUMBER_AT(struct sock, sock, __sk_common.skc_num);
	ends->remote_port = __builtin_bswap16(NUMBER_AT(struct sock, sock, __sk_common.skc_dport));
	if (ends->family == AF_INET) {
		ends->local[0] = NUMBER_AT(struct sock, sock, __sk_common.skc_rcv_saddr);
		ends->remote[0] = NUMBER_AT(struct sock, sock, __sk_common.skc_daddr);
		return;
	}
	if (!bpf_core_field_exists(((struct sock_common *)0)->skc_v6_daddr))
		return;
	for (int i = 0; i < 4; i++) {
		ends->local[i] = NUMBER_AT(struct sock, sock,
					   __sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[i]);
		ends->remote[i] =
			NUMBER_AT(struct sock, sock, __sk_common.skc_v6_daddr.in6_u.u6_addr32[i]);
	}
}

static __always_inline void note_owner(struct net_ends *ends, __u64 *cell, __u64 sock)
{
	__u64 socket = ADDRESS_AT(cell, struct sock, sock, sk_socket), net, inode;

	ends->inode = 0;
	if (socket) {
		inode = socket + bpf_core_field_offset(struct socket_alloc, vfs_inode);
		ends->inode = NUMBER_AT(struct inode, inode, i_ino);
	}
	ends->netns = 0;
	if (bpf_core_field_exists(((struct sock_common *)0)->skc_net.net)) {
		net = ADDRESS_AT(cell, struct sock, sock, __sk_common.skc_net.net);
		ends->netns = NUMBER_AT(struct net, net, ns.inum);
	}
}

static __always_inline void note_ends(struct net_ends *ends, __u64 *cell, __u64 sock)
{
	ends->sock = sock;
	note_addresses(ends, sock);
	note_owner(ends, cell, sock);
}

/* The socket of the kernel that is behind an open file; 0 = it has none. */
static __always_inline __u64 socket_of(__u64 *cell, struct file *file)
{
	__u64 socket;

	if ((file->f_inode->i_mode & S_IFMT) != S_IFSOCK)
		return 0;
	socket = address_of(cell, file->private_data);
	return socket ? ADDRESS_AT(cell, struct socket, socket, sk) : 0;
}

static __always_inline void note_timer(struct net_resent *event, __u64 sock)
{
	event->rto_jiffies = NUMBER_AT(struct inet_connection_sock, sock, icsk_rto);
	event->retransmits = NUMBER_AT(struct inet_connection_sock, sock, icsk_retransmits);
	event->pending = NUMBER_AT(struct inet_connection_sock, sock, icsk_pending);
	event->srtt_us8 = NUMBER_AT(struct tcp_sock, sock, srtt_us);
	event->total_retrans = NUMBER_AT(struct tcp_sock, sock, total_retrans);
	event->data_segs_out = NUMBER_AT(struct tcp_sock, sock, data_segs_out);
	event->snd_nxt = NUMBER_AT(struct tcp_sock, sock, snd_nxt);
}

static __always_inline void note_segment(struct net_resent *event, __u64 skb)
{
	__u64 of_tcp = skb + bpf_core_field_offset(struct sk_buff, cb);

	event->seq = NUMBER_AT(struct tcp_skb_cb, of_tcp, seq);
	event->segs = 0;
	if (bpf_core_field_exists(((struct tcp_skb_cb *)0)->tcp_gso_segs))
		event->segs = NUMBER_AT(struct tcp_skb_cb, of_tcp, tcp_gso_segs);
}

static __always_inline int resent(unsigned long long *ctx, bool failed)
{
	__u32 cpu = bpf_get_smp_processor_id(), index;
	struct net_cpu *area = bpf_map_lookup_elem(&cpus, &cpu);
	struct net_resent *event;
	__u64 sock;

	if (!area)
		return 0;
	area->runs++;
	index = cpu * log_entries + ((__u32)area->head & (log_entries - 1));
	event = bpf_map_lookup_elem(&entries, &index);
	if (!event)
		return 0;
	event->t_ns = bpf_ktime_get_ns();
	event->failed = failed;
	sock = address_of(&area->cell, (void *)arg(ctx, 0));
	event->state = NUMBER_AT(struct sock, sock, __sk_common.skc_state);
	note_ends(&event->ends, &area->cell, sock);
	note_timer(event, sock);
	note_segment(event, address_of(&area->cell, (void *)arg(ctx, 1)));
	barrier();
	area->head++;
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int on_resent_2(unsigned long long *ctx)
{
	return resent(ctx, false);
}

/* From 6.17 on the hook is called as well if the segment was dropped on this host; the last
 * argument tells. */
SEC("tp_btf/tcp_retransmit_skb")
int on_resent_3(unsigned long long *ctx)
{
	return resent(ctx, (int)arg(ctx, 2) != 0);
}

#include "net_sending.bpf.h"
#include "net_unread.bpf.h"
#include "net_other_end.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
