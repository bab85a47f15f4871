# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Replays from perf's trace on what every thread of a workload slept, who woke it, and what interrupts took from it.

A sleep lasts from when the thread is switched out, not runnable, until it is queued again (`sched_wakeup`). The last
`sched_waking` before that ended it; its flags tell whether an interrupt did. In which call is known from the calls that the
thread entered and left: where there is none, it is a page fault, or other work of the kernel for it. The trace does not tell
block IO from other uninterruptible sleep, and of a thread of the kernel not what it works for.
"""

import struct
from collections import defaultdict

(SWITCH, WAKEUP, NEW, WAKING, ENTER, EXIT, DEVICE_IN, DEVICE_OUT, TIMER_IN, TIMER_OUT, SOFT_IN, SOFT_OUT, VECTOR_OUT) = range(13)
OTHER_VECTORS = ["reschedule", "call_function", "call_function_single"]
EVENTS = {
    SWITCH: ("sched:sched_switch", "prev_pid", "prev_state", "next_pid"),
    WAKEUP: ("sched:sched_wakeup", "pid"),
    NEW: ("sched:sched_wakeup_new", "pid"),
    WAKING: ("sched:sched_waking", "common_pid", "common_flags", "pid"),
    ENTER: ("raw_syscalls:sys_enter", "common_pid", "id", "args"),
    EXIT: ("raw_syscalls:sys_exit", "common_pid", "id"),
    DEVICE_IN: ("irq:irq_handler_entry", "common_pid"),
    DEVICE_OUT: ("irq:irq_handler_exit", "common_pid"),
    TIMER_IN: ("irq_vectors:local_timer_entry", "common_pid"),
    TIMER_OUT: ("irq_vectors:local_timer_exit", "common_pid"),
    SOFT_IN: ("irq:softirq_entry", "common_pid"),
    SOFT_OUT: ("irq:softirq_exit", "common_pid"),
}
EVENTS |= {VECTOR_OUT + at: (f"irq_vectors:{name}_exit", "common_pid") for at, name in enumerate(OTHER_VECTORS)}
# x86-64's number of epoll_ctl, and EPOLL_CTL_ADD.
EPOLL_CTL, EPOLL_ADD = 233, 1
# Of a call: number and arguments.
ARGUMENTS = struct.Struct("=6Q")
# prev_state: asleep, and those that no longer are.
INTERRUPTIBLE, UNINTERRUPTIBLE, PREEMPTED = 1, 2, 0x100
# common_flags of a trace: in a hard or soft interrupt.
IN_HARD, IN_SOFT = 0x08, 0x10
# A soft interrupt that comes later than this after the end of a hard one is not served because of that.
AFTER_NS = 20_000
END = 1 << 63


class Sleep:
    """`state` is S or D; `call` (number, arguments) or None; `waker` (context, tid, its call) or None = not woken yet."""

    __slots__ = ("tid", "since", "end", "state", "call", "waker")

    def __init__(self, tid, since, state, call):
        self.tid, self.since, self.state, self.call = tid, since, state, call
        self.end, self.waker = END, None


class Thread:
    __slots__ = ("call", "sleep", "waker", "on_cpu_since", "born")

    def __init__(self, born):
        self.call = self.sleep = self.waker = self.on_cpu_since = None
        self.born = born


class Interrupts:
    """The interrupts of a CPU that have begun and not ended, and when the last event was, if that was the end of a hard one."""

    def __init__(self):
        self.hard_since = self.soft_since = None
        self.hard_in_soft, self.hard_ended = 0, -END
        self.own_call = False


class Replay:
    """`sleeps`: all, in the order in which they ended, those that did not at the end. `interrupts` {(tid, kind, own_call):
    [(from, to, ns)]}. `running` {tid: [(from, to, in a call)]}."""

    def __init__(self, trace):
        self.sleeps = []
        self.interrupts = defaultdict(list)
        self.running = defaultdict(list)
        self.threads = {}
        self.died = {}
        # {(tid of the caller, descriptor of an event poll): descriptor that it was given}
        self.polled = {}
        self.cpus = defaultdict(Interrupts)
        for time, kind, cpu, fields in trace.events:
            self.take(time, kind, cpu, fields)
        for tid, thread in self.threads.items():
            if thread.sleep:
                self.sleeps.append(thread.sleep)
            self.ran(tid, thread, END)

    def thread(self, tid, time=0):
        return self.threads.get(tid) or self.threads.setdefault(tid, Thread(time))

    def ran(self, tid, thread, time):
        if thread.on_cpu_since is not None:
            self.running[tid].append((thread.on_cpu_since, time, thread.call is not None))
            thread.on_cpu_since = time

    def take(self, time, kind, cpu, fields):
        state = self.cpus[cpu]
        if kind == SWITCH:
            self.switch(time, *fields)
        elif kind == WAKING:
            by, flags, tid = fields
            context = "hard" if flags[0] & IN_HARD else "soft" if flags[0] & IN_SOFT else "task"
            caller = self.threads.get(by)
            self.thread(tid, time).waker = context, by, caller and caller.call
        elif kind in (WAKEUP, NEW):
            thread = self.thread(fields[0], time)
            if kind == NEW:
                self.threads[fields[0]] = thread = Thread(time)
                self.died.pop(fields[0], None)
            self.end_sleep(thread, time)
        elif kind in (ENTER, EXIT):
            self.call(time, kind, *fields)
        elif kind in (DEVICE_IN, TIMER_IN):
            state.hard_since = time
        elif kind in (DEVICE_OUT, TIMER_OUT):
            if state.hard_since is not None:
                ns = time - state.hard_since
                self.interrupts[fields[0], "device" if kind == DEVICE_OUT else "timer", False].append((state.hard_since, time, ns))
                state.hard_in_soft += ns
            state.hard_since = None
        elif kind == SOFT_IN:
            state.own_call, state.soft_since, state.hard_in_soft = time - state.hard_ended > AFTER_NS, time, 0
        elif kind == SOFT_OUT:
            if state.soft_since is not None:
                ns = time - state.soft_since - state.hard_in_soft
                self.interrupts[fields[0], "soft", state.own_call].append((state.soft_since, time, ns))
            state.soft_since = None
            # The next one comes in the same context.
            state.hard_ended = -END if state.own_call else time
            return
        if kind != WAKING:
            state.hard_ended = time if kind in (DEVICE_OUT, TIMER_OUT) or kind >= VECTOR_OUT else -END

    def switch(self, time, prev, state, next):
        if prev:
            thread = self.thread(prev, time)
            self.ran(prev, thread, time)
            thread.on_cpu_since = None
            if state & 0x30:
                self.died[prev] = time
            elif state & (INTERRUPTIBLE | UNINTERRUPTIBLE) and not state & PREEMPTED:
                thread.sleep = Sleep(prev, time, "S" if state & INTERRUPTIBLE else "D", thread.call)
        if next:
            thread = self.thread(next, time)
            self.end_sleep(thread, time)
            thread.waker = None
            thread.on_cpu_since = time

    def end_sleep(self, thread, time):
        if thread.sleep:
            thread.sleep.end, thread.sleep.waker = time, thread.waker
            self.sleeps.append(thread.sleep)
            thread.sleep = None

    def call(self, time, kind, tid, number, arguments=None):
        thread = self.thread(tid, time)
        self.ran(tid, thread, time)
        thread.call = (number, ARGUMENTS.unpack(arguments)) if kind == ENTER else None
        if kind == ENTER and number == EPOLL_CTL and thread.call[1][1] == EPOLL_ADD:
            self.polled[tid, thread.call[1][0]] = thread.call[1][2]


def within(start, end, begin, stop):
    """How much of [start, end) is in [begin, stop)."""
    return max(min(end, stop) - max(start, begin), 0)
