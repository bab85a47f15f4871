// SPDX-License-Identifier: Apache-2.0 OR MIT
// Spends its CPU time in a few functions, in shares that follow from a seed, and writes how much each took by the clock of
// its thread: `profile SEED MILLISECONDS TOLD`. With `profile in FILE MILLISECONDS TOLD` it jumps into that file, which
// holds a loop without an end at its second page.
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define FUNCTIONS 4
static volatile uint64_t sink;
static char buffer[1 << 20];
static int zero;
static const char *told;

static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

#define NOINLINE __attribute__((noinline, noclone))
NOINLINE void adds(void) { for (long i = 0; i < 1000000; i++) sink += i; }
NOINLINE void multiplies(void) { for (long i = 0; i < 1000000; i++) sink = sink * 3 + i; }
NOINLINE void shifts(void) { for (long i = 0; i < 1000000; i++) sink ^= sink << 7 ^ i; }
NOINLINE void reads(void) { for (int i = 0; i < 20; i++) sink += read(zero, buffer, sizeof(buffer)); }

static void tell(const uint64_t *ns, int count)
{
	FILE *to = fopen(told, "w");
	fprintf(to, "%d", getpid());
	for (int i = 0; i < count; i++)
		fprintf(to, " %llu", (unsigned long long)ns[i]);
	fprintf(to, "\n");
	fclose(to);
}

static void ends(int signal)
{
	uint64_t ns = cpu_ns();
	tell(&ns, 1);
	_exit(0);
}

static int inside(const char *file, long ms)
{
	int fd = open(file, O_RDONLY);
	char *code = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	struct itimerval after = { .it_value = { ms / 1000, ms % 1000 * 1000 } };
	if (code == MAP_FAILED)
		return 1;
	signal(SIGALRM, ends);
	setitimer(ITIMER_REAL, &after, NULL);
	((void (*)(void))(code + 4096))();
	return 1;
}

int main(int count, char **arguments)
{
	void (*all[FUNCTIONS])(void) = { adds, multiplies, shifts, reads };
	uint64_t ns[FUNCTIONS] = { 0 }, weights[FUNCTIONS], sum = 0, begun;
	if (count == 5 && !strcmp(arguments[1], "in")) {
		told = arguments[4];
		return inside(arguments[2], atol(arguments[3]));
	}
	srandom(atol(arguments[1]));
	told = arguments[3];
	zero = open("/dev/zero", O_RDONLY);
	for (int i = 0; i < FUNCTIONS; i++)
		weights[i] = 1 + random() % 10;
	/* Always whoever has least, so that the shares come out as they were chosen. */
	begun = cpu_ns();
	while (cpu_ns() - begun < atol(arguments[2]) * 1000000ull) {
		int next = 0;
		for (int i = 1; i < FUNCTIONS; i++)
			if (ns[i] * weights[next] < ns[next] * weights[i])
				next = i;
		uint64_t before = cpu_ns();
		all[next]();
		ns[next] += cpu_ns() - before;
	}
	tell(ns, FUNCTIONS);
	return 0;
}
