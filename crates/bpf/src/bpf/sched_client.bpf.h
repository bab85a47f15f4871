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

/* How often it was seen, of a process, who answers a client whose request a thread had read before
 * it slept on something else: that thread, or others while it slept. */
struct client_answers {
	__u32 own;
	__u32 of_others;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct client_answers);
} client_answers SEC(".maps");

/* One answer of others in so many of its own is none of a rule: some messages have no answer. */
#define ANSWERS_OF_OWN 8
/* An answer of more bytes may be sent long after it was written. */
#define SENT_AT_ONCE 14600

/* Of the kernel's clock that tells when something was sent. */
const volatile __u64 jiffy_ns = 10000000;

/* Sleeps that are looked at for a client beside those that have a record, after each that has one.
 */
#define CLIENT_LOOKS 4

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

/*
 * Whether its process has opened this connection of TCP itself, and has not bound it to a port: so
 * it asks there, and is not asked. An accepted one shares its port with the listener, which was
 * bound, or chose one (__inet_hash_connect and inet_csk_update_fastreuse note which it was).
 */
static __always_inline bool is_opened_here(__u64 *cell, __u64 sock)
{
	__u64 port = ADDRESS_AT(cell, struct inet_connection_sock, sock, icsk_bind_hash);

	return port && (NUMBER_AT(struct inet_bind_bucket, port, fastreuse) & 0x80);
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
	       NUMBER_AT(struct sock, sock, __sk_common.skc_state) == TCP_ESTABLISHED;
}

/* It changes with all that is sent or read on a connection of TCP: both numbers only ever grow. */
static __always_inline __u32 sent_and_read(__u64 sock)
{
	return NUMBER_AT(struct tcp_sock, sock, write_seq) +
	       NUMBER_AT(struct tcp_sock, sock, copied_seq);
}

/* Whether the thread was the last to read from its connection of TCP, and nothing was sent since.
 */
static __always_inline bool owes_answer(struct sched_watch *w, __u64 *cell)
{
	return !(w->client & CLIENT_UNIX) && has_client(w, cell) &&
	       sent_and_read(client_of(w)) == w->client_seq;
}

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
 * Whether threads of that process answer what they have read themselves. Those of a runtime do not,
 * whose tasks any of them may go on with: when such a thread sleeps, its client does not wait for
 * it.
 */
static __always_inline bool answer_themselves(__u32 tgid)
{
	struct client_answers *seen = bpf_map_lookup_elem(&client_answers, &tgid);

	return !seen || seen->of_others * ANSWERS_OF_OWN <= seen->own;
}

static __always_inline void note_answer(__u32 tgid, bool own)
{
	struct client_answers *seen = bpf_map_lookup_elem(&client_answers, &tgid);
	struct client_answers first = { .own = own, .of_others = !own };

	/* Threads may count at once, and one be lost. */
	if (seen && own)
		seen->own++;
	else if (seen)
		seen->of_others++;
	else
		bpf_map_update_elem(&client_answers, &tgid, &first, BPF_ANY);
}

/* Its client has had an answer, or something else was read, since it slept: by whom is noted where
 * it can be told. */
static __always_inline void note_answered(struct sched_sleep *sleep, struct sched_watch *w,
					  __u64 sock)
{
	__u32 changed = sent_and_read(sock) - w->client_seq;
	__u32 ago = (__u32)bpf_jiffies64() - NUMBER_AT(struct tcp_sock, sock, lsndtime);
	__u64 ago_ns = ago * jiffy_ns;

	if (changed > SENT_AT_ONCE)
		return;
	if (ago_ns >= sleep->slept_ns)
		note_answer(sleep->tgid, true);
	else if (ago_ns + 2 * jiffy_ns < sleep->slept_ns)
		note_answer(sleep->tgid, false);
}

/* The same of a client of TCP. Of a sleep in progress nothing is noted: its thread may be woken. */
static __always_inline void note_awaited_tcp(struct sched_sleep *sleep, struct sched_watch *w,
					     __u64 *cell)
{
	bool has_ended = sleep->context != CTX_NOT_YET;

	if (owes_answer(w, cell)) {
		if (has_ended)
			w->client |= CLIENT_SLEPT;
		if (*(__u64 *)sleep->kind == EVENTPOLL || answer_themselves(sleep->tgid))
			sleep->local_port = w->client_port;
	} else if (has_ended && (w->client & CLIENT_SLEPT)) {
		if (has_client(w, cell))
			note_answered(sleep, w, client_of(w));
		w->client &= CLIENT_POLLED;
	}
}

/*
 * Of a sleep on no socket: who waits for an answer. A thread that sleeps on something else while
 * its client has asked for nothing may serve other clients next, and that one may be served by
 * others.
 */
static __always_inline void note_awaited(struct sched_sleep *sleep, struct sched_watch *w,
					 __u64 *cell)
{
	__u64 sock = client_of(w);

	if (sock && !(w->client & CLIENT_UNIX)) {
		note_awaited_tcp(sleep, w, cell);
		return;
	}
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
	if (client_of(w) || w->client < CLIENT_LOOK)
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

/*
 * Something was read from a connection of TCP, by the thread that the CPU runs; but for what the
 * kernel reads itself as it comes, when no thread has the connection's lock. What was read is
 * counted before.
 */
SEC("tp_btf/tcp_rcv_space_adjust")
int on_read(unsigned long long *ctx)
{
	__u64 own = bpf_get_current_pid_tgid(), client, sock, cell;
	struct sched_watch *w;

	if (!tells_sleeps)
		return 0;
	w = watch_of((__u32)own);
	if (!w)
		return 0;
	client = w->client;
	sock = address_of(&w->client, (void *)arg(ctx, 0));
	w->client = client;
	if (!NUMBER_AT(struct sock, sock, sk_lock.owned) || is_opened_here(&cell, sock))
		return 0;
	/* It has run since it slept: the answer was most likely its own. */
	if (client_of(w) && (client & (CLIENT_SLEPT | CLIENT_UNIX)) == CLIENT_SLEPT)
		note_answer(own >> 32, !owes_answer(w, &cell));
	w->client_seq = sent_and_read(sock);
	w->client_port = NUMBER_AT(struct sock, sock, __sk_common.skc_num);
	w->client = sock | (client & CLIENT_POLLED);
	return 0;
}
