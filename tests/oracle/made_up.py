# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tests the replay itself: traces made by hand, whose meaning is known."""

from perf import FORK, MIGRATE, NEW, RUNTIME, SWITCH, WAKEUP
from replay import Replay

ASLEEP, ABLE, PREEMPTED, ZOMBIE = 1, 0, 0x100, 0x20


class Made:
    """Stands for perf.Trace; every thread is a process of its own, except 11, which belongs to process 10."""

    def __init__(self, *events):
        self.events = list(events)
        self.process_of = {tid: tid for tid in (10, 20, 30)}
        if any(kind == FORK for _, kind, _, _ in events):
            self.process_of[11] = 10
        self.ended = set()


# (what, events, threads able to run at the start, window, process, (on CPU, queued, longest, wall), blame)
CASES = [
    (
        "a wait from its wake-up on, behind who ran and behind nobody",
        [
            (5, SWITCH, 0, (20, ASLEEP, 30)),
            (10, WAKEUP, 0, (10, 0)),
            (40, SWITCH, 0, (30, ASLEEP, 0)),
            (50, SWITCH, 0, (0, ABLE, 10)),
            (80, SWITCH, 0, (10, ASLEEP, 0)),
        ],
        {}, (0, 100), 10, (30, 40, 40, 100), {30: 30, None: 10},
    ),
    (
        "preempted: a wait begins, and what of it is after the window is not in it",
        [
            (10, SWITCH, 0, (0, ABLE, 10)),
            (50, SWITCH, 0, (10, PREEMPTED, 20)),
            (400, SWITCH, 0, (20, ASLEEP, 10)),
        ],
        {10: 0}, (20, 100), 10, (30, 50, 50, 80), {20: 50},
    ),
    (
        "woken before the window, and never switched in",
        [(10, WAKEUP, 0, (10, 0)), (20, SWITCH, 0, (20, ABLE, 30)), (200, SWITCH, 0, (30, ABLE, 20))],
        {}, (100, 180), 10, (0, 80, 80, 80), {30: 80},
    ),
    (
        "no event at all, but able to run",
        [(20, SWITCH, 0, (20, ABLE, 30)), (200, SWITCH, 0, (30, ABLE, 20))],
        {10: 0}, (0, 180), 10, (0, 180, 180, 180), {20: 20, 30: 160},
    ),
    (
        "moved while it waits: behind who runs where it is",
        [
            (0, SWITCH, 0, (0, ABLE, 20)),
            (0, SWITCH, 1, (0, ABLE, 30)),
            (10, WAKEUP, 0, (10, 0)),
            (40, MIGRATE, 0, (10, 0, 1)),
            (60, SWITCH, 1, (30, ABLE, 10)),
            (90, SWITCH, 1, (10, ASLEEP, 30)),
        ],
        {}, (0, 100), 10, (30, 50, 50, 100), {20: 30, 30: 20},
    ),
    (
        "a thread that begins and ends, beside another of its process",
        [
            (10, FORK, 0, (10, 11)),
            (12, NEW, 0, (11, 0)),
            (20, SWITCH, 0, (10, ASLEEP, 11)),
            (50, SWITCH, 0, (11, ZOMBIE, 0)),
        ],
        {}, (0, 100), 10, (50, 8, 8, 140), {10: 8},
    ),
    (
        "20 is not traced: it went when 10 came, 25 before 10 left",
        [
            (10, WAKEUP, 0, (10, 0)),
            (20, SWITCH, 0, (30, ASLEEP, 20)),
            (80, RUNTIME, 0, (10, 25)),
            (80, SWITCH, 0, (10, ASLEEP, 30)),
        ],
        {}, (0, 100), 10, (25, 45, 45, 100), {30: 10, 20: 35},
    ),
]  # fmt: skip

# (what, events, window, process, (time in which it may have waited instead of run, and instead of slept; time of its
# waits for which it is open who ran))
OPEN = [
    (
        "20 is not traced, and of 10 there is no account: it may have come at any time from 20 on",
        [(10, WAKEUP, 0, (10, 0)), (20, SWITCH, 0, (30, ASLEEP, 20)), (80, SWITCH, 0, (10, ASLEEP, 30))],
        (0, 100), 10, (60, 0, 0),
    ),
    (
        "10 is woken while 20 runs, which nothing tells",
        [
            (5, SWITCH, 0, (10, ASLEEP, 30)),
            (20, SWITCH, 0, (30, ASLEEP, 20)),
            (80, RUNTIME, 0, (10, 25)),
            (80, SWITCH, 0, (10, ASLEEP, 30)),
        ],
        (0, 100), 10, (0, 35, 0),
    ),
    (
        "10 is woken while 20 runs, which nothing tells, and 30 runs before it",
        [
            (5, SWITCH, 0, (10, ASLEEP, 30)),
            (20, SWITCH, 0, (30, ASLEEP, 20)),
            (40, RUNTIME, 0, (30, 10)),
            (40, SWITCH, 0, (30, ASLEEP, 10)),
            (60, SWITCH, 0, (10, ASLEEP, 30)),
        ],
        (0, 100), 10, (0, 20, 0),
    ),
    (
        "the account of 10 is 20 too long where its switch is traced, and may be so where idle CPUs are not",
        [
            (10, WAKEUP, 0, (10, 0)),
            (30, SWITCH, 0, (30, ASLEEP, 10)),
            (50, RUNTIME, 0, (10, 40)),
            (50, SWITCH, 0, (10, ASLEEP, 0)),
            (90, RUNTIME, 0, (10, 25)),
            (90, SWITCH, 0, (10, ASLEEP, 0)),
        ],
        (0, 100), 10, (20, 15, 0),
    ),
    (
        "10 waits while 20, which is not traced, or nobody has the CPU",
        [
            (15, SWITCH, 0, (30, ASLEEP, 20)),
            (20, WAKEUP, 0, (10, 0)),
            (50, SWITCH, 0, (0, ABLE, 10)),
            (80, SWITCH, 0, (10, ASLEEP, 0)),
        ],
        (0, 100), 10, (0, 0, 30),
    ),
]  # fmt: skip


def wrong():
    """Cases whose replay differs from what they mean, as sentences."""
    for what, events, able, window, pid, figures, blame in CASES:
        replay = Replay(Made(*events), able)
        found = replay.processes(*window)[pid]
        said = (found.on_cpu_ns, found.queued_ns, found.wait_max_ns, found.wall_ns)
        if (said, replay.blame(found)) != (figures, blame):
            yield f"{what}: {said} and {replay.blame(found)} instead of {figures} and {blame}"
    for what, events, window, pid, figures in OPEN:
        replay = Replay(Made(*events), {})
        found = replay.processes(*window)[pid]
        said = (found.late_ns, found.hidden_ns, replay.open_ns(found))
        if said != figures:
            yield f"{what}: {said} instead of {figures}"
