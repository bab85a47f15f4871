# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Formats the figures of the scheduler probe, and their budgets."""

import os
import statistics

from document import budget_lines, circumstances, spread
from sched import BESIDE, TARGET

TITLE = "The scheduler probe"


# Memory of the maps that tell of sleeps, interrupts, memory and the network, and that a CPU adds.
MAPS_MB, MAPS_MB_A_CPU = 3, 1.5


def budget_rows(comparison, rows, maps):
    """(what, budget, measured, verdict) for every budget that was measured."""
    middle = {key: statistics.median(values) for key, values in comparison.slowdown.items()}
    runs = {
        name: statistics.median(v[0] for v in values)
        for (name, work), values in comparison.programs.items()
        if work == "pipe"
    }
    ours = middle.get(("deburr", "pipe"))
    empty = middle.get(("empty program", "pipe"))
    if "deburr" in runs and "empty program" in runs:
        net = runs["deburr"] - runs["empty program"]
        yield "BPF time per switch, empty program subtracted", "35 ns", f"{net:.1f} ns", net <= 35
    yield from target_rows(comparison)
    if ours is not None and empty is not None:
        above = ours - empty
        what = "`perf bench sched pipe`, above an empty program"
        yield what, "3 points", f"{above:.1f} points", above <= 3
    beside = middle.get((BESIDE, "pipe"))
    if ours is not None and beside is not None:
        what = "`perf bench sched pipe` beside a target, above one without a target"
        yield what, "2 points", f"{beside - ours:.1f} points", beside - ours <= 2
    for rival, times in (("bcc runqlat", 4), ("perf sched record", 12)):
        theirs = middle.get((rival, "pipe"))
        if ours is not None and theirs is not None:
            what = f"times less than `{rival}` (pipe)"
            if ours > 0:
                yield what, f"{times}", f"{theirs / ours:.1f}", theirs >= times * ours
            else:
                got = f"{theirs:.1f} % against a slowdown too small to measure"
                yield what, f"{times}", got, theirs > 0
    measured = {name: row for name, row in rows.items() if "error" not in row}
    names = list(rows)
    for name, limit in ((names[0], 0.5), (names[1], 1.0), (names[2], 1.0)):
        if name in measured:
            used = measured[name]["cpu_percent"]
            yield f"deburr's CPU: {name}", f"{limit} % of one CPU", f"{used:.2f} %", used <= limit
    if names[2] in measured:
        used = measured[names[2]]["rss_bytes"] / 1e6
        yield "deburr's memory with 1 000 threads (RSS)", "40 MB", f"{used:.1f} MB", used <= 40
    if maps is not None:
        counted, whole = (size / 1e6 for size in maps)
        limit = MAPS_MB + MAPS_MB_A_CPU * os.cpu_count()
        what = "memory of the maps for sleeps, interrupts, memory and the network"
        budget = f"{MAPS_MB} MB, and {MAPS_MB_A_CPU} MB a CPU"
        yield what, budget, f"{counted:.1f} MB (all maps: {whole:.1f} MB)", counted <= limit
    if measured:
        attach = statistics.median(row["attach_s"] for row in measured.values()) * 1000
        yield "start to last program attached", "200 ms", f"{attach:.0f} ms", attach < 200
        size = max(row["bytes_per_minute"] for row in measured.values()) / 1e6
        what = "recording, busiest of the loads below"
        yield what, "10 MB a minute", f"{size:.2f} MB a minute", size < 10


def target_rows(comparison):
    """What a target costs, by program: `pipe` is the target, `switch` is not."""

    def of(tool, work, prefix):
        medians = [
            statistics.median(ns)
            for (of_tool, of_work, name), ns in comparison.by_name.items()
            if (of_tool, of_work) == (tool, work) and name.startswith(prefix)
        ]
        return max(medians, default=None)

    # A program that returns at once takes as long, by the kernel's count.
    empty = of("empty program", "pipe", "")
    without = {work: of("deburr", work, "on_switch") for work in ("pipe", "switch")}
    for what, work, prefix, base, limit in (
        ("a switch of a target's thread, above one without a target", "pipe", "on_switch", without["pipe"], 45),
        ("a switch of others beside a target, above one without", "switch", "on_switch", without["switch"], 5),
        ("a wake-up of a target's thread, empty program subtracted", "pipe", "on_waking", empty, 25),
        ("a wake-up of others beside a target, empty program subtracted", "switch", "on_waking", empty, 10),
    ):
        measured = of(TARGET, work, prefix)
        if measured is not None and base is not None:
            yield what, f"{limit} ns", f"{measured - base:.1f} ns", measured - base <= limit
    if comparison.record_ns:
        record = statistics.median(comparison.record_ns)
        what = "a switch of a target's thread with a record written, above one without a target"
        yield what, "90 ns", f"{record:.1f} ns", record <= 90


def part(comparison, rows, maps, arguments):
    lines = [
        *circumstances(arguments, f"{arguments.seconds} s per load", ["perf", "bpftrace"]),
        *budget_lines(budget_rows(comparison, rows, maps)),
    ]
    lines += [
        "",
        "### Cost to the observed",
        "",
        "CPU time per operation beside the run without an observer just before it: median [quartiles]. One operation of",
        "`perf bench sched pipe` is two context switches, one of `stress-ng --switch` is one or two.",
        "",
        "| observer | pipe | switch | BPF ns per switch | BPF ns per program run | |",
        "|---|---|---|---|---|---|",
    ]
    base = {name: statistics.median(values) for name, values in comparison.base.items()}
    lines.append(
        f"| none | {base.get('pipe', 0) / 1000:.2f} us | {base.get('switch', 0) / 1000:.2f} us | | | |"
    )
    for name in comparison.working():
        cells = [
            (
                spread(comparison.slowdown[name, work], "%")
                if (name, work) in comparison.slowdown
                else ""
            )
            for work in ("pipe", "switch")
        ]
        runs = comparison.programs.get((name, "pipe"))
        cells.append(f"{statistics.median(r[0] for r in runs):.0f}" if runs else "")
        cells.append(f"{statistics.median(r[1] for r in runs):.0f}" if runs else "")
        lines.append(f"| {name} | {' | '.join(cells)} | {comparison.tools[name][2]} |")
    lines += [
        "",
        "BPF times are the kernel's (`BPF_ENABLE_STATS`) under the pipe benchmark and contain the cost of taking them, which",
        "the empty program shows. Per switch: all programs of the tool, divided by the runs of the one that runs most often.",
        "The pipe benchmark consists of switches right after a wake-up, where the kernel leaves the run queue's clock behind:",
        "there `deburr` reads CLOCK_MONOTONIC, too, or the wait would be told as time on the CPU.",
        "",
        "A record of a sleep: processes nap for a little more than a millisecond each time, so that each nap has one. What the",
        "program at switches takes longer than where they are not the target is divided by their naps. So long after the",
        "switch before, less of what it reads is in the CPU's caches than in the pipe benchmark.",
    ]
    if comparison.errors:
        lines += ["", "Not measured here:", ""]
        lines += [f"- {name}: {error}" for name, error in sorted(comparison.errors.items())]
    lines += [
        "",
        "### What deburr uses itself",
        "",
        "| load | CPU, of one CPU | memory (RSS) | attached after | recording | threads and processes created |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        if "error" in row:
            lines.append(f"| {name} | not measured: {row['error']} | | | | |")
        else:
            lines.append(
                f"| {name} | {row['cpu_percent']:.2f} % | {row['rss_bytes'] / 1e6:.1f} MB | {row['attach_s'] * 1000:.0f} ms "
                f"| {row['bytes_per_minute'] / 1e6:.2f} MB a minute | {row['creations_per_s']:.0f}/s |"
            )
    return lines
