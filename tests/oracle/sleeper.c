/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Processes whose threads sleep in many ways, and wake each other:
 *
 *     sleeper COMM SECONDS DIRECTORY CHANNEL,CHANNEL,... PROCESS...
 *
 * All end after SECONDS, and with their parent. CHANNEL, by which threads of any process wake each
 * other, is KIND/BYTES: futex, pipe, unix, tcp, udp, event or signal, and the size of a message.
 * PROCESS is THREAD;THREAD;... and THREAD
 *
 *     ROLE:CHANNEL:OUT:HOW:PAUSE_US-PAUSE_US:WORK_US-WORK_US:SEED
 *
 * with the numbers of channels; those that poll do so for both, which may be the same.
 * Lengths are drawn log-uniformly between both bounds; 0-0 is none.
 * HOW is `sleep` or `spin`, what the thread does as its work. Roles are the names in the table at
 * the end of this file.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHANNELS   32
#define LOCKS      4
#define COLD_BYTES (16 << 20)
#define PAGE       4096
#define MOST_BYTES 65536

struct channel {
	char kind[16];
	int bytes, in, out;
};

/* What processes share of a channel: the word of a futex; who waits for a signal. */
struct shared {
	uint32_t word;
	pid_t tgid, tid;
};

struct thread {
	char role[16], how[16];
	int channel, out;
	double pause_us[2], work_us[2];
	uint64_t seed;
	/* What it has seen of a futex. */
	uint32_t seen;
	int file;
	char *map;
};

static struct channel channels[CHANNELS];
static struct shared *shared;
static pthread_mutex_t locks[LOCKS] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
					PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static const char *directory, *comm;
static char zeros[MOST_BYTES];

static void fail(const char *what)
{
	perror(what);
	exit(3);
}

static int checked(int result, const char *what)
{
	if (result < 0)
		fail(what);
	return result;
}

/* --- time --- */

static double drawn_us(struct thread *self, const double bounds[2])
{
	self->seed = self->seed * 6364136223846793005ull + 1442695040888963407ull;
	double random = (double)(self->seed >> 11) / (double)(1ull << 53);

	return bounds[0] <= 0 ? bounds[1] * random
			      : bounds[0] * exp(log(bounds[1] / bounds[0]) * random);
}

static struct timespec time_of(double us)
{
	struct timespec time = { (time_t)(us / 1e6), 0 };

	time.tv_nsec = (long)((us - (double)time.tv_sec * 1e6) * 1e3);
	return time;
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void sleep_for(double us)
{
	struct timespec time = time_of(us);

	if (us >= 1)
		nanosleep(&time, NULL);
}

/* Reading the clock may be a system call: it is read about ten times in a millisecond. */
static void spin_for(double us)
{
	for (double end = now_us() + us; now_us() < end;)
		for (volatile int i = 0; i < 100000; i++)
			;
}

static void pause_now(struct thread *self)
{
	sleep_for(drawn_us(self, self->pause_us));
}

static void work(struct thread *self)
{
	double us = drawn_us(self, self->work_us);

	if (!strcmp(self->how, "sleep"))
		sleep_for(us);
	else
		spin_for(us);
}

/* --- channels --- */

static long futex(uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

static void connect_pair(int kind, struct channel *channel)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int listener = checked(socket(AF_INET, kind, 0), "socket");

	checked(bind(listener, (struct sockaddr *)&address, size), "bind");
	checked(getsockname(listener, (struct sockaddr *)&address, &size), "getsockname");
	if (kind == SOCK_STREAM)
		checked(listen(listener, 1), "listen");
	channel->out = checked(socket(AF_INET, kind, 0), "socket");
	checked(connect(channel->out, (struct sockaddr *)&address, size), "connect");
	channel->in = listener;
	if (kind == SOCK_STREAM) {
		channel->in = checked(accept(listener, NULL, NULL), "accept");
		close(listener);
	}
}

static void open_channel(struct channel *channel)
{
	int ends[2] = { -1, -1 };

	if (!strcmp(channel->kind, "pipe"))
		checked(pipe(ends), "pipe");
	else if (!strcmp(channel->kind, "unix"))
		checked(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	else if (!strcmp(channel->kind, "event"))
		ends[0] = ends[1] = checked(eventfd(0, 0), "eventfd");
	channel->in = ends[0];
	channel->out = ends[1];
	if (!strcmp(channel->kind, "tcp"))
		connect_pair(SOCK_STREAM, channel);
	else if (!strcmp(channel->kind, "udp"))
		connect_pair(SOCK_DGRAM, channel);
}

static void tell(int number)
{
	struct channel *channel = &channels[number];
	uint64_t one = 1;

	if (!strcmp(channel->kind, "futex")) {
		__atomic_add_fetch(&shared[number].word, 1, __ATOMIC_SEQ_CST);
		futex(&shared[number].word, FUTEX_WAKE, 1);
	} else if (!strcmp(channel->kind, "signal")) {
		if (shared[number].tid)
			syscall(SYS_tgkill, shared[number].tgid, shared[number].tid, SIGUSR1);
	} else if (!strcmp(channel->kind, "event")) {
		write(channel->out, &one, sizeof(one));
	} else if (!strcmp(channel->kind, "pipe")) {
		write(channel->out, zeros, (size_t)channel->bytes);
	} else {
		send(channel->out, zeros, (size_t)channel->bytes, 0);
	}
}

static void take(struct thread *self, int flags)
{
	char buffer[MOST_BYTES];
	struct channel *channel = &channels[self->channel];
	struct shared *with = &shared[self->channel];
	sigset_t set;

	if (!strcmp(channel->kind, "futex")) {
		while (__atomic_load_n(&with->word, __ATOMIC_SEQ_CST) == self->seen)
			futex(&with->word, FUTEX_WAIT, self->seen);
		self->seen = __atomic_load_n(&with->word, __ATOMIC_SEQ_CST);
	} else if (!strcmp(channel->kind, "signal")) {
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		with->tgid = getpid();
		with->tid = (pid_t)syscall(SYS_gettid);
		sigwaitinfo(&set, NULL);
	} else if (!strcmp(channel->kind, "unix") || !strcmp(channel->kind, "tcp") ||
		   !strcmp(channel->kind, "udp")) {
		recv(channel->in, buffer, sizeof(buffer), flags);
	} else {
		read(channel->in, buffer, sizeof(buffer));
	}
}

/* --- roles: what a thread does once, again and again --- */

static void do_sleep(struct thread *self)
{
	pause_now(self);
	work(self);
}

static void do_make(struct thread *self)
{
	pause_now(self);
	work(self);
	tell(self->channel);
}

static void do_take(struct thread *self)
{
	take(self, 0);
	pause_now(self);
	work(self);
}

static void do_relay(struct thread *self)
{
	take(self, 0);
	work(self);
	tell(self->out);
}

static void open_file(struct thread *self, const char *name, int flags)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	self->file = checked(open(path, flags, 0600), path);
}

#include "sleeper_poll.h"

static void do_epoll(struct thread *self)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (self->file < 0) {
		self->file = checked(epoll_create1(0), "epoll_create1");
		checked(epoll_ctl(self->file, EPOLL_CTL_ADD, channels[self->channel].in, &event),
			"epoll_ctl");
	}
	if (epoll_wait(self->file, &event, 1, 100) > 0)
		take(self, MSG_DONTWAIT);
	work(self);
}

static void do_timer(struct thread *self)
{
	struct itimerspec timer = { 0 };
	uint64_t times;

	if (self->file < 0)
		self->file = checked(timerfd_create(CLOCK_MONOTONIC, 0), "timerfd_create");
	timer.it_value = time_of(drawn_us(self, self->pause_us) + 1);
	timerfd_settime(self->file, 0, &timer, NULL);
	read(self->file, &times, sizeof(times));
	work(self);
}

static void do_mutex(struct thread *self)
{
	pause_now(self);
	pthread_mutex_lock(&locks[self->channel % LOCKS]);
	work(self);
	pthread_mutex_unlock(&locks[self->channel % LOCKS]);
}

static void do_flock(struct thread *self)
{
	if (self->file < 0)
		open_file(self, "lock", O_RDWR | O_CREAT);
	pause_now(self);
	flock(self->file, LOCK_EX);
	work(self);
	flock(self->file, LOCK_UN);
}

static void do_record_lock(struct thread *self)
{
	struct flock lock = { .l_type = F_WRLCK };

	if (self->file < 0)
		open_file(self, "record", O_RDWR | O_CREAT);
	pause_now(self);
	fcntl(self->file, F_OFD_SETLKW, &lock);
	work(self);
	lock.l_type = F_UNLCK;
	fcntl(self->file, F_OFD_SETLK, &lock);
}

static void do_child(struct thread *self)
{
	pid_t child = fork();

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		work(self);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	pause_now(self);
}

static void *work_of_another(void *of)
{
	work(of);
	return NULL;
}

static void do_join(struct thread *self)
{
	pthread_t other;

	if (!pthread_create(&other, NULL, work_of_another, self))
		pthread_join(other, NULL);
	pause_now(self);
}

static off_t cold_place(struct thread *self)
{
	const double places[2] = { 0, COLD_BYTES / PAGE - 1 };

	return (off_t)drawn_us(self, places) * PAGE;
}

static void do_fault(struct thread *self)
{
	volatile char *at;

	if (self->file < 0) {
		open_file(self, "cold", O_RDONLY);
		self->map = mmap(NULL, COLD_BYTES, PROT_READ, MAP_SHARED, self->file, 0);
		if (self->map == MAP_FAILED)
			fail("mmap");
		madvise(self->map, COLD_BYTES, MADV_RANDOM);
	}
	pause_now(self);
	at = self->map + cold_place(self);
	madvise((void *)at, PAGE, MADV_DONTNEED);
	posix_fadvise(self->file, at - self->map, PAGE, POSIX_FADV_DONTNEED);
	(void)*at;
	work(self);
}

static void do_pread(struct thread *self)
{
	char buffer[PAGE];
	off_t at = cold_place(self);

	if (self->file < 0) {
		open_file(self, "cold", O_RDONLY);
		posix_fadvise(self->file, 0, 0, POSIX_FADV_RANDOM);
	}
	pause_now(self);
	posix_fadvise(self->file, at, PAGE, POSIX_FADV_DONTNEED);
	pread(self->file, buffer, PAGE, at);
	work(self);
}

static void do_sync(struct thread *self)
{
	if (self->file < 0)
		open_file(self, "synced", O_RDWR | O_CREAT);
	pause_now(self);
	pwrite(self->file, zeros, PAGE, cold_place(self));
	fdatasync(self->file);
	work(self);
}

/* Works as long as it is told to, by calls that take time in the kernel. */
static void do_calls(struct thread *self)
{
	static __thread char buffer[1 << 20];
	double end = now_us() + drawn_us(self, self->work_us);

	if (self->file < 0)
		self->file = checked(open("/dev/zero", O_RDONLY), "/dev/zero");
	while (now_us() < end)
		read(self->file, buffer, sizeof(buffer));
	pause_now(self);
}

/* Changes the address space, for which other threads of the process wait. */
static void do_map(struct thread *self)
{
	const size_t bytes = 4 << 20;
	char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (map != MAP_FAILED)
		munmap(map, bytes);
	pause_now(self);
}

/* Messages without a pause, as many as its work takes time for. */
static void do_flood(struct thread *self)
{
	double end = now_us() + drawn_us(self, self->work_us);

	while (now_us() < end)
		tell(self->channel);
	pause_now(self);
}

static const struct {
	const char *name;
	void (*once)(struct thread *);
} roles[] = {
	{ "sleep", do_sleep },        { "make", do_make },     { "take", do_take },
	{ "relay", do_relay },        { "poll", do_poll },     { "epoll", do_epoll },
	{ "timer", do_timer },        { "mutex", do_mutex },   { "flock", do_flock },
	{ "record", do_record_lock }, { "child", do_child },   { "join", do_join },
	{ "fault", do_fault },        { "pread", do_pread },   { "sync", do_sync },
	{ "calls", do_calls },        { "map", do_map },       { "flood", do_flood },
	{ "ppoll", do_ppoll },        { "select", do_select }, { "pselect", do_pselect },
};

static void *run(void *of)
{
	struct thread *self = of;

	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		while (!strcmp(roles[i].name, self->role))
			roles[i].once(self);
	fprintf(stderr, "what is %s?\n", self->role);
	exit(2);
}

static void be_process(char *spec, unsigned seconds)
{
	struct thread *first = NULL;
	pthread_t thread;
	sigset_t set;
	char *left;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, comm);
	alarm(seconds);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (char *word = strtok_r(spec, ";", &left); word; word = strtok_r(NULL, ";", &left)) {
		struct thread *self = calloc(1, sizeof(*self));

		if (!self || sscanf(word, "%15[a-z]:%d:%d:%15[a-z]:%lf-%lf:%lf-%lf:%lu", self->role,
				    &self->channel, &self->out, self->how, &self->pause_us[0],
				    &self->pause_us[1], &self->work_us[0], &self->work_us[1],
				    &self->seed) != 9) {
			fprintf(stderr, "what is %s?\n", word);
			exit(2);
		}
		self->file = -1;
		if (first && pthread_create(&thread, NULL, run, self))
			fail("pthread_create");
		first = first ? first : self;
	}
	run(first);
}

int main(int argc, char **argv)
{
	pid_t parent = getppid();
	unsigned seconds;
	int count = 0;

	if (argc < 6)
		return 2;
	comm = argv[1];
	seconds = (unsigned)atoi(argv[2]);
	directory = argv[3];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		return 3;
	alarm(seconds);
	shared = mmap(NULL, sizeof(*shared) * CHANNELS, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("mmap");
	for (char *word = strtok(argv[4], ","); word && count < CHANNELS;
	     word = strtok(NULL, ","), count++) {
		struct channel *channel = &channels[count];

		if (sscanf(word, "%15[a-z]/%d", channel->kind, &channel->bytes) != 2 ||
		    channel->bytes > MOST_BYTES)
			return 2;
		open_channel(channel);
	}
	for (int i = 5; i < argc; i++) {
		pid_t child = checked(fork(), "fork");

		if (!child)
			be_process(argv[i], seconds);
		printf("%d\n", child);
	}
	fflush(stdout);
	for (;;)
		pause();
}
