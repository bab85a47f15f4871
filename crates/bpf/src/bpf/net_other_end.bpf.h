/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which processes of this host have the other ends of connections open. Included by net.bpf.c only.
 *
 * The kernel has no pointer from one end of a connection of TCP to the other. But the other end's
 * socket has the same two addresses, the other way round.
 */
#ifndef DEBURR_NET_OTHER_END_BPF_H
#define DEBURR_NET_OTHER_END_BPF_H

/* What is looked for; the reader fills it before an iteration and empties it afterwards. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct net_pair);
	__type(value, struct net_holder);
} asked SEC(".maps");

/* One process reads, one iteration at a time. */
struct net_ends end_of_file;
__u64 cell_of_ends;

#define NETWORK_ORDER(word) __builtin_bswap32(word)

static __always_inline void note_address(__u32 *to, const __u32 *from, bool is_v4)
{
	to[0] = is_v4 ? 0 : from[0];
	to[1] = is_v4 ? 0 : from[1];
	to[2] = is_v4 ? NETWORK_ORDER(0xffff) : from[2];
	to[3] = is_v4 ? from[0] : from[3];
}

static __always_inline bool is_loopback(const __u32 *address)
{
	if (address[0] || address[1])
		return false;
	if (address[2] == NETWORK_ORDER(0xffff))
		return NETWORK_ORDER(address[3]) >> 24 == 127;
	return !address[2] && address[3] == NETWORK_ORDER(1);
}

/* Runs over the open files of all processes. */
SEC("iter/task_file")
int on_other_end(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct net_ends *ends = &end_of_file;
	__u64 sock, process, *cell = &cell_of_ends;
	struct net_holder *holder;
	struct net_pair pair = {};
	__u32 tgid;
	bool is_v4;

	if (!file || !task)
		return 0;
	sock = socket_of(cell, file);
	if (!sock)
		return 0;
	is_v4 = NUMBER_AT(struct sock, sock, __sk_common.skc_family) == AF_INET;
	if ((!is_v4 && NUMBER_AT(struct sock, sock, __sk_common.skc_family) != AF_INET6) ||
	    NUMBER_AT(struct sock, sock, sk_protocol) != IPPROTO_TCP)
		return 0;
	note_ends(ends, cell, sock);
	note_address(pair.local, ends->local, is_v4);
	note_address(pair.remote, ends->remote, is_v4);
	pair.local_port = ends->local_port;
	pair.remote_port = ends->remote_port;
	pair.netns = is_loopback(pair.local) ? ends->netns : 0;
	holder = bpf_map_lookup_elem(&asked, &pair);
	if (!holder)
		return 0;
	process = address_of(cell, task);
	tgid = NUMBER_AT(struct task_struct, process, tgid);
	if (!holder->tgid)
		holder->tgid = tgid;
	else if (holder->tgid != tgid)
		holder->several = 1;
	return 0;
}

#endif
