/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Types shared by the network probe and its reader. Fixed-width fields with explicit padding; the
 * Rust types are generated from this file. Times are nanoseconds of CLOCK_MONOTONIC unless their
 * names say otherwise.
 */
#ifndef DEBURR_NET_H
#define DEBURR_NET_H

/* A connection. */
struct net_ends {
	__u64 sock;     /* address of the socket, which another one may have later */
	__u64 inode;    /* of the socket's file; 0 = it has none, or none any more */
	__u32 netns;    /* inode number of its network namespace; 0 = not known */
	__u32 local[4]; /* in network byte order; IPv4: the first only */
	__u32 remote[4];
	__u16 local_port;
	__u16 remote_port;
	__u16 family;
	__u16 pad[3];
};

/* A segment, or several that are sent as one, that TCP sends again. */
struct net_resent {
	__u64 t_ns;
	struct net_ends ends;
	__u32 srtt_us8;      /* smoothed round-trip time in eighths of microseconds */
	__u32 rto_jiffies;   /* the timer's present setting: of a timeout, what it waited */
	__u32 total_retrans; /* segments that were sent again since the connection began, these too
			      */
	__u32 data_segs_out; /* segments with data that were sent, those sent again included */
	__u32 seq;           /* first byte */
	__u32 snd_nxt;       /* first byte that was not sent yet */
	__u16 segs;          /* segments that it consists of; 0 = not known */
	__u8 state;          /* as in include/net/tcp_states.h */
	__u8 retransmits;    /* timeouts since the other end last confirmed anything */
	__u8 pending; /* the timer that is set, ICSK_TIME_...; 0 = none: it has just expired */
	__u8 failed;  /* it was dropped on this host */
	__u8 pad[2];
};

/*
 * What a connection had to do with what it was given to send, since it began. `busy`: it had
 * something that was not confirmed yet. Of that time, `window`: the other end's window was full,
 * and `buffer`: everything was on its way, and the own buffer took no more. They exclude one
 * another.
 */
struct net_sending {
	struct net_ends ends;
	__u32 busy_jiffies; /* wraps around, as do the others */
	__u32 window_jiffies;
	__u32 buffer_jiffies;
	__u32 srtt_us8;
	__u32 window_bytes;  /* that the other end has room for, as it last said */
	__u32 buffer_bytes;  /* of the own buffer, with overhead */
	__u32 waiting_bytes; /* not sent yet */
	__u32 pad;
};

/* What the thread does that fetches from an event poll what is ready. */
enum net_reader_state {
	READER_UNKNOWN, /* it is not known which one that is */
	READER_ON_CPU,
	READER_QUEUED, /* it would run; a CPU limit may forbid it */
	READER_ASLEEP, /* on something else than the event poll */
	READER_NONE,   /* the entry is about a listening socket */
	HELD_SMALL,    /* or about a connection that holds back what does not fill a segment */
	HELD_CORKED,   /* likewise, because its program asked for that */
};

/*
 * A connection with something to read that its event poll has in its list of what is ready; or,
 * with READER_NONE, a listening socket: `waiting` connections wait to be accepted, of which the
 * first that has sent something has the other fields. With HELD_..., a connection that holds back
 * `unread_bytes` of what its process has sent, `age_jiffies` after it sent something; `answers` and
 * `sent` tell whether anything came or went since another look. The last one of an iteration is
 * none of these: it has in `watched` how many connections event polls watch, and in `waiting` how
 * many may hold something back.
 */
struct net_unread {
	struct net_ends ends;
	__u32 unread_bytes;
	__u32 age_jiffies; /* since something to read came last */
	__u32 reader;      /* thread id; 0 = not known */
	__u32 state;       /* enum net_reader_state */
	__u32 watched;
	__u32 room_bytes; /* that the other end may still send */
	__u32 waiting;
	__u32 answers; /* number of the next byte that the other end sends; 0 = it has sent none */
	__u32 sent;    /* number of the next byte that this end sends */
	__u32 pad;
};

/* The thread that was first seen to wait in an event poll. */
struct net_reader {
	__u64 task;
	__u64 met_ns; /* it or another one was last seen to wait there */
	__u32 tid;
	__u32 seen;    /* looks */
	__u32 several; /* others were seen, too */
	__u32 pad;
};

/* The two addresses of a connection, as one of its ends has them. Those of IPv4 are in
 * ::ffff:0:0/96; both are in network byte order. */
struct net_pair {
	__u32 local[4];
	__u32 remote[4];
	__u32 netns; /* of loopback addresses, which each namespace has; else 0 */
	__u16 local_port;
	__u16 remote_port;
};

/* Who has a socket open. */
struct net_holder {
	__u32 tgid;    /* 0 = nobody was met */
	__u32 several; /* others were met, too */
};

struct net_cpu {
	__u64 head; /* entries ever written to this CPU's part of the log */
	__u64 runs;
	__u64 cell;
	__u64 pad[5];
};

_Static_assert(sizeof(struct net_resent) == 104, "no hidden padding");
_Static_assert(sizeof(struct net_sending) == 96, "no hidden padding");
_Static_assert(sizeof(struct net_unread) == 104, "no hidden padding");
_Static_assert(sizeof(struct net_pair) == 40, "no hidden padding");
_Static_assert(sizeof(struct net_cpu) == 64, "CPUs do not share cache lines");

#endif
