// SPDX-License-Identifier: Apache-2.0 OR MIT
// A parent that waits in the kernel for a child to let go of its memory, and sleeps in a call beside that: `vforks COUNT`.
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static volatile int kept;

static void pauses(void)
{
	struct timespec t = { 0, 30000000 };
	nanosleep(&t, NULL);
}

NOINLINE void rests(void) { pauses(); kept++; }

// The C library's functions leave no frame, so the one that calls them is missing: each has one around it.
NOINLINE static void starts(void)
{
	if (vfork() == 0) {
		pauses();
		_exit(0);
	}
	kept++;
}

NOINLINE void lends(void) { starts(); kept++; }

int main(int count, char **arguments)
{
	for (int left = count > 1 ? atoi(arguments[1]) : 1; left > 0; left--) {
		lends();
		rests();
	}
	return 0;
}
