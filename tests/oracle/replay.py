# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What every thread did, replayed from the trace: running, waiting for a CPU, or asleep, and who ran meanwhile.

A thread waits from its wake-up, or from being switched out while it could run on, until it is switched in. Throttling
by a quota is not in the trace: it counts as waiting here.

A kernel may keep a process from being traced (some machines' pid 1): nothing is told while it runs, so of its threads one
sees that they come and not that they go. When that was follows from how long the next one, which is traced, has run; of
threads that are no fair ones, and of idle CPUs, there is no such account: then the trace leaves open who ran, and until
when the next one waited. Nor is a wake-up told in its context, interrupts included: whoever comes next without having been
woken may have waited behind it.
"""

import bisect
from collections import Counter, defaultdict

from perf import FORK, MIGRATE, NEW, RUNTIME, SWITCH, WAKEUP

UNKNOWN, ASLEEP, WAITING, RUNNING, GONE = range(5)

# prev_state of sched_switch: 0 and TASK_REPORT_MAX (preempted) could run on; EXIT_DEAD and EXIT_ZOMBIE never will.
PREEMPTED = 0x100
ENDED = 0x10 | 0x20
ASLEEP_STATE = 1

BEGINNING, END = 0, 1 << 63


class Thread:
    """`stays` on a CPU: (from, to). `waits`: lists of (cpu, from, to), one for each run queue that it was on."""

    __slots__ = ("tid", "state", "since", "cpu", "stays", "waits", "wait", "born", "died", "first_moves", "ran_ns", "late", "hidden")

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
        # Moves to another queue before it is known whether it waits.
        self.first_moves = []
        # By the kernel's account, since it was last seen to come or go.
        self.ran_ns = 0
        # {index of a wait: (from, to)}: it ended between these moments; `waits` has the first one.
        self.late = {}
        # (from, to): it may have waited there; nothing told of its wake-up.
        self.hidden = []

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
    """All threads, and on each CPU who ran from when on."""

    def __init__(self, trace, able_to_run):
        """`able_to_run`: {tid: cpu} of the threads that ran or waited when the trace began."""
        self.process_of = trace.process_of
        self.able_to_run = able_to_run
        self.threads = {}
        # {cpu: [(from, tid), ...]}
        self.ran = defaultdict(list)
        # Threads that were left untraced, and how often; how many events of which threads fit no state because of that.
        self.untraced = Counter()
        self.odd = Counter()
        # {cpu: [(from, to), ...]}: when it is open who ran.
        self.open = defaultdict(list)
        # Processes that left a CPU untraced.
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
        # Who did nothing at all slept throughout.
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
        """`prev` leaves, but `hidden` came last: it went meanwhile."""
        self.untraced[hidden] += 1
        self.hiding.add(self.process_of.get(hidden, hidden))
        ran_ns = self.thread(prev).ran_ns if prev else 0
        # Without an account the hidden one counts as gone at once, and may have stayed.
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

    def leave(self, thread, time, cpu, state):
        if thread.state == RUNNING:
            thread.stays.append((thread.since, time))
        elif thread.state == UNKNOWN or not thread.stays and not thread.waits:
            # It ran when the trace began; a wake-up of a thread that runs says nothing.
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
        """The first moment from `since` on at which one had the CPU of whom nothing is told; None = there was none."""
        found, until = None, None
        for began, tid in reversed(self.ran[cpu]):
            if self.process_of.get(tid, tid) in self.hiding and (until is None or until > since):
                found = max(began, since)
            if began <= since:
                break
            until = began
        return found

    def arrive(self, thread, time, cpu):
        # Nothing told of its wake-up: it waits since before the trace, or was woken by who is not traced.
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
        # One that runs, or waits already, was about to sleep and now is not: nothing changes.
        if thread.state in (UNKNOWN, ASLEEP):
            thread.first_moves = []
            thread.queue(time, cpu)

    def processes(self, start, end):
        """{pid: Process} of the window; threads that are not known to belong to one are left out."""
        found = defaultdict(Process)
        for thread in self.threads.values():
            pid = self.process_of.get(thread.tid)
            if pid is not None:
                found[pid].add(thread, start, end)
                found[pid].doubtful += self.untraced[thread.tid] + self.odd[thread.tid]
        return {pid: process for pid, process in found.items() if process.wall_ns}

    def blame(self, process):
        """{pid of who ran: ns} over the waits of a process; None = the CPU idled or was not heard of."""
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

    def open_ns(self, process):
        """Of its waits, the time of which the trace leaves open who ran."""
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
        # Times at which the trace did not tell what its threads did.
        self.doubtful = 0
        # Time in which they may have waited and not run, and not slept; the longest wait with that.
        self.late_ns = 0
        self.hidden_ns = 0
        self.late_max_ns = 0

    def add(self, thread, start, end):
        wall = overlap(thread.born, thread.died, start, end)
        if not wall:
            return
        self.threads += 1
        self.wall_ns += wall
        self.on_cpu_ns += sum(overlap(*stay, start, end) for stay in thread.stays)
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
