# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Formats the figures of the scheduler probe, and their budgets."""

import statistics

from document import budget_lines, circumstances, spread
from sched import TARGET

TITLE = "The scheduler probe"


def budget_rows(comparison, rows):
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


def part(comparison, rows, arguments):
    lines = [
        *circumstances(arguments, f"{arguments.seconds} s per load", ["perf", "bpftrace"]),
        *budget_lines(budget_rows(comparison, rows)),
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
