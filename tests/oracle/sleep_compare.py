# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compares what deburr says of sleeps and interrupts with the replay of a trace, process by process."""

import json
import os
import re
import subprocess
from collections import defaultdict

import compare
import recording as recordings
import sleep_divided
from compare import Difference, nearest
from sleep_replay import END, within

# Calls whose first argument is a descriptor.
ON_FILES = {
    "read", "write", "pread64", "pwrite64", "recvfrom", "sendto", "flock", "fcntl", "fsync", "fdatasync", "epoll_wait", "ioctl",
}  # fmt: skip
EPOLL = ["epoll_wait", "epoll_pwait"]
POLLS = ["poll", "ppoll", "select", "pselect6"]
# The interrupt of a disk, and the soft one for its requests: the trace does not tell of what device one is.
INTERRUPT = {"disk": "disk or device", "device": "disk or device"}
# Which interrupts ended a sleep, and what is told of those of which that was not seen.
KINDS = {"timer", "kernel timer", "network", "disk or device", "other cpu"}
UNSEEN = {"soft interrupt", "hard interrupt"}
# Sleeps that take longer than this may be told before they end.
HELD_NS = 900_000_000
# What is compared of processes that were on a CPU for this share of their time at least.
LEAST_ON_CPU = 0.02
# Allowance for an interrupt, in ns: two pairs of readings of a clock, and what is called in between.
INTERRUPT_NS = 1_500


def call_names():
    """{number: name} of system calls, from the C library's headers."""
    done = subprocess.run(["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"], capture_output=True, text=True)
    return {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", done.stdout)}


def polls_of(path):
    """{tid: [descriptor that it polls]}, as sleeper.c says it."""
    if not os.path.exists(path):
        return {}
    with open(path) as lines:
        words = [[int(word) for word in line.split()] for line in lines]
    return {tid: files for tid, *files in words}


def files_of(pids):
    """{pid: {descriptor: what it is}}, and {inode of a socket of TCP or UDP: (protocol, local, remote)}."""
    files = {}
    for pid in pids:
        files[pid] = {}
        for name in os.listdir(f"/proc/{pid}/fd"):
            path = os.readlink(f"/proc/{pid}/fd/{name}")
            if path.startswith("/") and not path.startswith("/dev/"):
                at = os.stat(f"/proc/{pid}/fd/{name}")
                path = f"file {os.major(at.st_dev)}:{os.minor(at.st_dev)} {at.st_ino}"
            files[pid][int(name)] = path
    sockets = {}
    for protocol in "tcp", "udp":
        with open(f"/proc/{pids[0]}/net/{protocol}") as table:
            for line in table.readlines()[1:]:
                words = line.split()
                sockets[words[9]] = protocol, *(address(word) for word in words[1:3])
    return files, sockets


def address(word):
    number, port = word.split(":")
    return f"{'.'.join(str(byte) for byte in bytes.fromhex(number)[::-1])}:{int(port, 16)}"


class Truth:
    """What the trace says of a process: sums in ns. `long`: what sleeps on for long may be told before it ends. `may`, `may_woken`: it
    may be this. `open_ns`, `open_woken_ns`: sleep that the trace leaves open, and such of which it leaves open who ended it;
    `waking_ns`: by which it may be less."""

    def __init__(self):
        self.wall_ns = self.on_cpu_ns = self.open_ns = self.open_woken_ns = self.waking_ns = 0
        self.by_call, self.by_object, self.may = defaultdict(int), defaultdict(int), defaultdict(int)
        self.woken, self.may_woken, self.long = defaultdict(int), defaultdict(int), defaultdict(int)
        self.interrupts, self.counts = defaultdict(int), defaultdict(int)


class Witness:
    """{pid: Truth} of the processes of a workload, in the window of a recording. `polls` {tid: [descriptor]}."""

    def __init__(self, replay, trace, pids, files, polls, window):
        self.start_ns, self.end_ns = window
        self.names = call_names()
        self.files, self.sockets = files
        self.polls = polls
        self.pids, self.process_of = set(pids), trace.process_of
        self.polled = {(self.process_of.get(tid), number): to for (tid, number), to in replay.polled.items()}
        self.of = {pid: Truth() for pid in pids}
        self.replay = replay
        for tid, thread in replay.threads.items():
            truth = self.of.get(self.process_of.get(tid))
            if truth:
                truth.wall_ns += within(thread.born, replay.died.get(tid, END), *window)
        for sleep in replay.sleeps:
            self.add_sleep(sleep)
        for (tid, kind, own), all in replay.interrupts.items():
            truth = self.of.get(self.process_of.get(tid))
            for start, _, ns in all if truth else ():
                if window[0] <= start < window[1]:
                    truth.interrupts[kind, own] += ns
                    truth.counts[kind, own] += 1
        for tid, stays in replay.running.items():
            truth = self.of.get(self.process_of.get(tid))
            for start, end, _ in stays if truth else ():
                truth.on_cpu_ns += within(start, end, *window)

    def incomplete(self, pids):
        """Why the trace does not say what these processes did, as sentences."""
        for pid in pids:
            truth = self.of[pid]
            odd = [f"thread {tid} {said}" for tid, said in self.replay.odd.items() if self.process_of.get(tid) == pid]
            if odd:
                yield f"process {pid}: {odd[0]}"
            most_ns, most_woken_ns = (truth.wall_ns * most / 100 for most in (compare.POINTS_MOSTLY, compare.POINTS_ALWAYS))
            if truth.open_ns > most_ns or truth.open_woken_ns > most_woken_ns:
                said = f"{truth.open_ns / 1e6:.0f} ms of sleep are open, and of {truth.open_woken_ns / 1e6:.0f} ms who ended it"
                yield f"process {pid}: {said}"
            if sum(truth.by_call.values()) + truth.on_cpu_ns > truth.wall_ns:
                yield f"process {pid} slept and ran for longer than it existed"

    def add_sleep(self, sleep):
        pid = self.process_of.get(sleep.tid)
        truth = self.of.get(pid)
        ns = within(sleep.since, sleep.end, self.start_ns, self.end_ns)
        if not truth or not ns:
            return
        name = self.name(sleep.call)
        truth.by_call[sleep.state, name] += ns
        truth.open_ns += within(sleep.end - sleep.open_ns, sleep.end, self.start_ns, self.end_ns)
        truth.waking_ns += within(sleep.end - sleep.waking_ns, sleep.end, self.start_ns, self.end_ns)
        first, *others = self.objects(pid, sleep)
        if others:
            for one in first, *others:
                truth.may[name, one] += ns
        else:
            truth.by_object[name, first] += ns
        ended = sleep.end < self.end_ns
        by = self.waker(pid, sleep) if ended else "not yet"
        if others and by.startswith("sender"):
            # It may be told of one that had nothing to read.
            truth.may_woken[by] += ns
            truth.may_woken["network"] += ns
        else:
            truth.woken[by] += ns
        if ended and not sleep.waker:
            truth.open_woken_ns += ns
        if min(sleep.end, self.end_ns) - sleep.since > HELD_NS:
            truth.long[by] += ns

    def name(self, call):
        return self.names.get(call[0], f"syscall_{call[0]}") if call else "(page fault)"

    def waited_for(self, pid, sleep):
        """The files that it waits for, of an event poll that which it was given."""
        name = self.name(sleep.call)
        numbers = []
        if name in EPOLL:
            numbers = [self.polled.get((pid, sleep.call[1][0]))]
        elif name in POLLS:
            numbers = self.polls.get(sleep.tid, [None])
        elif name in ON_FILES:
            numbers = [sleep.call[1][0]]
        return [self.files.get(pid, {}).get(number, "?") for number in numbers]

    def socket(self, file):
        """Protocol, local and remote address, if it is such a socket."""
        found = re.fullmatch(r"socket:\[(\d+)\]", file)
        return found and self.sockets.get(found[1])

    def objects(self, pid, sleep):
        """On what it sleeps; several, if the trace leaves that open."""
        name = self.name(sleep.call)
        if name == "futex":
            word, op, value = sleep.call[1][:3]
            return [f"futex {word:x} op {op & 0x7F} value {min(value & 0xFFFFFFFF, 3)}"]
        if name in EPOLL:
            return ["(epoll)"]
        objects = [self.object(file) for file in self.waited_for(pid, sleep)] or ["-"]
        # None of several may have been ready.
        return sorted({*objects, "-"}) if len(objects) > 1 else objects

    def object(self, file):
        if file.startswith("pipe:"):
            return "pipe"
        if file.startswith("anon_inode:["):
            return file[12:-1][:7]
        if file.startswith("socket:"):
            found = self.socket(file)
            remote = found and not found[2].endswith(":0") and found[2]
            return f"{found[0]} {remote or '-'}" if found else "unix"
        return "character" if file.startswith("/dev/") else file

    def waker(self, pid, sleep):
        if not sleep.waker:
            return "not known"
        context, what, tid, call = sleep.waker
        by = self.process_of.get(tid)
        if context == "soft" and self.is_sender(pid, sleep, by, call):
            return f"sender {by}"
        if context in ("hard", "soft"):
            return INTERRUPT.get(what, what or f"{context} interrupt")
        return "not known" if not tid else f"process {by}" if by in self.pids else "another process"

    def is_sender(self, pid, sleep, by, call):
        """Whether who was interrupted sends to what the sleep waits for."""
        if not call or self.name(call) not in ON_FILES:
            return False
        its = self.socket(self.files.get(by, {}).get(call[1][0], "?"))
        for mine in filter(None, map(self.socket, self.waited_for(pid, sleep))):
            if its and mine[0] == its[0] and mine[1] == its[2] and (mine[2] == its[1] or mine[0] == "udp"):
                return True
        return False


class Said:
    """The same by deburr's recording."""

    def __init__(self, path):
        connection = recordings.opened(path)
        self.window = recordings.window(connection)
        self.pids = dict(connection.execute("SELECT proc, pid FROM process WHERE many IS NOT 1 ORDER BY seq"))
        self.of = defaultdict(Truth)
        rows = connection.execute("SELECT proc, state, call, slept_on, woken, ns FROM sleep")
        for proc, state, call, on, woken, ns in rows:
            pid = self.pids.get(proc)
            of = self.of[pid]
            of.by_call["S" if state == "asleep" else "D", call] += ns
            of.by_object[call, object_of(call, json.loads(on))] += ns
            by = self.waker(json.loads(woken))
            of.woken[by] += ns
        for proc, kind, context, ns in connection.execute("SELECT proc, kind, context, ns FROM interrupts"):
            self.of[self.pids.get(proc)].interrupts[kind, context == "own_call"] += ns
        rows = connection.execute(
            "SELECT proc, sum(wall_ns), sum(block_io_ns + mem_stall_ns + uninterruptible_ns + sleep_ns) FROM process_tick GROUP BY proc"
        )
        self.wall = {self.pids.get(proc): (wall, asleep) for proc, wall, asleep in rows}
        # {pid: [(when, in the program, in the kernel)]}, cumulative.
        self.cpu_time = defaultdict(list)
        for t_ns, proc, *parts in connection.execute("SELECT t_ns, proc, user_ns, system_ns FROM cpu_time ORDER BY t_ns"):
            self.cpu_time[self.pids.get(proc)].append((self.window[0] + t_ns, *parts))
        connection.close()

    def waker(self, woken):
        by, pid = woken["by"].replace("_", " "), self.pids.get(woken.get("proc"))
        return {"thread": f"process {pid}", "sender": f"sender {pid}"}.get(by) or INTERRUPT.get(by, by)


def object_of(call, on):
    kind = on["kind"]
    if call in EPOLL:
        return "(epoll)"
    if kind == "kernel_lock":
        return object_of(call, on["within"])
    if kind == "futex":
        return f"futex {on['address']:x} op {on['op']} value {on['value']}"
    if kind == "file":
        return f"file {on['device']} {on['inode']}"
    if kind == "inet":
        return f"{on['protocol']} {on['remote'] or '-'}"
    return {"anonymous": on.get("name"), "not_known": "-"}.get(kind, kind)


def differences(witness, said, judged, pids):
    for pid in judged:
        true, told = witness.of[pid], said.of.get(pid)
        wall_ns, _ = said.wall.get(pid, (0, 0))
        if true.wall_ns < compare.LEAST_WALL_NS:
            continue
        who = f"process {pids.index(pid)}"
        yield points(pid, who, "wall time", "all", wall_ns, true.wall_ns, true.wall_ns)
        if not told:
            yield points(pid, who, "asleep by call", "all", 0, sum(true.by_call.values()), true.wall_ns)
            continue
        yield worst(pid, who, "asleep by call", told.by_call, true, true.by_call, true.open_ns)
        yield worst(pid, who, "asleep by object", told.by_object, true, true.by_object, true.open_ns, true.may)
        woken = defaultdict(int)
        for key, ns in told.woken.items():
            number = key.split()[-1]
            if (number.isdigit() and int(number) not in pids) or number == "None":
                key = "another process" if key.startswith("process") else "network"
            woken[key] += ns
        woken, of_truth, may = (by_interrupts(of, woken) for of in (woken, true.woken, true.may_woken))
        yield worst(pid, who, "woken by", woken, true, of_truth, true.open_ns + true.open_woken_ns, may, true.long)
        if true.on_cpu_ns > LEAST_ON_CPU * true.wall_ns:
            yield from of_cpu(pid, who, told, true)
        yield from sleep_divided.differences(witness, pid, who, said.cpu_time[pid])


def by_interrupts(of, told):
    """Where deburr did not see for a part of the time which interrupts came, because there were too many, they are all one."""
    unseen = sum(told.get(key, 0) for key in UNSEEN)
    if not unseen:
        return of
    sums = defaultdict(int)
    for key, ns in of.items():
        sums["an interrupt" if key in KINDS or key in UNSEEN else key] += ns
    return sums


def of_cpu(pid, who, told, true):
    for kind in "soft", "timer", "device", "processor":
        mine, its = (sum(of.interrupts[kind, own] for own in (False, True)) for of in (told, true))
        count = sum(true.counts[kind, own] for own in (False, True))
        yield points(pid, who, "taken by interrupts", kind, mine, its, true.on_cpu_ns, INTERRUPT_NS * count)
    mine, its = (of.interrupts["soft", True] for of in (told, true))
    yield points(pid, who, "soft interrupts of its own", "soft", mine, its, true.on_cpu_ns, INTERRUPT_NS * true.counts["soft", True])


def worst(pid, who, measure, told, truth, true, open_ns, may=None, long=None):
    """The difference of the kind that is furthest apart. `true` is what `truth` says of this measure, and leaves open by `open_ns`."""
    may, long = may or {}, long or {}

    def apart(key):
        least = true.get(key, 0) - long.get(key, 0) - open_ns - truth.waking_ns
        most = true.get(key, 0) + may.get(key, 0) + (sum(long.values()) if key == "not yet" else 0) + open_ns
        return abs(told.get(key, 0) - nearest(told.get(key, 0), least, most))

    key = max(told.keys() | true.keys(), key=apart)
    its = told.get(key, 0)
    of_truth = its - apart(key) if its > true.get(key, 0) else its + apart(key)
    what = key if isinstance(key, str) else ", ".join(key)
    return points(pid, who, measure, what, its, of_truth, truth.wall_ns)


def points(pid, who, measure, what, told_ns, true_ns, whole_ns, slack_ns=0):
    told, true = told_ns / whole_ns * 100, true_ns / whole_ns * 100
    error = max(abs(told - true) - slack_ns / whole_ns * 100, 0)
    return Difference(pid, who, f"{measure}: {what}", true, told, error, compare.POINTS_MOSTLY, compare.POINTS_ALWAYS, "points", measure)
