// SPDX-License-Identifier: Apache-2.0 OR MIT
// Spends its CPU time in a few functions, in shares that follow from a seed, and writes how much each took by the clock of
// its thread: `profile SEED MILLISECONDS TOLD`. With `profile in FILE MILLISECONDS TOLD` it jumps into that file, which
// holds a loop without an end at its second page; with `profile made HOW MILLISECONDS TOLD` into code that it makes itself, and
// lists for perf as `made_at_run_time`, in a list that is `good`, somebody else's, or older than the process.
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

static char list[64];

static void ends(int signal)
{
	uint64_t ns = cpu_ns();
	if (*list)
		unlink(list);
	tell(&ns, 1);
	_exit(0);
}

static void spins_in(char *code, long ms)
{
	struct itimerval after = { .it_value = { ms / 1000, ms % 1000 * 1000 } };
	signal(SIGALRM, ends);
	setitimer(ITIMER_REAL, &after, NULL);
	((void (*)(void))code)();
}

static int inside(const char *file, long ms)
{
	int fd = open(file, O_RDONLY);
	char *code = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (code == MAP_FAILED)
		return 1;
	spins_in(code + 4096, ms);
	return 1;
}

static int made(const char *how, long ms)
{
#ifdef __x86_64__
	static const unsigned char loop[] = { 0xeb, 0xfe };
#else
	static const unsigned char loop[] = { 0x00, 0x00, 0x00, 0x14 };
#endif
	struct timespec old[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	snprintf(list, sizeof(list), "/tmp/perf-%d.map", getpid());
	FILE *to = fopen(list, "w");
	if (code == MAP_FAILED || !to)
		return 1;
	memcpy(code, loop, sizeof(loop));
	__builtin___clear_cache(code, code + sizeof(loop));
	fprintf(to, "%lx 1000 freed_long_ago\nno line\n0x%lx 10 made_at_run_time\n", (long)code, (long)code);
	fclose(to);
	if (!strcmp(how, "foreign") && chown(list, 65534, 65534))
		return 1;
	if (!strcmp(how, "old") && utimensat(AT_FDCWD, list, old, 0))
		return 1;
	spins_in(code, ms);
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
	if (count == 5 && !strcmp(arguments[1], "made")) {
		told = arguments[4];
		return made(arguments[2], atol(arguments[3]));
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
