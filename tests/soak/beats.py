# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The beats of a recording, held against what the recording counts as missed and late."""

import sqlite3

BIN_NS, LATE_NS = 100_000_000, 1_000_000_000
# Between the return from a stop and the beat that notices it, others may run.
SLACK_NS = 500_000_000


class Beats:
    """The beats of a recording: what it says of them itself, and what the bins show."""

    def __init__(self, path):
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        (self.start_ns,) = connection.execute("SELECT start_mono_ns FROM meta").fetchone()
        ending = connection.execute("SELECT window_ns FROM ending").fetchone()
        self.window_ns = ending[0] if ending else None
        query = "SELECT t0_ns, t1_ns FROM load_bin WHERE scope = 'host' ORDER BY seq"
        self.bins = connection.execute(query).fetchall()
        query = "SELECT t_ns, ns FROM event WHERE event = 'late_tick' ORDER BY seq"
        self.late = connection.execute(query).fetchall()
        query = "SELECT key, sum(value) FROM observer_tick, json_each(lost) GROUP BY key ORDER BY key"
        self.lost = connection.execute(query).fetchall()
        self.other = connection.execute("SELECT event, detail FROM event WHERE event != 'late_tick'").fetchall()
        connection.close()

    def missing(self):
        """Beats of the grid that were not: every beat makes one bin."""
        return self.end_ns() // BIN_NS - self.begin_ns() // BIN_NS - len(self.bins)

    def begin_ns(self):
        return self.bins[0][0] if self.bins else 0

    def end_ns(self):
        return self.bins[-1][1] if self.bins else 0

    def counted(self):
        """Beats that the recording itself counts as missed."""
        return dict(self.lost).get("beats_missed", 0)

    def after_the_last(self):
        """Beats that would have followed the last one before all that belongs to that was read: nobody missed them. That
        rest of the window may have a bin of its own."""
        first, last = self.bins[-1]
        return max(last // BIN_NS - first // BIN_NS - 1, 0)

    def late_without_bin(self):
        """Late beats that the bins contradict. A beat comes after what belongs to the last one was read, where the last
        bin ends, and before what belongs to itself is read. It is due at the next line of the grid after the last beat,
        which was within the bin before."""
        for at_ns, ns in self.late:
            before, around = (0, 0), None
            for bin in self.bins:
                if bin[1] >= at_ns:
                    around = bin
                    break
                before = bin
            # What belongs to the last beat may have no bin.
            if around and not before[0] <= at_ns - ns <= (around[0] // BIN_NS + 1) * BIN_NS:
                yield f"at {at_ns / 1e9:.3f} s a beat is {ns / 1e9:.3f} s late, and bins end meanwhile"

    def bins_without_late(self):
        """Long bins of which no late beat tells. A beat may come nearly `LATE_NS` late, and what belongs to it may be read
        nearly that much later, before the one or the other is counted. Nothing follows the last beat that could be late."""
        limit_ns = 2 * (LATE_NS + BIN_NS)
        for first, last in self.bins[:-2]:
            if last - first <= limit_ns:
                continue
            untold = last - first - union((max(at - ns, first), min(at, last)) for at, ns in self.late)
            if untold > limit_ns:
                yield f"of {(last - first) / 1e9:.3f} s until {last / 1e9:.3f} s, {untold / 1e9:.3f} s are in no late tick"

    def faults(self, stops):
        """What is wrong with them, as sentences."""
        if not self.bins:
            yield "there are no bins: this kernel runs no BPF programs"
            return
        if self.window_ns is None:
            yield "the recording has no orderly end"
            return
        uncounted = self.missing() - self.counted()
        if not -1 <= uncounted <= self.after_the_last():
            yield f"{self.missing()} beats are missing, and {self.counted()} are counted as missed"
        edges = [(0, 0), *self.bins, (self.window_ns, self.window_ns)]
        for (_, before), (after, _) in zip(edges, edges[1:]):
            # The first beat and the last are not in the very nanosecond of the window's ends.
            if before != after and abs(after - before) > BIN_NS:
                yield f"nothing is known of {(after - before) / 1e6:.0f} ms from {before / 1e9:.3f} s on"
        yield from self.late_without_bin()
        yield from self.bins_without_late()
        for before, stopped, continued in stops:
            # Within a stop there is no beat, and the first after it is late, if the stop was long enough. On a busy host
            # it may come much later, and then it is late by more than the stop.
            first, last = (stopped - self.start_ns) + BIN_NS // 10, continued - self.start_ns
            if last > self.window_ns:
                continue
            if continued - stopped > LATE_NS + BIN_NS + SLACK_NS and not any(
                last <= at_ns and at_ns - ns <= first + BIN_NS for at_ns, ns in self.late
            ):
                yield f"the stop of {(continued - before) / 1e9:.2f} s at {first / 1e9:.3f} s is not counted"


def union(spans):
    """Length of all spans together. Empty ones may end before they begin."""
    total, end = 0, 0
    for first, last in sorted(spans):
        total += max(last - max(first, end), 0)
        end = max(end, last)
    return total
