# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Chooses which of several attempts counts. A repetition may excuse a difference, but not what must never be
(`broken`)."""

from compare import MOSTLY_NOT


def counting(runs):
    """The last attempt that was judged or that is `broken`; without any, the last attempt."""
    judged = [run for run in runs if run.outcome == "judged" or run.broken]
    return (judged or runs)[-1]


def told_of_the_first(first, counts, most_lines):
    """Prints what was off in the first attempt, if another one counts."""
    if first is not counts:
        for line in [*first.broken, *first.beyond("always")][:most_lines]:
            print(f"    at first: {line}", flush=True)


def too_often_mostly(verdicts):
    """Says so if too many of the runs that were judged are beyond the narrow bounds."""
    mostly, judged = verdicts.count("mostly"), len(verdicts) - verdicts.count("lost")
    if mostly <= max(1, judged * MOSTLY_NOT):
        return False
    print(f"{mostly} of {judged} runs are beyond the narrow bounds")
    print("test the narrow bounds in most runs ... FAILED")
    return True


class Made:
    """Stands for a `Run` of either program."""

    def __init__(self, outcome, broken=()):
        self.outcome, self.broken = outcome, list(broken)


def wrong():
    """Tries `counting` on made-up attempts; yields a line for each wrong choice."""
    off, lost, broken, ok = Made("judged"), Made("lost"), Made("failed", ["deburr ended with 1"]), Made("judged")
    for what, runs, counts in [
        ("off, then perf lost events", [off, lost], off),
        ("perf lost events, then off", [lost, off], off),
        ("off, then deburr ended", [off, broken], broken),
        ("off, then within the bounds", [off, ok], ok),
        ("perf lost events each time", [lost, lost], lost),
    ]:
        if counting(runs) is not counts:
            yield f"{what}: the wrong attempt counts"
