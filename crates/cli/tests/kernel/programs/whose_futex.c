// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Threads that wait on words in memory: some for work, some for locks. Writes its process id, and
 * how long they waited in each way, in seconds: "PID work locks lone".
 *
 *   whose_futex FILE SECONDS idle|locks|shared
 *
 * work    a pool waits for work on a condition, and a thread on a word of its own that holds 2 while
 *         it waits, as the threads of some runtimes do; both are woken 50 times a second, for nothing
 * locks   three threads want the same mutex, which its holder keeps while it sleeps
 * lone    one thread wants a mutex that another one has nearly all the time
 * shared  two threads want to write to what a third one wants to read, and keep the lock while they sleep: they
 *         are counted as `locks`. A second reader could keep the writers out for ever
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FUTEX_WAIT_PRIVATE 128
#define FUTEX_WAKE_PRIVATE 129
#define MILLISECOND	   1000000L

static pthread_mutex_t of_pool = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_work = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t wanted = PTHREAD_MUTEX_INITIALIZER, kept = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int word, stop;
static atomic_long work_ns, locks_ns, lone_ns;

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void nap(long ns)
{
	struct timespec t = {0, ns};

	nanosleep(&t, NULL);
}

static void *pooled(void *unused)
{
	pthread_mutex_lock(&of_pool);
	while (!stop) {
		long begin = now();

		pthread_cond_wait(&has_work, &of_pool);
		work_ns += now() - begin;
	}
	pthread_mutex_unlock(&of_pool);
	return unused;
}

static void *parked(void *unused)
{
	while (!stop) {
		long begin = now();

		word = 2;
		while (word == 2)
			syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
		work_ns += now() - begin;
	}
	return unused;
}

static void *wants(void *unused)
{
	while (!stop) {
		long begin = now();

		pthread_mutex_lock(&wanted);
		locks_ns += now() - begin;
		nap(10 * MILLISECOND);
		pthread_mutex_unlock(&wanted);
		nap(2 * MILLISECOND);
	}
	return unused;
}

static void *keeps(void *unused)
{
	while (!stop) {
		pthread_mutex_lock(&kept);
		nap(20 * MILLISECOND);
		pthread_mutex_unlock(&kept);
		nap(5 * MILLISECOND);
	}
	return unused;
}

static void *lone(void *unused)
{
	while (!stop) {
		long begin = now();

		pthread_mutex_lock(&kept);
		lone_ns += now() - begin;
		pthread_mutex_unlock(&kept);
		nap(10 * MILLISECOND);
	}
	return unused;
}

static void keep_shared(int (*lock)(pthread_rwlock_t *))
{
	while (!stop) {
		long begin = now();

		lock(&shared);
		locks_ns += now() - begin;
		nap(10 * MILLISECOND);
		pthread_rwlock_unlock(&shared);
		nap(2 * MILLISECOND);
	}
}

static void *writes(void *unused)
{
	keep_shared(pthread_rwlock_wrlock);
	return unused;
}

static void *reads(void *unused)
{
	keep_shared(pthread_rwlock_rdlock);
	return unused;
}

static void wake_after(long ns)
{
	nap(ns);
	/* With the mutex, all of them would want it at once. */
	pthread_cond_broadcast(&has_work);
	word = 0;
	syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

int main(int argc, char **argv)
{
	void *(*of_work[])(void *) = {pooled, pooled, pooled, parked};
	void *(*of_locks[])(void *) = {wants, wants, wants, keeps, lone};
	void *(*of_shared[])(void *) = {writes, writes, reads};
	pthread_t threads[9];
	int count = 0;
	FILE *told;

	if (argc != 4)
		return 2;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[count++], NULL, of_work[i], NULL);
	for (int i = 0; i < 5 && !strcmp(argv[3], "locks"); i++)
		pthread_create(&threads[count++], NULL, of_locks[i], NULL);
	for (int i = 0; i < 3 && !strcmp(argv[3], "shared"); i++)
		pthread_create(&threads[count++], NULL, of_shared[i], NULL);
	for (int i = 0; i < 50 * atoi(argv[2]); i++)
		wake_after(20 * MILLISECOND);
	stop = 1;
	/* Also whoever has only begun to wait. */
	for (int i = 0; i < 50; i++)
		wake_after(2 * MILLISECOND);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	told = fopen(argv[1], "w");
	fprintf(told, "%d %.9f %.9f %.9f\n", getpid(), work_ns / 1e9, locks_ns / 1e9, lone_ns / 1e9);
	return fclose(told) != 0;
}
