# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Replays from the trace what every thread did: running, waiting for a CPU, or asleep, and which thread ran meanwhile.

A thread waits from its wake-up, or from being switched out while runnable, until it is switched in. Throttling by a quota
is not in the trace: it counts as waiting here.

A kernel may exclude a process from tracing (pid 1 on some machines). No event is traced while it runs, so its threads are
seen to be switched in, but not out. When they were switched out follows from how long the next, traced thread has run
(`sched_stat_runtime`). Threads outside the fair class, and idle CPUs, have no such account: then the trace leaves open who
ran, and until when the next thread waited. Wake-ups in the context of such a process, interrupts included, are not traced
either: a thread that is switched in next without a wake-up may have waited behind it.

The kernel's account of a run begins with the run queue's clock, which may be older than the switch (after a wake-up it is not
updated). By how much is seen where the switch is traced; elsewhere a thread may have come later than its account says by as
much.
"""

import bisect
from collections import Counter, defaultdict

from perf import FORK, MIGRATE, NEW, RUNTIME, SWITCH, WAKEUP

UNKNOWN, ASLEEP, WAITING, RUNNING, GONE = range(5)

# prev_state of sched_switch: with 0 or TASK_REPORT_MAX (preempted) the thread is still runnable; with EXIT_DEAD or
# EXIT_ZOMBIE it never will be again.
PREEMPTED = 0x100
ENDED = 0x10 | 0x20
ASLEEP_STATE = 1

BEGINNING, END = 0, 1 << 63


class Thread:
    """The intervals of a thread, in ns. `stays`: (from, to) on a CPU. `waits`: for each wait a list of (cpu, from, to),
    one for each run queue that it was on."""

    __slots__ = ("tid", "state", "since", "cpu", "stays", "waits", "wait", "born", "died", "first_moves", "ran_ns", "late", "hidden", "untraced_stays")

    def __init__(self, tid):
        self.tid = tid
        self.state = UNKNOWN
        self.since = BEGINNING
        self.cpu = None
        self.stays = []
        self.waits = []
        self.wait = []
        self.born = BEGINNING
        self.died = END
        # Migrations before it is known whether it waits: (time, old CPU, new CPU).
        self.first_moves = []
        # Runtime by the kernel's account since it was last switched in or out, in ns.
        self.ran_ns = 0
        # {index of a wait: (from, to)}: it ended between these times; `waits` has the first one.
        self.late = {}
        # (from, to): it may have waited there; its wake-up was not traced.
        self.hidden = []
        # Indices of stays whose beginning follows from the kernel's account.
        self.untraced_stays = set()

    def queue(self, time, cpu):
        self.state, self.since, self.cpu, self.wait = WAITING, time, cpu, []

    def move(self, time, origin, cpu):
        if self.state == WAITING:
            self.wait.append((self.cpu, self.since, time))
            self.since, self.cpu = time, cpu
        elif self.state == UNKNOWN:
            self.first_moves.append((time, origin, cpu))

    def end_wait(self, time):
        self.wait.append((self.cpu, self.since, time))
        self.waits.append(self.wait)
        self.wait = []

    def waited_from_the_beginning(self, cpu):
        moves, self.first_moves = self.first_moves, []
        self.queue(BEGINNING, moves[0][1] if moves else cpu)
        for move in moves:
            self.move(*move)


class Replay:
    """All threads, and for each CPU which thread ran from when."""

    def __init__(self, trace, able_to_run):
        """`able_to_run`: {tid: cpu} of the threads that ran or waited when the trace began."""
        self.process_of = trace.process_of
        self.able_to_run = able_to_run
        self.threads = {}
        # {cpu: [(from, tid), ...]}
        self.ran = defaultdict(list)
        # {tid: how often it left a CPU untraced}, and {tid: number of events that fit no state because of that}.
        self.untraced = Counter()
        self.odd = Counter()
        # {cpu: [(from, to), ...]}: when the trace leaves open which thread ran.
        self.open = defaultdict(list)
        # By how much the kernel's account of a run exceeded the time since the switch, in ns, where that was traced.
        self.too_much = []
        # Pids of processes that left a CPU untraced.
        self.hiding = set()
        for time, kind, cpu, fields in trace.events:
            if kind == SWITCH:
                self.switch(time, cpu, *fields)
            elif kind in (WAKEUP, NEW):
                self.wakeup(time, *fields)
            elif kind == MIGRATE:
                self.thread(fields[0]).move(time, *fields[1:])
            elif kind == RUNTIME:
                self.thread(fields[0]).ran_ns += fields[1]
            elif kind == FORK:
                child = self.threads[fields[1]] = Thread(fields[1])
                child.born, child.state = time, ASLEEP
        last = trace.events[-1][0] if trace.events else BEGINNING
        for tid, cpu in able_to_run.items():
            if self.thread(tid).state == UNKNOWN:
                self.thread(tid).waited_from_the_beginning(cpu)
        for thread in self.threads.values():
            if thread.state == RUNNING:
                thread.stays.append((thread.since, last))
            elif thread.state == WAITING:
                thread.end_wait(last)
        # Threads without any event slept throughout.
        for tid in trace.process_of.keys() - trace.ended - {0}:
            self.thread(tid)
        self.starts = {cpu: [start for start, _ in stays] for cpu, stays in self.ran.items()}

    def thread(self, tid):
        thread = self.threads.get(tid)
        if thread is None:
            thread = self.threads[tid] = Thread(tid)
        return thread

    def switch(self, time, cpu, prev, prev_state, next):
        if not self.ran[cpu]:
            self.ran[cpu].append((BEGINNING, prev))
        before, hidden = self.ran[cpu][-1]
        if prev != hidden:
            self.went_untraced(hidden, before, prev, time, cpu)
        self.ran[cpu].append((time, next))
        if prev:
            self.leave(self.thread(prev), time, cpu, prev_state)
        if next:
            self.arrive(self.thread(next), time, cpu)

    def went_untraced(self, hidden, before, prev, time, cpu):
        """`prev` is switched out although `hidden` was the last to be switched in: `hidden` left untraced."""
        self.untraced[hidden] += 1
        self.hiding.add(self.process_of.get(hidden, hidden))
        ran_ns = self.thread(prev).ran_ns if prev else 0
        # Without an account of `prev`, `hidden` counts as gone at once, although it may have stayed.
        came = max(time - ran_ns, before) if ran_ns else before
        if not ran_ns:
            self.open[cpu].append((before, time))
        self.ran[cpu].append((came, prev))
        if hidden:
            self.leave(self.thread(hidden), came, cpu, ASLEEP_STATE)
        if prev:
            thread = self.thread(prev)
            if not ran_ns and thread.state == WAITING:
                thread.late[len(thread.waits)] = (before, time)
            self.arrive(thread, came, cpu)
            if ran_ns:
                thread.untraced_stays.add(len(thread.stays))

    def leave(self, thread, time, cpu, state):
        if thread.state == RUNNING:
            if len(thread.stays) not in thread.untraced_stays and thread.ran_ns:
                self.too_much.append(max(thread.ran_ns - (time - thread.since), 0))
            thread.stays.append((thread.since, time))
        elif thread.state == UNKNOWN or not thread.stays and not thread.waits:
            # It ran when the trace began; a wake-up of a running thread has no meaning.
            thread.stays.append((BEGINNING, time))
        else:
            self.odd[thread.tid] += 1
        thread.ran_ns = 0
        if state & ENDED:
            thread.state, thread.died = GONE, time
        elif state == 0 or state & PREEMPTED:
            thread.queue(time, cpu)
        else:
            thread.state, thread.since = ASLEEP, time

    def untraced_since(self, cpu, since):
        """The earliest time from `since` on at which an untraced process had the CPU; None = there was none."""
        found, until = None, None
        for began, tid in reversed(self.ran[cpu]):
            if self.process_of.get(tid, tid) in self.hiding and (until is None or until > since):
                found = max(began, since)
            if began <= since:
                break
            until = began
        return found

    def arrive(self, thread, time, cpu):
        # Its wake-up was not traced: it has waited since before the trace, or was woken by a thread that is not traced.
        if thread.state == UNKNOWN and thread.tid in self.able_to_run:
            thread.waited_from_the_beginning(cpu)
        if thread.state == WAITING:
            if thread.cpu != cpu:
                self.odd[thread.tid] += 1
            thread.end_wait(time)
        else:
            self.odd[thread.tid] += 1
            if thread.state == ASLEEP and (since := self.untraced_since(cpu, thread.since)) is not None:
                thread.hidden.append((since, time))
        thread.state, thread.since, thread.ran_ns = RUNNING, time, 0

    def wakeup(self, time, tid, cpu):
        thread = self.thread(tid)
        # A thread that runs or waits already was about to sleep, and now stays runnable: nothing changes.
        if thread.state in (UNKNOWN, ASLEEP):
            thread.first_moves = []
            thread.queue(time, cpu)

    def processes(self, start, end):
        """{pid: Process} of the window; threads whose process is unknown are left out."""
        found = defaultdict(Process)
        too_much = sorted(self.too_much)
        too_much_ns = too_much[len(too_much) * 9 // 10] if too_much else 0
        for thread in self.threads.values():
            pid = self.process_of.get(thread.tid)
            if pid is not None:
                found[pid].add(thread, start, end, too_much_ns)
                found[pid].doubtful += self.untraced[thread.tid] + self.odd[thread.tid]
        return {pid: process for pid, process in found.items() if process.wall_ns}

    def blame(self, process):
        """{pid of the process that ran: ns} over the waits of a process; None = the CPU was idle or has no events."""
        sums = defaultdict(int)
        for cpu, start, end in process.queued:
            stays, starts = self.ran.get(cpu, []), self.starts.get(cpu, [])
            at = max(bisect.bisect_right(starts, start) - 1, 0)
            while start < end:
                until = starts[at + 1] if at + 1 < len(starts) else END
                until = min(until, end)
                tid = stays[at][1] if at < len(stays) else 0
                sums[self.process_of.get(tid, -tid) if tid else None] += until - start
                start, at = until, at + 1
        return dict(sums)

    def wait_ending(self, tid, at):
        """The wait of a thread that ended nearest to that time, as a process of its own; None = it has none."""
        thread = self.threads.get(tid)
        if thread is None or not thread.waits:
            return None
        process = Process()
        process.queued = min(thread.waits, key=lambda wait: abs(wait[-1][2] - at))
        process.waits = [sum(b - a for _, a, b in process.queued)]
        return process

    def open_ns(self, process):
        """Time of its waits for which the trace leaves open which thread ran, in ns."""
        total = 0
        for cpu, start, end in process.queued:
            spans = self.open.get(cpu, [])
            at = bisect.bisect_left(spans, (start, start))
            for span in spans[max(at - 1, 0) :]:
                if span[0] >= end:
                    break
                total += overlap(*span, start, end)
        return total


def overlap(start, end, window_start, window_end):
    return max(min(end, window_end) - max(start, window_start), 0)


class Process:
    """What the threads of a process did within a window, in ns."""

    def __init__(self):
        self.threads = 0
        self.wall_ns = 0
        self.on_cpu_ns = 0
        self.waits = []
        self.queued = []
        # Number of times that the trace did not show what its threads did.
        self.doubtful = 0
        # Time in which they may have waited instead of run (`late_ns`) or instead of slept (`hidden_ns`); the longest
        # wait including that.
        self.late_ns = 0
        self.hidden_ns = 0
        self.late_max_ns = 0

    def add(self, thread, start, end, too_much_ns):
        """`too_much_ns`: by how much the kernel's account of a run may be too long."""
        wall = overlap(thread.born, thread.died, start, end)
        if not wall:
            return
        self.threads += 1
        self.wall_ns += wall
        self.on_cpu_ns += sum(overlap(*stay, start, end) for stay in thread.stays)
        untraced = (thread.stays[index] for index in thread.untraced_stays if index < len(thread.stays))
        self.late_ns += sum(min(overlap(*stay, start, end), too_much_ns) for stay in untraced)
        for hidden in thread.hidden:
            hidden_ns = overlap(*hidden, start, end)
            self.hidden_ns += hidden_ns
            self.late_max_ns = max(self.late_max_ns, hidden_ns)
        for index, wait in enumerate(thread.waits):
            parts = [(cpu, max(a, start), min(b, end)) for cpu, a, b in wait if overlap(a, b, start, end)]
            late_ns = overlap(*thread.late[index], start, end) if index in thread.late else 0
            self.late_ns += late_ns
            if parts:
                self.waits.append(sum(b - a for _, a, b in parts))
                self.queued += parts
                self.late_max_ns = max(self.late_max_ns, self.waits[-1] + late_ns)

    @property
    def queued_ns(self):
        return sum(self.waits)

    @property
    def wait_max_ns(self):
        return max(self.waits, default=0)
