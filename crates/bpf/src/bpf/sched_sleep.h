/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Types of what is told of the sleeps of watched threads. Included by sched.h.
 */
#ifndef DEBURR_SCHED_SLEEP_H
#define DEBURR_SCHED_SLEEP_H

/* Numbers of system calls are below this. */
#define SLEEP_CALLS 512
/* Sleeps in a CPU's log. */
#define SLEEPS 1024

/* What a thread does in the kernel if it is not in a system call that is known. */
enum sleep_call {
	SLEEP_NO_CALL = -1, /* a page fault, or another exception */
	SLEEP_KERNEL = -2,  /* it works for the kernel only */
	SLEEP_COMPAT = -3,  /* a call of a 32-bit program */
	SLEEP_UNKNOWN = -4,
};

/* In what a thread was woken. */
enum sleep_context {
	CTX_UNKNOWN = 0,
	CTX_TASK = 1,    /* by the thread that the CPU ran */
	CTX_SOFTIRQ = 2, /* in a soft interrupt, and it is not known in which */
	CTX_HARDIRQ = 3, /* the same of a hard one */
	CTX_NMI = 4,
	CTX_NOT_YET = 5, /* it sleeps on */
	CTX_SOCKET = 6,  /* CTX_SOFTIRQ; the CPU ran a thread in a call on an internet socket */
	CTX_TIMER = 7,   /* one of high resolution */
	CTX_KERNEL_TIMER = 8, /* one of the timer wheel */
	CTX_NETWORK = 9,
	CTX_BLOCK = 10,
	CTX_CALL = 11,   /* another CPU has this one call a function */
	CTX_DEVICE = 12, /* waker_tid is the interrupt's number */
	CTX_SENT = 13,   /* CTX_NETWORK; served in its own call on an internet socket by a thread */
};

/* The kernel's lock for which a thread sleeps. All but SLEEP_NO_LOCK and SLEEP_MMAP_LOCK are 1 +
 * the kinds of include/linux/hung_task.h. */
enum sleep_lock {
	SLEEP_NO_LOCK = 0,
	SLEEP_MUTEX = 1,
	SLEEP_SEMAPHORE = 2,
	SLEEP_RWSEM_READ = 3,
	SLEEP_RWSEM_WRITE = 4,
	SLEEP_MMAP_LOCK = 5, /* of its own address space */
};

/*
 * In sched_watch.client. The thread has found a client in an event poll, which serves many, and has
 * not rested elsewhere since; it is a unix socket; the thread has read from several of these that
 * are open.
 */
#define CLIENT_POLLED 1ULL
#define CLIENT_UNIX   2ULL
#define CLIENT_MANY   4ULL
/* With a socket of TCP: the thread has slept on something else since it read what is not answered;
 * and it has read from several of these that are open. */
#define CLIENT_SLEPT   8ULL
#define CLIENT_SEVERAL 16ULL
/* Without a socket: so many sleeps more are looked at for one, CLIENT_LOOKS times this at most. */
#define CLIENT_LOOK 8ULL
/* What the addresses of sockets have no bit of. */
#define CLIENT_FLAGS 63ULL

/* In sched_sleep.mark, of a socket of the internet. */
enum sleep_conversation {
	CONVERSATION_GOES_ON = 0,
	CONVERSATION_ASKED =
		1, /* its process has sent something, or wants to, and has read nothing */
	CONVERSATION_SILENT = 2, /* of TCP: it is connected, and nothing was sent or received */
	CONVERSATION_BOUND = 3,  /* of UDP: its program has chosen its port */
};

/* A thread whose sleeps are recorded. Free when `tid` is 0. */
struct sched_watch {
	__u32 tid;
	__u32 waker_tid; /* whom the CPU ran that woke it last; 0 = nobody. See CTX_DEVICE */
	__u32 waker_tgid;
	__s16 waker_call; /* in which call: its number, or enum sleep_call */
	__u8 context;     /* enum sleep_context; CTX_UNKNOWN = it was not woken since it slept */
	__u8 ended;
	__u64 owed_ns; /* sleep that no record stands for yet */
	__u64 told_ns; /* how much of the sleep that began at told_since_ns is accounted for */
	__u64 told_since_ns;
	/* The connection of TCP from which it last read, or unix socket on which it found something
	 * to read. */
	__u64 client;      /* its socket, and flags: CLIENT_... */
	__u32 client_seq;  /* of TCP: what was sent by then; of a unix socket: its number */
	__u32 client_read; /* of TCP: what was read by then */
	__u16 client_port; /* of TCP: the own one, and that of the other end */
	__u16 client_dport;
	__u8 waits_on; /* a limit that it had set has ended its last sleep: the next one is told */
	__u8 pad;
	__u16 waker_to; /* of CTX_SOCKET and CTX_SENT: the port that its socket was connected to */
};

/* A sleep of a watched thread. Times are those of the run queues' clock. */
struct sched_sleep {
	__u64 since_ns;
	__u64 slept_ns;
	__u64 stands_for_ns; /* sleep of this thread since its last record; 0 = the next one stands
				for this, too */
	__u64 argument[3];   /* of its system call */
	__u64 inode;  /* of the file that the first argument means; of a call that takes none, where
			 its program goes on */
	__u8 kind[8]; /* beginning of the name of a file without a type: "[eventpo" */
	__u32 device; /* of a file's filesystem; of a character device, its own; of a sleep on a
			 socket: waker_to of its watch */
	__u32 tid;
	__u32 tgid;
	__u32 waker_tid;
	__u32 waker_tgid;
	__u32 peer;      /* process at the other end of a unix socket; 0 = not known. Of a sleep on
			    no socket: one that waits for an answer on a unix socket */
	__u32 remote[4]; /* address of a socket's other end, in network order; of a lock, in two
			    parts */
	__s16 call;      /* number of the system call, or enum sleep_call */
	__s16 waker_call;
	__u16 local_port; /* of a sleep on no socket: of a connection on which something was read
			     that is not answered */
	__u16 remote_port;
	__u16 mode;   /* type of the file; 0 = none is known */
	__u16 family; /* of a socket; 0 = it is none */
	__u16 socket_type;
	__u8 socket_state; /* of a sleep on no socket: not 0 if the thread has read from several
			      connections of TCP that were open */
	__u8 state;        /* of the ledger */
	__u8 context;      /* enum sleep_context */
	__u8 mark;  /* of a socket of the internet, enum sleep_conversation; or a unix socket that
		       was bound, or whose listener was; a file that a process serves (FUSE); a call
		       that takes no file whose fourth argument is not 0 */
	__u8 ready; /* the socket is the one that is ready of several */
	__u8 lock;  /* enum sleep_lock; not told of who sleeps in a call on a socket */
	__u32 write_seq; /* number of the next byte that is sent by a socket of TCP */
};

/* The sleeps that ended on a CPU. */
struct sched_sleeps {
	__u64 head; /* sleeps ever written */
	__u64 cell;
	struct sched_sleep sleep[SLEEPS];
};

_Static_assert(sizeof(struct sched_watch) == 64, "no hidden padding");
_Static_assert(sizeof(struct sched_sleep) == 128, "two cache lines");

#endif
