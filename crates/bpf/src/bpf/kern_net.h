/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The kernel fields about sockets and event polls that are read, besides those of kern_io.h. */
#ifndef DEBURR_KERN_NET_H
#define DEBURR_KERN_NET_H

#include "kern_io.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__u32 u6_addr32[4];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	__u16 skc_dport;
	__u16 skc_num;
	__u16 skc_family;
	__u8 skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct upid {
	unsigned int nr;
};

struct pid {
	struct upid numbers[1];
};

struct sk_buff_head {
	__u32 qlen;
};

typedef struct {
	unsigned int owned; /* by a thread */
} socket_lock_t;

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	struct sk_buff_head sk_receive_queue;
	__u32 sk_ack_backlog; /* clients that wait for accept */
	__u16 sk_type;
	__u16 sk_protocol;
	__u8 sk_userlocks : 4;
	__u32 sk_forward_alloc;
	unsigned int sk_sndbuf;
	struct pid *sk_peer_pid;
	struct socket *sk_socket;
};

/* --- TCP --- */

/* Who has a local port. */
struct inet_bind_bucket {
	__u8 fastreuse; /* a signed number: negative if only connect() has chosen the port */
};

/* A connection that waits to be accepted. */
struct request_sock {
	struct request_sock *dl_next; /* that came next */
	struct sock *sk;
};

struct request_sock_queue {
	struct request_sock *rskq_accept_head; /* that has waited longest */
};

struct inet_connection_sock {
	struct inet_bind_bucket *icsk_bind_hash;
	struct request_sock_queue icsk_accept_queue;
	__u32 icsk_rto;
	__u8 icsk_retransmits;
	__u8 icsk_pending;
	struct {
		__u32 lrcvtime; /* in jiffies: when something to read came last */
	} icsk_ack;
};

struct tcp_sock {
	__u32 data_segs_out;
	__u32 snd_nxt;
	__u32 srtt_us;
	__u32 total_retrans;
	__u32 lsndtime;  /* in jiffies: when something was sent last */
	__u32 write_seq; /* number of the next byte that its process sends */
	__u32 snd_una;   /* the first byte that was not confirmed */
	__u32 snd_sml;   /* the last byte of the last segment that was not full */
	__u32 mss_cache; /* bytes in a full segment */
	__u32 snd_cwnd;  /* segments that may be on their way */
	__u32 packets_out;
	__u32 lost_out;    /* of these, taken for lost */
	__u32 retrans_out; /* sent again, and not confirmed */
	__u8 nonagle : 4;
	/* What arrived, up to which number without a gap, and up to which its process has read. */
	__u64 bytes_received;
	__u32 rcv_nxt;
	__u32 copied_seq;
	/* The room that the other end was last told of, and where it begins. */
	__u32 rcv_wnd;
	__u32 rcv_wup;
	__u32 snd_wnd; /* bytes that the other end has room for, as it last said */
	/* What it does since chrono_start, in jiffies, and the sums of what it did before. */
	__u32 chrono_start;
	__u32 chrono_stat[3];
	__u8 chrono_type : 2;
};

struct sk_buff {
	char cb[48];
};

/* What TCP keeps in sk_buff.cb. */
struct tcp_skb_cb {
	__u32 seq;
	__u16 tcp_gso_segs;
};

struct unix_address;

struct unix_sock {
	struct unix_address *addr; /* that it was bound to, or that its listener was */
	struct sock *peer;
};

struct list_head {
	struct list_head *next;
	struct list_head *prev;
};

struct wait_queue_head {
	struct list_head head;
};

struct wait_queue_entry {
	void *private;
	struct list_head entry;
};

struct socket_wq {
	struct wait_queue_head wait;
};

struct socket {
	struct file *file;
	struct sock *sk;
	struct socket_wq wq;
};

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};

struct epoll_filefd {
	struct file *file;
};

struct epoll_event {
	__u32 events;
};

struct eventpoll {
	struct wait_queue_head wq;
	struct list_head rdllist;
};

struct epitem {
	struct list_head rdllink; /* in `rdllist`, or with itself */
	struct epoll_filefd ffd;
	struct eventpoll *ep;
	struct epoll_event event;
};

/* An event poll in a file's queue of waiting threads. */
struct eppoll_entry {
	struct epitem *base;
	struct wait_queue_entry wait;
	struct wait_queue_head *whead;
};

/* --- for what poll and select wait --- */

struct poll_table_entry {
	struct file *filp;
	struct wait_queue_entry wait;
};

struct poll_wqueues {
	struct task_struct *polling_task;
	__u32 inline_index;
	struct poll_table_entry inline_entries[1];
};

#pragma clang attribute pop

/* include/uapi/linux/stat.h */
#define S_IFMT   0170000
#define S_IFCHR  0020000
#define S_IFDIR  0040000
#define S_IFREG  0100000
#define S_IFSOCK 0140000

/* include/uapi/linux/magic.h */
#define FUSE_SUPER_MAGIC 0x65735546

/* include/linux/net.h */
#define SOCK_STREAM 1
#define SOCK_DGRAM  2

/* include/net/sock.h: sk_userlocks */
#define SOCK_BINDPORT_LOCK 8

/* include/net/tcp_states.h */
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT    2
#define TCP_CLOSE       7
#define TCP_LISTEN      10

/* include/uapi/linux/eventpoll.h: EPOLLIN, EPOLLRDNORM */
#define EPOLL_READS 0x41

/* include/uapi/linux/in.h */
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17

/* include/net/tcp.h, enum tcp_chrono */
#define TCP_CHRONO_BUSY 1

/* include/linux/socket.h */
#define AF_UNIX  1
#define AF_INET  2
#define AF_INET6 10

#endif
