// SPDX-License-Identifier: Apache-2.0 OR MIT
// Threads that go to sleep in a few functions, in shares that follow from a seed, and write how long they slept in each by
// their own clocks: `stacks SEED MILLISECONDS TOLD`. One thread takes turns with a lock that another one holds in `holds`.
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FUNCTIONS 4
#define NOINLINE __attribute__((noinline, noclone))
static int pipes[2];
static uint32_t held;
static volatile int over;
static volatile uint64_t kept;

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

// Time that this thread has not slept: on a CPU, and in run queues by the kernel's account.
static uint64_t awake_ns(int account)
{
	char text[64] = "";
	unsigned long long ran = 0, waited = 0;
	if (pread(account, text, sizeof(text) - 1, 0) > 0)
		sscanf(text, "%llu %llu", &ran, &waited);
	return clock_ns(CLOCK_THREAD_CPUTIME_ID) + waited;
}

static void pauses(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };
	nanosleep(&t, NULL);
}

// The C library's functions leave no frame, so the one that calls them is missing: each has one around it. Where they are
// called from stacks of the same depth, a rare sleep is not told from frequent ones beforehand.
NOINLINE void sleeps_little(void) { pauses(300); kept++; }
NOINLINE void sleeps_long(void) { volatile char deep[256]; deep[0] = 1; pauses(20000); kept += deep[0]; }
NOINLINE static void receives(void) { char c; if (read(pipes[0], &c, 1) == 1) kept++; }
NOINLINE void awaits(void) { receives(); kept++; }
NOINLINE static void until_free(void)
{
	while (__atomic_load_n(&held, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, &held, FUTEX_WAIT, 1, NULL);
}
NOINLINE void takes(void) { until_free(); kept++; }

NOINLINE static void frees(void)
{
	__atomic_store_n(&held, 0, __ATOMIC_RELEASE);
	syscall(SYS_futex, &held, FUTEX_WAKE, 1, NULL);
}
NOINLINE void holds(long us) { pauses(us); frees(); kept++; }

static void *writes(void *arg)
{
	while (!over) {
		pauses(3000);
		if (write(pipes[1], "x", 1) != 1)
			return NULL;
	}
	return arg;
}

static void *holder(void *arg)
{
	while (!over) {
		__atomic_store_n(&held, 1, __ATOMIC_RELEASE);
		holds(7000);
		pauses(100);
	}
	return arg;
}

int main(int count, char **arguments)
{
	void (*all[FUNCTIONS])(void) = { sleeps_little, sleeps_long, awaits, takes };
	uint64_t ns[FUNCTIONS] = { 0 }, weights[FUNCTIONS], begun = now_ns();
	pthread_t threads[2];
	int account = open("/proc/thread-self/schedstat", O_RDONLY);
	if (count != 4 || account < 0 || pipe(pipes))
		return 1;
	srandom(atol(arguments[1]));
	for (int i = 0; i < FUNCTIONS; i++)
		weights[i] = 1 + random() % 10;
	pthread_create(&threads[0], NULL, writes, NULL);
	pthread_create(&threads[1], NULL, holder, NULL);
	// Always whoever has least, so that the shares come out as they were chosen.
	while (now_ns() - begun < atol(arguments[2]) * 1000000ull) {
		int next = 0;
		for (int i = 1; i < FUNCTIONS; i++)
			if (ns[i] * weights[next] < ns[next] * weights[i])
				next = i;
		uint64_t before = now_ns() - awake_ns(account);
		all[next]();
		int64_t slept = now_ns() - awake_ns(account) - before;
		ns[next] += slept > 0 ? slept : 0;
	}
	over = 1;
	FILE *to = fopen(arguments[3], "w");
	fprintf(to, "%d", getpid());
	for (int i = 0; i < FUNCTIONS; i++)
		fprintf(to, " %llu", (unsigned long long)ns[i]);
	fprintf(to, "\n");
	fclose(to);
	return 0;
}
