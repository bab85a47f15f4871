/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Roles that poll one or two channels, by each of the calls for that. Included by sleeper.c only.
 */

/* The one or two channels that a thread polls. */
static int polled(const struct thread *self, int numbers[2])
{
	numbers[0] = self->channel;
	numbers[1] = self->out;
	return self->out == self->channel ? 1 : 2;
}

/* Says once which descriptors a thread polls: `tid descriptor ...`, a line of the file `polled`. */
static void tell_polled(struct thread *self, const int numbers[2], int count)
{
	char line[64];
	int length = snprintf(line, sizeof(line), "%ld %d", syscall(SYS_gettid),
			      channels[numbers[0]].in);

	if (self->file >= 0)
		return;
	if (count > 1)
		length += snprintf(line + length, sizeof(line) - (size_t)length, " %d",
				   channels[numbers[1]].in);
	line[length++] = '\n';
	open_file(self, "polled", O_WRONLY | O_CREAT | O_APPEND);
	if (write(self->file, line, (size_t)length) != length)
		fail("polled");
}

static void take_ready(struct thread *self, const int numbers[2], int count, unsigned ready)
{
	struct thread of = *self;

	for (int i = 0; i < count; i++) {
		of.channel = numbers[i];
		if (ready & 1u << i)
			take(&of, MSG_DONTWAIT);
	}
	work(self);
}

/* Waits until the timeout, or without one if it is 0. */
static void poll_by(struct thread *self, bool nanoseconds)
{
	int numbers[2], count = polled(self, numbers);
	double us = drawn_us(self, self->pause_us);
	struct timespec timeout = time_of(us);
	struct pollfd files[2];
	unsigned ready = 0;

	tell_polled(self, numbers, count);
	for (int i = 0; i < count; i++)
		files[i] = (struct pollfd){ .fd = channels[numbers[i]].in, .events = POLLIN };
	if (nanoseconds)
		ppoll(files, (nfds_t)count, us > 0 ? &timeout : NULL, NULL);
	else
		poll(files, (nfds_t)count, us > 0 ? (int)(us / 1e3) + 1 : -1);
	for (int i = 0; i < count; i++)
		ready |= files[i].revents & POLLIN ? 1u << i : 0;
	take_ready(self, numbers, count, ready);
}

static void do_poll(struct thread *self)
{
	poll_by(self, false);
}

static void do_ppoll(struct thread *self)
{
	poll_by(self, true);
}

/* The C library calls pselect6 for select. */
static void select_by(struct thread *self, bool nanoseconds)
{
	int numbers[2], count = polled(self, numbers), highest = 0, found;
	double us = drawn_us(self, self->pause_us);
	struct timespec timeout = time_of(us);
	struct timeval coarse = { timeout.tv_sec, timeout.tv_nsec / 1000 };
	unsigned ready = 0;
	fd_set files;

	tell_polled(self, numbers, count);
	FD_ZERO(&files);
	for (int i = 0; i < count; i++) {
		int file = channels[numbers[i]].in;

		FD_SET(file, &files);
		highest = file > highest ? file : highest;
	}
	found = nanoseconds
			? pselect(highest + 1, &files, NULL, NULL, us > 0 ? &timeout : NULL, NULL)
			: (int)syscall(SYS_select, highest + 1, &files, NULL, NULL,
				       us > 0 ? &coarse : NULL);
	for (int i = 0; found > 0 && i < count; i++)
		ready |= FD_ISSET(channels[numbers[i]].in, &files) ? 1u << i : 0;
	take_ready(self, numbers, count, ready);
}

static void do_select(struct thread *self)
{
	select_by(self, false);
}

static void do_pselect(struct thread *self)
{
	select_by(self, true);
}
