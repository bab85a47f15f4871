# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tests the replay of sleeps itself: traces made by hand, whose meaning is known. Times are in ms."""

from perf import once_each
from sleep_replay import END, EXIT, NEW, SWITCH, WAKEUP, WAKING, Replay

ASLEEP, ABLE, PREEMPTED, ZOMBIE, READ = 1, 0, 0x100, 0x20, 0
TASK, HARD = b"\x01", b"\x09"
MS = 1_000_000


class Made:
    """Stands for perf.Trace; every thread is a process of its own."""

    def __init__(self, events):
        self.events = [(time * MS, kind, cpu, fields) for time, kind, cpu, fields in events]
        self.process_of = {tid: tid for tid in (10, 20, 30)}


# (what, events, [(thread, from, to, context and thread of the waker, open)], threads that did what cannot be)
CASES = [
    (
        "asleep from its switch to its wake-up, which a thread is the cause of",
        [
            (5, SWITCH, 0, (10, ASLEEP, 30)),
            (40, WAKING, 0, (30, TASK, 10)),
            (41, WAKEUP, 0, (10,)),
            (60, SWITCH, 0, (30, PREEMPTED, 10)),
        ],
        [(10, 5, 41, ("task", 30), 0)], [],
    ),
    (
        "woken by an interrupt while it is about to be switched out; and one that sleeps on",
        [
            (5, SWITCH, 1, (30, ASLEEP, 0)),
            (5, WAKING, 0, (10, HARD, 10)),
            (5, SWITCH, 0, (10, ASLEEP, 0)),
            (6, WAKEUP, 0, (10,)),
            (7, SWITCH, 0, (0, ABLE, 10)),
        ],
        [(10, 5, 6, ("hard", 10), 0), (30, 5, END // MS, None, 0)], [],
    ),
    (
        "20 is not traced, and 10 comes after it",
        [(5, SWITCH, 0, (10, ASLEEP, 30)), (20, SWITCH, 0, (30, ABLE, 20)), (80, SWITCH, 0, (10, ASLEEP, 30))],
        [(10, 5, 80, None, 60), (10, 80, END // MS, None, 0)], [20],
    ),
    (
        "20 is not traced, and 10 is preempted after it: it is not asleep then",
        [
            (5, SWITCH, 0, (10, ASLEEP, 30)),
            (20, SWITCH, 0, (30, ABLE, 20)),
            (30, EXIT, 0, (10, READ)),
            (80, SWITCH, 0, (10, PREEMPTED, 30)),
            (900, SWITCH, 0, (30, ABLE, 10)),
        ],
        [(10, 5, 30, None, 10)], [20],
    ),
    (
        "20 is not traced, and wakes 10 on another CPU",
        [
            (5, SWITCH, 0, (10, ASLEEP, 30)),
            (20, SWITCH, 1, (0, ABLE, 20)),
            (60, SWITCH, 0, (30, ABLE, 10)),
            (70, SWITCH, 1, (0, ABLE, 0)),
        ],
        [(10, 5, 60, None, 40)], [20],
    ),
    (
        "30 wakes 10 on the CPU of 20, which is not traced: since then it is open",
        [
            (5, SWITCH, 0, (10, ASLEEP, 30)),
            (20, SWITCH, 1, (0, ABLE, 20)),
            (50, WAKING, 0, (30, TASK, 10)),
            (60, EXIT, 1, (10, READ)),
        ],
        [(10, 5, 60, ("task", 30), 10)], [20],
    ),
    (
        "nothing is hidden, and yet nobody wakes 10",
        [(5, SWITCH, 0, (10, ASLEEP, 30)), (60, SWITCH, 0, (30, ABLE, 10))],
        [(10, 5, 60, None, 55)], [10],
    ),
    (
        "a number is used again, after its first thread ended",
        [
            (5, NEW, 0, (10,)),
            (6, SWITCH, 0, (30, ABLE, 10)),
            (9, SWITCH, 0, (10, ZOMBIE, 30)),
            (50, NEW, 0, (10,)),
            (51, SWITCH, 0, (30, ABLE, 10)),
        ],
        [], [],
    ),
]  # fmt: skip


def wrong():
    """Cases whose replay differs from what they mean, as sentences."""
    for what, events, sleeps, odd in CASES:
        replay = Replay(Made(events))
        found = [
            (sleep.tid, sleep.since // MS, sleep.end // MS, sleep.waker and sleep.waker[::2], sleep.open_ns // MS) for sleep in replay.sleeps
        ]
        if found != sleeps or sorted(replay.odd) != odd:
            yield f"{what}: {found} and {replay.odd} instead of {sleeps} and {odd}"
    once, other, later = (1, SWITCH, 0, (1, 2, 3)), (1, SWITCH, 1, (1, 2, 3)), (2, SWITCH, 0, (1, 2, 3))
    if list(once_each([once, other, once, later])) != [once, other, later]:
        yield "an event that perf wrote twice counts twice"
