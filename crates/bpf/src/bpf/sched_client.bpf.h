/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whether a client waits for the answer of a thread that sleeps. Included by sched.bpf.c only.
 *
 * Of each watched thread it is known on which connection it last read something. TCP counts what is
 * read and what is sent: if nothing was since, an answer is due. Nobody tells of what is read from
 * unix sockets: there it is known who found something to read after a sleep, and the other end must
 * be seen to wait.
 */

/* A unix socket that a watched thread has accepted. */
struct client_key {
	__u64 sock;
	__u64 number;
};

#define SEVERAL_READERS (~0U)

/* The thread that was seen to wait for something to read on a connection, or SEVERAL_READERS. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct client_key);
	__type(value, __u32);
} client_readers SEC(".maps");

/* Sleeps that are looked at for a client beside those that have a record, after each that has one;
 * all bits of that number are set. */
#define CLIENT_LOOKS 3

/* 0 = none was seen. */
static __always_inline __u64 client_of(struct sched_watch *w)
{
	return w->client & ~CLIENT_FLAGS;
}

/* A socket's number, which no other one has while it lasts; 0 = its process has closed it. */
static __always_inline __u32 number_of(__u64 *cell, __u64 sock)
{
	__u64 socket = ADDRESS_AT(cell, struct sock, sock, sk_socket), inode;

	if (!socket)
		return 0;
	inode = socket - bpf_core_field_offset(struct socket_alloc, socket) +
		bpf_core_field_offset(struct socket_alloc, vfs_inode);
	return NUMBER_AT(struct inode, inode, i_ino);
}

/* The process that opened an accepted connection of a unix socket; 0 = not known. */
static __always_inline __u32 connected_by(__u64 *cell, __u64 sock)
{
	__u64 pid = ADDRESS_AT(cell, struct sock, sock, sk_peer_pid);

	return pid ? NUMBER_AT(struct pid, pid, numbers[0].nr) : 0;
}

static __always_inline struct client_key client_key(__u64 *cell, __u64 sock)
{
	return (struct client_key){ .sock = sock, .number = number_of(cell, sock) };
}

static __always_inline void note_reader(struct sched_watch *w, __u64 *cell, __u64 sock)
{
	struct client_key key = client_key(cell, sock);
	__u32 *reader = bpf_map_lookup_elem(&client_readers, &key), tid = w->tid;

	if (!reader)
		bpf_map_update_elem(&client_readers, &key, &tid, BPF_ANY);
	else if (*reader != tid)
		*reader = SEVERAL_READERS;
}

static __always_inline __u32 reader_of(__u64 *cell, __u64 sock)
{
	struct client_key key = client_key(cell, sock);
	__u32 *reader = bpf_map_lookup_elem(&client_readers, &key);

	return reader ? *reader : 0;
}

/* Whether the thread is the only one that serves its client, and serves no other one: of workers
 * that are given connections, another one may have read what the client asked. */
static __always_inline bool serves_alone(struct sched_watch *w, __u64 *cell)
{
	return !(w->client & CLIENT_MANY) && reader_of(cell, client_of(w)) == w->tid;
}

/* Whether it has read from another connection that is open. Memory of one that has ended may be
 * another one's by now, of which this thread is no reader. */
static __always_inline bool serves_another(struct sched_watch *w, __u64 *cell, __u64 sock)
{
	__u32 reader;

	if (client_of(w) == sock)
		return false;
	reader = reader_of(cell, client_of(w));
	return reader == w->tid || reader == SEVERAL_READERS;
}

/* Whether there is the same connection still that the thread was last seen to read from. */
static __always_inline bool has_client(struct sched_watch *w, __u64 *cell)
{
	__u64 sock = client_of(w);

	if (!sock)
		return false;
	if (w->client & CLIENT_UNIX)
		return NUMBER_AT(struct sock, sock, __sk_common.skc_family) == AF_UNIX &&
		       NUMBER_AT(struct sock, sock, __sk_common.skc_state) == TCP_ESTABLISHED &&
		       number_of(cell, sock) == w->client_seq;
	return NUMBER_AT(struct sock, sock, __sk_common.skc_num) == w->client_port &&
	       NUMBER_AT(struct sock, sock, __sk_common.skc_dport) == w->client_dport &&
	       NUMBER_AT(struct sock, sock, __sk_common.skc_state) == TCP_ESTABLISHED;
}

#include "sched_client_tcp.bpf.h"

/*
 * The thread that sleeps in a call on that end of a unix socket alone, if it is of that process: in
 * poll or select on one file, or in a call that reads. An event poll has no thread.
 */
static __always_inline __u64 sleeps_on(__u64 *cell, __u64 sock, __u32 tgid)
{
	__u64 socket = ADDRESS_AT(cell, struct sock, sock, sk_socket), head, wait, task, polled;

	if (!socket)
		return 0;
	head = socket + bpf_core_field_offset(struct socket, wq) +
	       bpf_core_field_offset(struct socket_wq, wait) +
	       bpf_core_field_offset(struct wait_queue_head, head);
	wait = ADDRESS_AT(cell, struct list_head, head, next);
	if (!wait || wait == head)
		return 0;
	wait -= bpf_core_field_offset(struct wait_queue_entry, entry);
	task = ADDRESS_AT(cell, struct wait_queue_entry, wait, private);
	polled = wait - bpf_core_field_offset(struct poll_table_entry, wait);
	if (task && ADDRESS_AT(cell, struct poll_table_entry, polled, filp) ==
			    ADDRESS_AT(cell, struct socket, socket, file)) {
		if (NUMBER_AT(struct poll_wqueues, task, inline_index) != 1)
			return 0;
		task = ADDRESS_AT(cell, struct poll_wqueues, task, polling_task);
	}
	return task && tgid && NUMBER_AT(struct task_struct, task, tgid) == tgid ? task : 0;
}

/*
 * The process at the other end of a unix socket, if it has asked, what it asked was read, and it is
 * not answered: it sleeps in a call on that connection alone, for the greater part of the thread's
 * own sleep, and there is nothing to read at either end. 0 = it does not, or that is not known.
 */
static __always_inline __u32 unix_asker(struct sched_sleep *sleep, __u64 *cell, __u64 sock)
{
	__u64 peer = ADDRESS_AT(cell, struct unix_sock, sock, peer), task;
	__u32 tgid = connected_by(cell, sock), slot;
	struct sched_thread *t;

	if (!peer || NUMBER_AT(struct sock, sock, sk_receive_queue.qlen) ||
	    NUMBER_AT(struct sock, peer, sk_receive_queue.qlen))
		return 0;
	task = sleeps_on(cell, peer, tgid);
	if (!task)
		return 0;
	slot = slot_of(NUMBER_AT(struct task_struct, task, pid));
	t = bpf_map_lookup_elem(&threads, &slot);
	return t && t->state > ST_THROTTLED && t->since_ns < sleep->since_ns + sleep->slept_ns / 2
		       ? tgid
		       : 0;
}

/*
 * Of a sleep on no socket: who waits for an answer. A thread that sleeps on something else while
 * its client on a unix socket has asked for nothing may serve other clients next, and that one may
 * be served by others.
 */
static __always_inline void note_awaited(struct sched_sleep *sleep, struct sched_watch *w,
					 __u64 *cell)
{
	__u64 sock = client_of(w);

	if (sock && !(w->client & CLIENT_UNIX)) {
		note_awaited_tcp(sleep, w, cell);
		return;
	}
	if (sleep->family || ((w->client & CLIENT_POLLED) && !is_kind(sleep, EVENTPOLL)))
		return;
	if (!has_client(w, cell))
		return;
	if (serves_alone(w, cell))
		sleep->peer = unix_asker(sleep, cell, sock);
	if (!sleep->peer && !NUMBER_AT(struct sock, sock, sk_receive_queue.qlen))
		w->client &= CLIENT_MANY;
}

/* An accepted connection of a unix socket has something to read. */
static __always_inline void note_unix_client(struct sched_sleep *sleep, struct sched_watch *w,
					     __u64 *cell, __u64 sock)
{
	__u32 number = number_of(cell, sock);
	__u64 many = w->client & CLIENT_MANY;

	/* A listener has something, too. */
	if (!number || NUMBER_AT(struct sock, sock, __sk_common.skc_state) != TCP_ESTABLISHED ||
	    !NUMBER_AT(struct sock, sock, sk_receive_queue.qlen) || owes_answer(w, cell))
		return;
	if ((w->client & CLIENT_UNIX) && serves_another(w, cell, sock))
		many = CLIENT_MANY;
	w->client = sock | CLIENT_UNIX | many | (sleep->ready ? CLIENT_POLLED : 0);
	w->client_seq = number;
	w->client_port = 0;
	note_reader(w, cell, sock);
}

/*
 * Short sleeps hardly ever have a record, and of a service that answers quickly, those in which it
 * waits for its clients are short. After a record of a thread without a client, some are looked at.
 */
static __always_inline bool looks_for_client(struct sched_watch *w)
{
	if (client_of(w) || !(w->client & (CLIENT_LOOKS * CLIENT_LOOK)))
		return false;
	w->client -= CLIENT_LOOK;
	return true;
}

static __always_inline void look_for_client(struct sched_watch *w, __u64 *cell)
{
	if (!has_client(w, cell))
		w->client =
			CLIENT_LOOKS * CLIENT_LOOK | (w->client & (CLIENT_MANY | CLIENT_POLLED));
}
