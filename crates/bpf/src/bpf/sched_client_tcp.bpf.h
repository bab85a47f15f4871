/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whether a client waits on a connection of TCP from which a thread has read. Included by
 * sched_client.bpf.h only.
 */

/* Of the requests of a process whose client was taken to wait while a thread slept on something
 * else: who answered, that thread or others while it slept; or it read from another client before.
 */
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

/* One answer of others to so many of its own is no rule: some messages have no answer. */
#define ANSWERS_OF_OWN 8
/* So few of others are no rule either. */
#define FEW_OF_OTHERS 4
/* When so many are counted, both numbers are halved: the latest count most. */
#define ANSWERS 1024
/* An answer of more bytes may be sent long after it was written. */
#define SENT_AT_ONCE 14600

/* Of a sleep so long it can be told whether something was sent in it, or before. */
#define LONG_JIFFIES 8

/* Of the kernel's clock that tells when something was sent. */
const volatile __u64 jiffy_ns = 10000000;

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

/* Whether its client is one of TCP, from which it was the last to read. */
static __always_inline bool was_last_to_read(struct sched_watch *w, __u64 *cell)
{
	return !(w->client & CLIENT_UNIX) && has_client(w, cell) &&
	       NUMBER_AT(struct tcp_sock, client_of(w), copied_seq) == w->client_read;
}

/* Whether, besides, nothing was sent since. */
static __always_inline bool owes_answer(struct sched_watch *w, __u64 *cell)
{
	return was_last_to_read(w, cell) &&
	       NUMBER_AT(struct tcp_sock, client_of(w), write_seq) == w->client_seq;
}

/*
 * Whether threads of that process answer what they have read themselves. Those of a runtime do not,
 * whose tasks any of them may go on with: when such a thread sleeps, its client does not wait for
 * it.
 */
static __always_inline bool answer_themselves(__u32 tgid)
{
	struct client_answers *seen = bpf_map_lookup_elem(&client_answers, &tgid);

	return !seen || seen->of_others < FEW_OF_OTHERS ||
	       seen->of_others * ANSWERS_OF_OWN <= seen->own;
}

static __always_inline void note_answer(__u32 tgid, bool own)
{
	struct client_answers *seen = bpf_map_lookup_elem(&client_answers, &tgid);
	struct client_answers first = { .own = own, .of_others = !own };

	if (!seen) {
		bpf_map_update_elem(&client_answers, &tgid, &first, BPF_ANY);
		return;
	}
	/* Threads may count at once, and one be lost. */
	if (own)
		seen->own++;
	else
		seen->of_others++;
	if (seen->own + seen->of_others >= ANSWERS) {
		seen->own /= 2;
		seen->of_others /= 2;
	}
}

/*
 * Its client has had an answer since it slept: who answered is noted where it can be told. What is
 * sent for lack of room, or again, is sent later than it was written. Returns whether it could.
 */
static __always_inline bool note_answered(struct sched_sleep *sleep, struct sched_watch *w,
					  __u64 sock)
{
	__u32 sent = NUMBER_AT(struct tcp_sock, sock, write_seq) - w->client_seq;
	__u32 ago = (__u32)bpf_jiffies64() - NUMBER_AT(struct tcp_sock, sock, lsndtime);
	__u64 ago_ns = ago * jiffy_ns;

	if (!sent || sent > SENT_AT_ONCE || sleep->slept_ns <= LONG_JIFFIES * jiffy_ns)
		return false;
	note_answer(sleep->tgid, ago_ns + 2 * jiffy_ns >= sleep->slept_ns);
	return true;
}

static __always_inline bool is_kind(struct sched_sleep *sleep, __u64 kind)
{
	return *(__u64 *)sleep->kind == kind;
}

/*
 * The same of a client of TCP. An event loop keeps its clients waiting in whatever it sleeps; who
 * polls for many and sleeps on something else is at rest, and so may be who waits for any event of
 * a ring. Of a sleep in progress nothing is noted: its thread may be woken.
 */
static __always_inline void note_awaited_tcp(struct sched_sleep *sleep, struct sched_watch *w,
					     __u64 *cell)
{
	bool has_ended = sleep->context != CTX_NOT_YET, owes = owes_answer(w, cell);
	bool serves_several = w->client & CLIENT_SEVERAL, polls = w->client & CLIENT_POLLED;

	if (has_ended && !owes && (w->client & CLIENT_SLEPT) &&
	    (!was_last_to_read(w, cell) || note_answered(sleep, w, client_of(w))))
		w->client &= ~CLIENT_SLEPT;
	if (sleep->family || is_kind(sleep, IO_URING))
		return;
	if (is_kind(sleep, EVENTPOLL)) {
		if (owes)
			sleep->local_port = w->client_port;
		return;
	}
	if (!owes) {
		/* It rests where it is given work, and not in an event poll. */
		if (has_ended)
			w->client &= ~CLIENT_POLLED;
		return;
	}
	if (polls && serves_several)
		return;
	if (has_ended)
		w->client |= CLIENT_SLEPT;
	sleep->socket_state = serves_several;
	if (answer_themselves(sleep->tgid))
		sleep->local_port = w->client_port;
}

/* An event poll, or another call on several files, found an accepted connection of TCP ready. */
static __always_inline void note_found(struct sched_sleep *sleep, struct sched_watch *w,
				       __u64 *cell, __u64 sock)
{
	if (sleep->context != CTX_NOT_YET && sleep->socket_state == TCP_ESTABLISHED &&
	    NUMBER_AT(struct sock, sock, sk_protocol) == IPPROTO_TCP && !is_opened_here(cell, sock))
		w->client |= CLIENT_POLLED;
}

/*
 * Something was read from a connection of TCP, by the thread that the CPU runs; but for what the
 * kernel reads itself as it comes, when no thread has the connection's lock. What was read is
 * counted before.
 */
SEC("tp_btf/tcp_rcv_space_adjust")
int on_read(unsigned long long *ctx)
{
	__u64 own = bpf_get_current_pid_tgid(), client, before, sock, cell;
	struct sched_watch *w;
	bool sent, owes;
	__u32 read;
	__u16 port;

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
	read = NUMBER_AT(struct tcp_sock, sock, copied_seq);
	port = NUMBER_AT(struct sock, sock, __sk_common.skc_num);
	before = client & CLIENT_UNIX || !has_client(w, &cell) ? 0 : client_of(w);
	if (before) {
		sent = NUMBER_AT(struct tcp_sock, before, write_seq) != w->client_seq;
		/* It looked, and took nothing; or more of the same. */
		if (before == sock && (!sent || read == w->client_read)) {
			w->client_read = read;
			return 0;
		}
		owes = owes_answer(w, &cell);
		/* Its process has opened that one from a port that it chose. */
		if (owes && port != w->client_port && !(client & CLIENT_SLEPT))
			return 0;
		if (client & CLIENT_SLEPT && (sent || owes))
			note_answer(own >> 32, sent);
		if (before != sock)
			client |= CLIENT_SEVERAL;
	}
	client &= CLIENT_MANY | CLIENT_POLLED | (before ? CLIENT_SEVERAL : 0);
	w->client_dport = NUMBER_AT(struct sock, sock, __sk_common.skc_dport);
	w->client_seq = NUMBER_AT(struct tcp_sock, sock, write_seq);
	w->client_read = read;
	w->client_port = port;
	w->client = sock | client;
	return 0;
}
