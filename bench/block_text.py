# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Formats the figures of the probes of block IO, and their budgets."""

import statistics

from block import of_hook
from document import budget_lines, circumstances, spread

TITLE = "The probes of block IO"
FULL, EMPTY, RIVAL = "deburr, every request", "empty programs", "biosnoop-like"
HOOKS = ("queue", "start", "issue", "complete")


def per_request(spent, hooks=None):
    """Time of the programs, of all or of some hooks, for each completed request, in ns."""
    requests = of_hook(spent, "complete")[0]
    if hooks is None:
        ns = sum(ns for _, ns in spent.values())
    else:
        ns = sum(of_hook(spent, hook)[1] for hook in hooks)
    return ns / requests if requests else 0


def net_ns(comparison, load):
    """Time of all programs for a request, with that of the empty ones subtracted, in ns; `None` = not measured."""
    runs = comparison.programs.get(load, {})
    if FULL not in runs or EMPTY not in runs:
        return None
    full, empty = (statistics.median(map(per_request, runs[name])) for name in (FULL, EMPTY))
    return full - empty


def losses(comparison, name, part=0):
    """operation -> IOs per second lost (part 0) or CPU time added (part 1) in its runs, in percent"""
    found = {load: values for (tool, load), values in comparison.cost.items() if tool == name}
    return {load: [value[part] for value in values] for load, values in found.items()}


def sampled_percent(row):
    return row["bpf_percent"] + row["own_percent"] - row["rest_percent"]


def budget_rows(comparison):
    """(what, budget, measured, whether it is met) for every budget that was measured."""
    for load in comparison.single:
        net = net_ns(comparison, load)
        if net is not None:
            what = f"BPF time per IO, empty programs subtracted: {load}"
            yield what, "650 ns", f"{net:.0f} ns", net <= 650
    ours, theirs = losses(comparison, FULL), losses(comparison, RIVAL)
    for load in ours.keys() & theirs.keys():
        lost, rival = statistics.median(ours[load]), statistics.median(theirs[load])
        what = f"IOPS lost with every request followed: {load}"
        yield what, f"a third of {RIVAL}: {rival / 3:.1f} %", f"{lost:.1f} %", lost <= rival / 3
    if comparison.sampling:
        worst = max(comparison.sampling, key=sampled_percent)
        percent = sampled_percent(worst)
        what = f"CPU for block IO at any rate (most at {worst['iops']:,.0f}/s)"
        yield what, "1 % of one CPU", f"{percent:.2f} %", percent < 1
        shares = [share for row in comparison.sampling for share in row["told"] if share]
        if shares:
            far = max(shares, key=lambda share: abs(share - 1))
            what = "IOs and bytes told, of those done, at any rate (farthest)"
            yield what, "100 +- 2 %", f"{100 * far:.1f} %", abs(far - 1) <= 0.02


def part(comparison, arguments, seconds):
    lines = [
        *circumstances(arguments, f"{seconds} s per run of fio", ["fio", "bpftrace"]),
        *budget_lines(budget_rows(comparison)),
    ]
    return lines + cost_lines(comparison) + program_lines(comparison) + rate_lines(comparison)


def cost_lines(comparison):
    operations = list(comparison.base)
    lines = [
        "",
        "### Cost to the observed",
        "",
        "fio, 4 kB at random places, 16 in flight, libaio, O_DIRECT, on one CPU, on a loop device over memory: IOs a",
        "second lost, and CPU time an IO added (fio, kernel threads, the tool), beside the run without an observer just",
        "before or after it: median [quartiles]. deburr's other probes run, too: the scheduler's weighs in here.",
        "",
        "| observer | " + " | ".join(f"{o}: IOPS lost | CPU an IO" for o in operations) + " | |",
        "|---|" + "---|" * (2 * len(operations) + 1),
    ]
    cells = []
    for operation in operations:
        iops, ns = zip(*comparison.base[operation])
        cells += [f"{statistics.median(iops):,.0f}/s", f"{statistics.median(ns) / 1000:.2f} us"]
    lines.append(f"| none | {' | '.join(cells)} | |")
    for name in comparison.working():
        iops, ns = losses(comparison, name), losses(comparison, name, 1)
        cells = []
        for operation in operations:
            cells += [spread(side[operation], "%") for side in (iops, ns) if operation in side]
        lines.append(f"| {name} | {' | '.join(cells)} | {comparison.tools[name][1]} |")
    if comparison.errors:
        lines += ["", "Not measured here:", ""]
        lines += [f"- {name}: {error}" for name, error in sorted(comparison.errors.items())]
    return lines


def program_lines(comparison):
    lines = [
        "",
        "### Cost of a request",
        "",
        "Nanoseconds of the programs for each request that was completed, every request followed: the kernel's count",
        "(`BPF_ENABLE_STATS`), which contains the cost of taking it, as the empty programs show. `other` are those of the",
        "writeback probe, which run for inodes, commits and syncs. Where many small files lie side by side a request",
        "carries many of them, and each costs; the name of a new file is read once.",
        "",
        "| load | bytes a request | empty | queue | start | issue | complete | other | sum | net |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for load, runs in comparison.programs.items():
        net = net_ns(comparison, load)
        if net is None:
            continue
        middle = lambda values: statistics.median(values)  # noqa: E731
        empty = middle(map(per_request, runs[EMPTY]))
        hooks = [middle(per_request(spent, [hook]) for spent in runs[FULL]) for hook in HOOKS]
        whole = middle(map(per_request, runs[FULL]))
        other = middle(per_request(spent) - per_request(spent, HOOKS) for spent in runs[FULL])
        size = sum(b for _, b in comparison.carried[load])
        size /= sum(ios for ios, _ in comparison.carried[load])
        cells = [f"{ns:.0f}" for ns in (empty, *hooks, other, whole, net)]
        lines.append(f"| {load} | {size:,.0f} | {' | '.join(cells)} |")
    return lines


def rate_lines(comparison):
    lines = [
        "",
        "### Sampling",
        "",
        "fio, 4 kB random writes at a rate for 10 s. deburr begins with every request and chooses then how many it follows.",
        "CPU in percent of one: of its programs for block IO, what empty ones take subtracted and beside it; of its",
        "process, all that it does, and above what that takes at rest. Told: IOs and bytes by the probe, as shares of the",
        "kernel's own counters in the same recording; IOs scaled by what each request stands for, bytes to what the disk counted.",
        "",
        "| asked for | IOs a second | one followed in | BPF | empty | process | above rest | BPF + above rest | IOs told | bytes told |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in comparison.sampling:
        asked = f"{row['asked']:,}/s" if row["asked"] else "all"
        above = row["own_percent"] - row["rest_percent"]
        percent = [row["bpf_percent"], row["empty_percent"], row["own_percent"]]
        percent += [above, sampled_percent(row)]
        cells = [f"{row['iops']:,.0f}", f"{row['one_in']:.0f}" if row["one_in"] else ""]
        cells += [f"{value:.2f} %" for value in percent]
        cells += ["not told" if share is None else f"{100 * share:.2f} %" for share in row["told"]]
        lines.append(f"| {asked} | {' | '.join(cells)} |")
    return lines
