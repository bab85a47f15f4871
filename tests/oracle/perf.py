# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Records a trace of switches, wake-ups and migrations, or of other tracepoints, with perf, and reads it.

Reads perf.data itself: printing and parsing it as text takes several times as long as the run. Of its format only what
one fixed command writes is understood; anything else is an error, not a guess.
"""

import os
import signal
import struct
import subprocess

TRACEFS = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
# Buffer per CPU, enough for the whole run: a perf that need not wake up disturbs nothing.
BUFFER = "32M"

# perf_event_attr.sample_type of the command below: IP, TID, TIME, CPU, PERIOD, RAW, IDENTIFIER.
SAMPLE_TYPE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 16
TYPE_TRACEPOINT = 2
NOBODY = 0xFFFFFFFF
SAMPLE = struct.Struct("=QQIIQIIQI")
RECORD_LOST, RECORD_COMM, RECORD_EXIT, RECORD_FORK, RECORD_SAMPLE, RECORD_LOST_SAMPLES = 2, 3, 4, 7, 9, 13

SWITCH, WAKEUP, NEW, MIGRATE, FORK, RUNTIME = range(6)
# Of each kind of event: its tracepoint, and the fields that are read.
SCHED = {
    SWITCH: ("sched:sched_switch", "prev_pid", "prev_state", "next_pid"),
    WAKEUP: ("sched:sched_wakeup", "pid", "target_cpu"),
    NEW: ("sched:sched_wakeup_new", "pid", "target_cpu"),
    MIGRATE: ("sched:sched_migrate_task", "pid", "orig_cpu", "dest_cpu"),
    FORK: ("sched:sched_process_fork", "parent_pid", "child_pid"),
    RUNTIME: ("sched:sched_stat_runtime", "pid", "runtime"),
}


class Missing(Exception):
    """A requirement is missing; the message names it."""


def tracefs(event="sched/sched_switch"):
    for path in TRACEFS:
        if os.path.exists(f"{path}/events/{event}/format"):
            return path
    raise Missing(f"no tracepoint {event} below {' or '.join(TRACEFS)}")


class Recorder:
    """perf while it records; `stop` ends it. `filters` {event: expression}: only such events of it."""

    def __init__(self, path, kinds=SCHED, filters=None):
        self.path = path
        control, self.commands = os.pipe()
        self.answers, answer = os.pipe()
        events = []
        for event, *_ in kinds.values():
            expression = (filters or {}).get(event)
            events += ["-e", event, *(["--filter", expression] if expression else [])]
        self.process = subprocess.Popen(
            ["perf", "record", "-q", "-a", "-k", "CLOCK_MONOTONIC", "-m", BUFFER, "-B", "-N", "-D", "-1",
             f"--control=fd:{control},{answer}", *events, "-o", path],
            pass_fds=[control, answer], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        os.close(control)
        os.close(answer)
        if not self.say(b"enable\n"):
            self.process.kill()
            complaint = self.process.communicate()[1].decode(errors="replace").strip()
            self.stop()
            raise Missing(f"perf does not record: {complaint}")

    def say(self, command):
        """Sends a command; returns whether perf acknowledged it."""
        try:
            os.write(self.commands, command)
            return os.read(self.answers, 16).startswith(b"ack")
        except BrokenPipeError:
            return False

    def stop(self):
        """Ends perf; its file is complete then. May be called again."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)
            self.process.communicate(timeout=60)
        for pipe in self.commands, self.answers:
            if pipe is not None:
                os.close(pipe)
        self.commands = self.answers = None


def field_offsets(event):
    """The tracepoint's number, and {field: (offset, size)} of its data."""
    fields, number = {}, None
    with open(f"{tracefs()}/events/{event.replace(':', '/')}/format") as file:
        for line in file:
            if line.startswith("ID:"):
                number = int(line[3:])
            elif line.startswith("\tfield:"):
                name, offset, size = (part.strip() for part in line.strip().split(";")[:3])
                name = name.split()[-1].split("[")[0]
                fields[name] = (int(offset.split(":")[1]), int(size.split(":")[1]))
    return number, fields


def decoder(event, *names):
    """The tracepoint's number, and a function from its data to the fields of these names."""
    number, fields = field_offsets(event)
    codes = {4: "i", 8: "q"}
    # Fields of other sizes are text.
    parts = [struct.Struct("=" + codes.get(fields[name][1], f"{fields[name][1]}s")) for name in names]
    places = [fields[name][0] for name in names]

    def decode(data, start):
        return tuple(part.unpack_from(data, start + place)[0] for part, place in zip(parts, places))

    return number, decode


def once_each(events):
    """Events by time, each once: perf writes parts of its buffers twice, if it finds the head of one behind where it was before."""
    alike, last = [], None
    for event in events:
        if event[0] != last:
            alike, last = [], event[0]
        elif event in alike:
            continue
        alike.append(event)
        yield event


class Trace:
    """What perf recorded: `events` by time, `process_of` {tid: pid}, the tids that `ended`, and how many events were
    `lost`."""

    def __init__(self, path, kinds=SCHED):
        self.events = []
        self.process_of = {}
        self.ended = set()
        self.lost = 0
        self.decoders = {}
        for kind, (event, *names) in kinds.items():
            number, decode = decoder(event, *names)
            self.decoders[number] = kind, decode
        with open(path, "rb") as file:
            self.read(file.read())
        self.events = list(once_each(sorted(self.events, key=lambda event: event[0])))

    def read(self, data):
        magic, _, attr_size, attrs, attrs_size, start, size = struct.unpack_from("=8s6Q", data)
        if magic != b"PERFILE2" or not size:
            raise ValueError("perf did not end as it should: its file is not complete")
        for attr in range(attrs, attrs + attrs_size, attr_size):
            type, _, _, _, sample_type = struct.unpack_from("=IIQQQ", data, attr)
            # The event that carries names of threads has no samples.
            if type == TYPE_TRACEPOINT and sample_type != SAMPLE_TYPE:
                raise ValueError(f"perf wrote samples of type {sample_type:#x}, not {SAMPLE_TYPE:#x}")
        at, end = start, start + size
        while at < end:
            kind, _, length = struct.unpack_from("=IHH", data, at)
            if kind == RECORD_SAMPLE:
                self.sample(data, at + 8)
            elif kind == RECORD_FORK:
                pid, _, tid, _ = struct.unpack_from("=IIII", data, at + 8)
                self.process_of[tid] = pid
            elif kind == RECORD_EXIT:
                self.ended.add(struct.unpack_from("=IIII", data, at + 8)[2])
            elif kind == RECORD_COMM:
                pid, tid = struct.unpack_from("=II", data, at + 8)
                self.process_of[tid] = pid
            elif kind == RECORD_LOST:
                self.lost += struct.unpack_from("=QQ", data, at + 8)[1]
            elif kind == RECORD_LOST_SAMPLES:
                self.lost += struct.unpack_from("=Q", data, at + 8)[0]
            if length < 8:
                raise ValueError("a record of perf has no length")
            at += length

    def sample(self, data, at):
        _, _, pid, tid, time_ns, cpu, _, _, _ = SAMPLE.unpack_from(data, at)
        at += SAMPLE.size
        (number,) = struct.unpack_from("=H", data, at)
        # A thread that is ending has no ids any more.
        if tid and NOBODY not in (pid, tid):
            self.process_of[tid] = pid
        kind, decode = self.decoders[number]
        self.events.append((time_ns, kind, cpu, decode(data, at)))
