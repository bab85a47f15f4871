# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Replays from perf's trace on what every thread of a workload slept, who woke it, and what interrupts took from it.

A sleep lasts from when the thread is switched out, not runnable, until it is queued again (`sched_wakeup`). The last
`sched_waking` before that ended it; its flags tell whether an interrupt did, and what its CPU served then tells which. In which call is known from the calls that the
thread entered and left: where there is none, it is a page fault, or other work of the kernel for it. The trace does not tell
block IO from other uninterruptible sleep, and of a thread of the kernel not what it works for.

What a thread does follows one after the other: it is asleep, able to run, or on a CPU, so that it never slept for longer than it
existed. A kernel may exclude a process from tracing (pid 1 on some machines; see replay.py): nothing is traced while it has a CPU,
neither that it leaves it nor whom it or an interrupt wakes meanwhile. That somebody else has the CPU is seen by the first event in
that thread's context. Since when, and since when it had been awake, is open back to when the excluded process came: `open_ns` of
a sleep says by how much. What cannot be explained so is in `odd`, and such a trace is not complete.
"""

import struct
from collections import defaultdict

(SWITCH, WAKEUP, NEW, WAKING, ENTER, EXIT, DEVICE_IN, DEVICE_OUT, TIMER_IN, TIMER_OUT, SOFT_IN, SOFT_OUT, RESCHEDULED) = range(13)
# Interrupts by other processors whose time is told.
VECTORS = ["call_function", "call_function_single"]
VECTOR_IN, VECTOR_OUT = 20, 30
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
    SOFT_IN: ("irq:softirq_entry", "common_pid", "vec"),
    SOFT_OUT: ("irq:softirq_exit", "common_pid"),
    RESCHEDULED: ("irq_vectors:reschedule_exit", "common_pid"),
}
EVENTS |= {VECTOR_IN + at: (f"irq_vectors:{name}_entry", "common_pid") for at, name in enumerate(VECTORS)}
EVENTS |= {VECTOR_OUT + at: (f"irq_vectors:{name}_exit", "common_pid") for at, name in enumerate(VECTORS)}
BEGINS = {DEVICE_IN, TIMER_IN, *range(VECTOR_IN, VECTOR_IN + len(VECTORS))}
# The kind of interrupt that ends.
ENDS = {DEVICE_OUT: "device", TIMER_OUT: "timer"} | {VECTOR_OUT + at: "processor" for at in range(len(VECTORS))}
# The kind of interrupt that begins, and what soft interrupts are for, by their vectors.
BEGUN = {DEVICE_IN: "device", TIMER_IN: "timer"} | {VECTOR_IN + at: "other cpu" for at in range(len(VECTORS))}
SOFT = {1: "kernel timer", 2: "network", 3: "network", 4: "disk", 5: "disk", 8: "timer"}
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
# A thread that is about to sleep may be woken so long before it is switched out.
BEFORE_NS = 1_000_000
BEGINNING, END = 0, 1 << 63
UNKNOWN, ASLEEP, ABLE, ON_CPU, GONE = range(5)


class Sleep:
    """`state` is S or D; `call` (number, arguments) or None; `waker` (context, what interrupt, tid, its call) or None = not seen. It may have ended
    earlier than `end` by `open_ns`, because that was not seen, or by `waking_ns`: the thread is queued between both events."""

    __slots__ = ("tid", "since", "end", "state", "call", "waker", "open_ns", "waking_ns")

    def __init__(self, tid, since, state, call):
        self.tid, self.since, self.state, self.call = tid, since, state, call
        self.end, self.waker = END, None
        self.open_ns = self.waking_ns = 0


class Thread:
    """`waking`: (time, waker) of the last waking. `doing`: what it does since `since`."""

    __slots__ = ("tid", "born", "doing", "since", "call", "sleep", "waking")

    def __init__(self, tid, born):
        self.tid, self.born = tid, born
        self.doing, self.since = UNKNOWN, born
        self.call = self.sleep = self.waking = None

class Interrupts:
    """The interrupts of a CPU that have begun and not ended, and when the last event was, if that was the end of a hard one."""

    def __init__(self):
        self.hard_since = self.soft_since = None
        self.hard_in_soft, self.hard_ended = 0, -END
        self.own_call = False
        # What they are.
        self.hard = self.soft = None


class Replay:
    """What was until `until`: perf has read some CPUs earlier than others when it ends. `sleeps`: all, in the order in which they
    ended, those that did not at the end. `interrupts` {(tid, kind, own_call): [(from, to, ns)]}. `running` {tid: [(from, to, in a
    call)]}, `came` {tid: [(from, to)]}: it may have run there already. `odd` {tid: what cannot be}."""

    def __init__(self, trace, until=END):
        self.sleeps, self.unseen = [], []
        self.interrupts = defaultdict(list)
        self.running, self.came = defaultdict(list), defaultdict(list)
        self.calls = defaultdict(list)
        self.threads = {}
        self.died = {}
        self.odd = {}
        # {(tid of the caller, descriptor of an event poll): descriptor that it was given}
        self.polled = {}
        self.cpus = defaultdict(Interrupts)
        # {cpu: (who has it, since when)}, and when somebody had one who is not traced: [(from, to)].
        self.on, self.hidden = {}, []
        self.process_of, self.hiding = trace.process_of, set()
        for time, kind, cpu, fields in trace.events:
            if time >= until:
                break
            if kind not in (WAKEUP, NEW):
                on = self.on.get(cpu)
                if on is None or on[0] != fields[0]:
                    self.appeared(fields[0], time, cpu, on)
            if kind == SWITCH:
                self.switch(time, cpu, *fields)
            elif kind in (ENTER, EXIT):
                self.call(time, kind, *fields)
                self.cpus[cpu].hard_ended = -END
            elif kind in (WAKING, WAKEUP, NEW):
                self.woken(time, kind, cpu, fields)
            else:
                self.interrupt(time, kind, cpu, *fields)
        self.finish()

    def finish(self):
        for thread in self.threads.values():
            if thread.sleep:
                self.sleeps.append(thread.sleep)
            self.ran(thread, END)
        # Until the end, if nobody else was seen on that CPU.
        self.hidden += [(since, END) for tid, since in self.on.values() if self.process_of.get(tid, tid) in self.hiding]
        self.hidden.sort()
        for sleep, waking in self.unseen:
            self.explain(sleep, waking)

    def explain(self, sleep, waking):
        """Nothing in the trace queued the thread: something did that is not traced, at the earliest when it first had a CPU."""
        first = next((max(since, sleep.since) for since, until in self.hidden if until > sleep.since and since < sleep.end), None)
        if first is None:
            self.odd[sleep.tid] = f"woken by nobody at {sleep.end}"
            first = sleep.since
        if waking and waking[0] > sleep.since - BEFORE_NS:
            first, sleep.waker = max(first, waking[0]), waking[1]
        sleep.open_ns = max(sleep.end - first, 0)

    def thread(self, tid, time):
        return self.threads.get(tid) or self.threads.setdefault(tid, Thread(tid, time))

    def ran(self, thread, time):
        if thread.doing == ON_CPU:
            self.running[thread.tid].append((thread.since, time, thread.call is not None))
            thread.since = time

    def appeared(self, tid, time, cpu, on):
        """A thread does something on a CPU of which the trace has that another one got it last."""
        self.on[cpu] = tid, time
        since = BEGINNING
        if on is not None:
            hidden, since = on
            self.hidden.append((since, time))
            self.hiding.add(self.process_of.get(hidden, hidden))
            if hidden:
                left = self.thread(hidden, time)
                left.doing, left.sleep = UNKNOWN, None
                self.odd[hidden] = f"has left a CPU unseen before {time}"
        if tid:
            thread = self.thread(tid, time)
            if thread.doing == ON_CPU:
                self.odd[tid] = f"on two CPUs at {time}"
            self.came[tid].append((max(since, thread.since), time))
            self.arrive(thread, time)

    def arrive(self, thread, time):
        if thread.doing == ASLEEP:
            self.unseen.append((thread.sleep, thread.waking))
            self.end_sleep(thread, time, None)
        thread.doing, thread.since, thread.waking = ON_CPU, time, None

    def switch(self, time, cpu, prev, state, next):
        self.cpus[cpu].hard_ended = -END
        self.on[cpu] = next, time
        if prev:
            thread = self.thread(prev, time)
            self.ran(thread, time)
            thread.since = time
            if state & 0x30:
                thread.doing, self.died[prev] = GONE, time
            elif state & (INTERRUPTIBLE | UNINTERRUPTIBLE) and not state & PREEMPTED:
                thread.doing = ASLEEP
                thread.sleep = Sleep(prev, time, "S" if state & INTERRUPTIBLE else "D", thread.call)
            else:
                thread.doing = ABLE
        if next:
            self.arrive(self.thread(next, time), time)

    def end_sleep(self, thread, time, waker):
        thread.sleep.end, thread.sleep.waker = time, waker
        self.sleeps.append(thread.sleep)
        thread.sleep = None

    def woken(self, time, kind, cpu, fields):
        if kind == WAKING:
            by, flags, tid = fields
            context = "hard" if flags[0] & IN_HARD else "soft" if flags[0] & IN_SOFT else "task"
            caller = self.threads.get(by)
            served = self.cpus[cpu]
            what = {"hard": served.hard, "soft": served.soft}.get(context)
            self.thread(tid, time).waking = time, (context, what, by, caller and caller.call)
            return
        self.cpus[cpu].hard_ended = -END
        (tid,) = fields
        thread = self.thread(tid, time)
        if kind == NEW:
            if thread.born != time and thread.doing != GONE:
                self.odd[tid] = f"is new again at {time}"
            thread = self.threads[tid] = Thread(tid, time)
            self.died.pop(tid, None)
        if thread.doing == ASLEEP:
            seen = thread.waking and thread.waking[0] > thread.since - BEFORE_NS
            if seen:
                thread.sleep.waking_ns = time - max(thread.waking[0], thread.since)
            self.end_sleep(thread, time, thread.waking[1] if seen else None)
        if thread.doing in (UNKNOWN, ASLEEP):
            thread.doing, thread.since = ABLE, time

    def call(self, time, kind, tid, number, arguments=None):
        thread = self.thread(tid, time)
        self.ran(thread, time)
        if kind == ENTER and thread.call:
            self.odd[tid] = f"enters a call within one at {time}"
        thread.call = (number, ARGUMENTS.unpack(arguments)) if kind == ENTER else None
        if kind == ENTER:
            self.calls[tid].append(time)
            if number == EPOLL_CTL and thread.call[1][1] == EPOLL_ADD:
                self.polled[tid, thread.call[1][0]] = thread.call[1][2]

    def interrupt(self, time, kind, cpu, tid, vector=None):
        state = self.cpus[cpu]
        if kind in BEGINS:
            state.hard_since, state.hard = time, BEGUN[kind]
        elif kind in ENDS:
            if state.hard_since is not None:
                ns = time - state.hard_since
                self.interrupts[tid, ENDS[kind], False].append((state.hard_since, time, ns))
                state.hard_in_soft += ns
            state.hard_since = state.hard = None
        elif kind == SOFT_IN:
            state.soft = SOFT.get(vector)
            state.own_call, state.soft_since, state.hard_in_soft = time - state.hard_ended > AFTER_NS, time, 0
        elif kind == SOFT_OUT:
            if state.soft_since is not None:
                ns = time - state.soft_since - state.hard_in_soft
                self.interrupts[tid, "soft", state.own_call].append((state.soft_since, time, ns))
            state.soft_since = state.soft = None
            # The next one comes in the same context.
            state.hard_ended = -END if state.own_call else time
            return
        state.hard_ended = time if kind in ENDS or kind == RESCHEDULED else -END


def within(start, end, begin, stop):
    """How much of [start, end) is in [begin, stop)."""
    return max(min(end, stop) - max(start, begin), 0)
