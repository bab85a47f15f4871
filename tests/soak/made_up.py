# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tests the judge of the beats itself: recordings made by hand, of which it is known whether something is wrong."""

from beats import BIN_NS, Beats

S = 1_000_000_000


def even(first_ns, count):
    """That many bins of the usual length."""
    return [(first_ns + bin * BIN_NS, first_ns + (bin + 1) * BIN_NS) for bin in range(count)]


# (what, bins, late ticks, beats counted as missed, stops, words of the fault or `None`)
CASES = [
    ("an undisturbed second", even(0, 10), [], 0, [], None),
    (
        "a stop between two beats",
        [*even(0, 2), (2 * BIN_NS, 3 * S), *even(3 * S, 3)],
        [(3 * S, 3 * S - 3 * BIN_NS)],
        27,
        [(BIN_NS * 2, BIN_NS * 2, 3 * S - 1000)],
        None,
    ),
    (
        "a stop while a beat is read: its bin is long, and it is the next beat that is late",
        [*even(0, 2), (2 * BIN_NS, 3 * S), (3 * S, 3 * S + 1000), (3 * S + 1000, 31 * BIN_NS), *even(31 * BIN_NS, 2)],
        [(3 * S + 500, 3 * S + 500 - 4 * BIN_NS)],
        26,
        [(BIN_NS * 3 + 10, BIN_NS * 3 + 10, 3 * S - 1000)],
        None,
    ),
    (
        "a stop that is in no late tick",
        [*even(0, 2), (2 * BIN_NS, 3 * S), *even(3 * S, 3)],
        [],
        27,
        [],
        "in no late tick",
    ),
    (
        "a stop that is not counted",
        [*even(0, 2), (2 * BIN_NS, 2 * S), *even(2 * S, 3)],
        [],
        17,
        [(BIN_NS * 2, BIN_NS * 2, 2 * S - 1000)],
        "is not counted",
    ),
    ("missed beats that are not counted", [*even(0, 2), *even(BIN_NS * 4, 4)], [], 0, [], "are missing"),
    ("a hole between two bins", [*even(0, 2), *even(BIN_NS * 4, 4)], [], 2, [], "nothing is known"),
    ("a late beat in spite of bins", even(0, 30), [(25 * BIN_NS, 15 * BIN_NS)], 0, [], "bins end meanwhile"),
]


def wrong():
    """What the judge says wrong of them, as sentences."""
    for what, bins, late, missed, stops, words in CASES:
        made = Beats.__new__(Beats)
        made.start_ns, made.window_ns, made.bins, made.late = 0, bins[-1][1], bins, late
        made.lost = [("beats_missed", missed)] if missed else []
        faults = list(made.faults(stops))
        if words is None and faults or words and not any(words in fault for fault in faults):
            yield f"{what}: {faults}"
