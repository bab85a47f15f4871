// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Many threads, nearly all of which wait for a condition that never comes, and some pairs, of which
 * one asks the other over pipes. Says how many threads there are, and goes on until it is ended.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { PAIRS = 25 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int asks[PAIRS][2], answers[PAIRS][2];

static void *idles(void *nothing)
{
	prctl(PR_SET_NAME, "idle");
	pthread_mutex_lock(&mutex);
	for (;;)
		pthread_cond_wait(&never, &mutex);
	return nothing;
}

/* Of different lengths, as of no timer of a retry. */
static void *serves(void *pair)
{
	long at = (long)pair;
	unsigned seed = at;
	char byte;

	prctl(PR_SET_NAME, "server");
	while (read(asks[at][0], &byte, 1) == 1) {
		usleep(10000 + rand_r(&seed) % 20000);
		if (write(answers[at][1], "x", 1) != 1)
			break;
	}
	return 0;
}

static void *asks_one(void *pair)
{
	long at = (long)pair;
	char byte;

	prctl(PR_SET_NAME, "asker");
	while (write(asks[at][1], "x", 1) == 1 && read(answers[at][0], &byte, 1) == 1)
		;
	return 0;
}

int main(int count, char **words)
{
	int wanted = count == 2 ? atoi(words[1]) : 0, threads = 1;
	pthread_attr_t small;
	pthread_t other;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (; threads < wanted - 2 * PAIRS; threads++) {
		if (pthread_create(&other, &small, idles, 0))
			return 2;
	}
	for (long at = 0; at < PAIRS; at++, threads += 2) {
		if (pipe(asks[at]) || pipe(answers[at]) ||
		    pthread_create(&other, &small, serves, (void *)at) ||
		    pthread_create(&other, &small, asks_one, (void *)at))
			return 2;
	}
	printf("%d\n", threads);
	fflush(stdout);
	pause();
	return 0;
}
