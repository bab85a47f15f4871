# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Checks what deburr reported in a virtual machine against what was made to happen there."""

import json
import os
import re
import sqlite3

from vm import document

# An emulated machine is slow: shares of 5 s differ by a point or two between two looks.
THROTTLED_TOLERANCE = 0.03
LEDGER_TOLERANCE = 0.001
CULPRIT_SHARE = 0.8
# Bytes are counted, not measured: what differs is what a filesystem adds.
BYTES_TOLERANCE = 0.01
DISK_SHARE = 0.6
# It does nothing else, once it has started.
PIPE_SHARE = 0.95
# The rest is waiting behind each other before the quota is used up.
CROWD_SHARE = 0.8
# Of the time that a process frees memory, what is told at the limit that binds.
LIMIT_SHARE = 0.95
# Of the samples of a process that only computes, those in the function that computes.
NAMED_SHARE = 0.6
# Of the sleep of who asks with datagrams, for answers; of who listens, the rest.
ASKS_SHARE = 0.9
# Of the CPU time of a process that only computes, what interrupts take at most, in an emulated machine.
INTERRUPTED_SHARE = 0.5

# What `write-files` writes, in bytes.
FILES = {"a": 2 << 20, "b": 2 << 20, "renamed": 2 << 20, "synced": 1 << 20, "direct": 4 << 20, "gone": 1 << 20}

TITLES = [
    "`sched_switch`, hooks",
    "throttle clock",
    "neighbour: victim queued, neighbour's blame",
    "reader of a pipe: of its sleep, in `read` of a pipe",
    "asker and listener of datagrams: of their sleep, for answers",
    "quota: throttled, by `cpu.stat`",
    "new threads under a quota: of their waiting, throttled",
    "files: their bytes, all bytes by `diskstats`",
    "reader in a small cgroup: times it freed memory, at the limit that binds",
    "slow disk: neighbour's share",
    "interrupts: of the victim's CPU time",
    "profile: of the samples, in the function that computes",
]


def shares(report, comm):
    """{state: share of wall time} of that process, and by how much their sum differs from 1."""
    ledger = next(entry for entry in report["ledger"] if entry["victim"].get("comm") == comm)
    wall = ledger["wall_ns"]
    states = {part["state"]: part["ns"] / wall for part in ledger["parts"]}
    return states, abs(sum(states.values()) - 1)


def sleeps(report):
    """The parts of the target's sleep."""
    return next((entry for entry in report["ledger"] if entry.get("asleep")), {"asleep": []})["asleep"]


def for_others(report):
    """The share of the target's sleep in which it waits for others."""
    parts = sleeps(report)
    return sum(it["ns"] for it in parts if it["kind"] == "waits_for_others") / max(sum(it["ns"] for it in parts), 1)


def throttled_truth(before, after):
    """Share of the time between two looks at cpu.stat that the group's only thread was throttled."""

    def read(text):
        uptime, *lines = text.split("\n")
        counters = dict(line.split() for line in lines if len(line.split()) == 2)
        return float(uptime), int(counters["throttled_usec"]) / 1e6

    (from_s, from_throttled_s), (to_s, to_throttled_s) = read(before), read(after)
    return (to_throttled_s - from_throttled_s) / (to_s - from_s)


def files(recording):
    """{file: bytes written / bytes expected}, and the bytes of all classes / those of /proc/diskstats."""
    connection = sqlite3.connect(recording)

    def number(sql, *of):
        return connection.execute(sql, of).fetchone()[0] or 0

    written = "SELECT sum(bytes) FROM io_tick WHERE op = 'write' AND device = ?"
    device = number("SELECT device FROM devices WHERE name = 'vda'")
    by_file = {
        name: number(f"{written} AND file IN (SELECT file FROM file WHERE path = ?)", device, f"/fast/{name}") / bytes
        for name, bytes in FILES.items()
    }
    counted = number("SELECT max(write_bytes) - min(write_bytes) FROM disk_reading WHERE device = ?", device)
    return by_file, number(written, device) / counted if counted else 0


def freed(rows):
    """How often the reader freed memory at a limit, and which part of that time at the one of the cgroup above its own."""
    rows = [json.loads(line) for line in rows.splitlines() if line.startswith("{")]
    paths = {row["cgroup"]: row["path"] for row in rows if row["table"] == "cgroup"}
    readers = {row["proc"] for row in rows if row["table"] == "process" and row["comm"] == "cat"}
    ticks = [row for row in rows if row["table"] == "reclaim" and row["kind"] == "limit" and row["proc"] in readers]
    at_small = sum(row["ns"] for row in ticks if paths.get(row["cgroup"]) == "/small")
    return sum(row["count"] for row in ticks), at_small / max(sum(row["ns"] for row in ticks), 1)


def judge(said, recording, kernel):
    """Cells under TITLES, and complaints, out of the machine's output by part, its recording, and its kernel's version."""
    reports = {name: document(said.get(name, "")) for name in ("doctor", "neighbour", "asleep", "timeout", "anew", "listens", "quota", "crowd", "limits", "disk")}
    failed = [f"{name}: no JSON: {said.get(name, '').strip()[:300]}" for name in reports if not reports[name]]
    if failed:
        return ["-"] * len(TITLES), failed
    doctor, neighbour, asleep, timeout, anew, listens, quota, crowd, limits, disk = reports.values()

    def hold(condition, complaint):
        if not condition:
            failed.append(complaint)

    bpf = doctor["facts"]["bpf"]
    sched = next(source for source in doctor["sources"] if source["source"] == "sched")
    hold(sched["state"] == "active", f"doctor: the probe is not active: {sched}")

    waiting, error = shares(neighbour, "victim")
    hold(error <= LEDGER_TOLERANCE, f"neighbour: ledger is {error:.2%} off")
    first = next(iter(neighbour["findings"]), {"code": "nothing", "causes": []})
    hold(first["code"] == "SCH001", f"neighbour: {first['code']} comes first")
    blamed = sum(c["share"] for c in first["causes"] if c.get("comm") == "neighbour")
    hold(blamed >= CULPRIT_SHARE, f"neighbour: the neighbour got {blamed:.0%} of the blame")
    hold("SCH002" not in codes(neighbour), "neighbour: SCH002 without a quota")
    # The clock tick alone is a part of it.
    interrupted = next(it for it in neighbour["ledger"] if it["victim"].get("comm") == "victim").get("interrupted", 0)
    hold(0 < interrupted <= INTERRUPTED_SHARE, f"neighbour: interrupts took {interrupted:.2%} of the victim's CPU time")

    slept = sleeps(asleep)
    in_read = sum(p["ns"] for p in slept if (p["call"], p.get("on")) == ("read", "a pipe"))
    by_pipe = in_read / max(sum(p["ns"] for p in slept), 1)
    hold(by_pipe >= PIPE_SHARE, f"asleep: {by_pipe:.1%} of the sleep is in `read` of a pipe: {slept}")
    woken = {p["behind"][0]["who"] if p.get("behind") else p.get("woken_by") for p in slept} - {None}
    # Where the kernel's types do not say where the preempt count is, nobody is named.
    hold(woken <= {"`sh`"}, f"asleep: woken by {woken}")
    slept = sleeps(timeout)
    ended = [p.get("woken_by") for p in slept if p["call"] in ("poll", "ppoll") and p["kind"] == "own_timer"]
    # Likewise.
    hold(not woken or (ended and set(ended) <= {"a timer"}), f"timeout: {slept}")

    asked, told = (for_others(report) for report in (anew, listens))
    hold(asked >= ASKS_SHARE, f"anew: {asked:.1%} of the sleep is for answers: {sleeps(anew)}")
    hold(told <= 1 - ASKS_SHARE, f"listens: {told:.1%} of the sleep is for answers: {sleeps(listens)}")
    hold("OFF002" in codes(anew) and "OFF002" not in codes(listens), f"{codes(anew)}, {codes(listens)}")

    limited, error = shares(quota, "limited")
    hold(error <= LEDGER_TOLERANCE, f"quota: ledger is {error:.2%} off")
    throttled = limited.get("throttled", 0)
    truth = throttled_truth(said["quota_before"], said["quota_after"])
    hold(abs(throttled - truth) <= THROTTLED_TOLERANCE, f"quota: {throttled:.1%} throttled, cpu.stat {truth:.1%}")
    hold(codes(quota)[:1] == ["SCH002"], f"quota: {codes(quota)} instead of SCH002 first")
    hold("SCH001" not in codes(quota), "quota: SCH001 fired")

    waits, error = shares(crowd, "sh")
    hold(error <= LEDGER_TOLERANCE, f"crowd: ledger is {error:.2%} off")
    runnable = waits.get("throttled", 0) + waits.get("queued", 0)
    by_quota = waits.get("throttled", 0) / runnable if runnable else 0
    hold(by_quota >= CROWD_SHARE, f"crowd: of what new threads wait {by_quota:.1%} is told as throttled")

    limit = limits["processes"][0]["limit"]
    levels = [(quota["path"], quota["cpus"], quota["own"], quota["binds"]) for quota in limit["quotas"]]
    expected = [("/above/own", 1.5, True, False), ("/above", 0.5, False, True)]
    hold(levels == expected and limit["cpus"] == 0.5 and limit["sight"] == "whole", f"limits: {limit}")

    named, samples = functions(said.get("profile", ""))
    hold(named >= NAMED_SHARE, f"profile: {named:.0%} of {samples} samples are in `spin`")

    hold("yes" in said.get("disks", ""), f"disks: {said.get('disks', '').strip()[:300]}")
    by_file, all_bytes = {}, 0
    if os.path.exists(recording):
        by_file, all_bytes = files(recording)
    else:
        hold(False, f"files: no recording: {said.get('files', '').strip()[:300]}")
    for name, share in by_file.items():
        hold(abs(share - 1) <= BYTES_TOLERANCE, f"files: {share:.1%} of the bytes of {name}")
    hold(abs(all_bytes - 1) <= BYTES_TOLERANCE, f"files: {all_bytes:.1%} of the bytes of diskstats")
    states = {source["source"]: source["state"] for source in doctor["sources"]}
    # Where the kernel's types do not say where the preempt count is, it is not known what threads asked for.
    hold(states.get("interrupts") in ("active", "partial"), f"doctor: interrupts is {states.get('interrupts')}")
    # Iterations over the files of one process are newer.
    has_iterator = tuple(map(int, re.findall(r"\d+", kernel)[:2])) >= (6, 1)
    sending = "active" if has_iterator else "missing"
    hold(states.get("connections") == sending, f"doctor: connections is {states.get('connections')}")
    hold(states.get("unread") == sending, f"doctor: unread is {states.get('unread')}")
    # Its program is loaded for a target only.
    unchecked = {rule["code"] for rule in asleep["not_checked"]}
    for rule in ("NET004", "NET005", "NET006"):
        hold((rule in unchecked) != has_iterator, f"asleep: not checked: {sorted(unchecked)}")
    for name in ("block", "writeback", "reclaim", "tcp"):
        hold(states.get(name) == "active", f"doctor: {name} is {states.get(name)}")
    times, at_limit = freed(said.get("reclaim", ""))
    hold(times > 0, f"reclaim: nothing: {said.get('reclaim_run', '').strip()[:300]} {said.get('reclaim', '')[:300]}")
    hold(at_limit >= LIMIT_SHARE, f"reclaim: {at_limit:.1%} of the time is at the limit that binds")
    beside = next((finding for finding in disk["findings"] if finding["code"] == "BLK004"), {"causes": []})
    held_up = sum(c["share"] for c in beside["causes"] if c.get("comm") == "neighbour")
    hold(held_up >= DISK_SHARE, f"slow disk: {codes(disk)}, the neighbour got {held_up:.0%} of the blame")

    cells = [
        f"{bpf['sched_switch_arguments']} arguments, " + " + ".join(bpf["hooks"]),
        f"`{bpf['throttle_clock']}`",
        f"{percent(waiting.get('queued', 0))}, {percent(blamed)}",
        f"{percent(by_pipe)}, {'woken by the writer' if woken else 'by whom is not known'}",
        f"{percent(asked)}, {percent(told)}",
        f"{percent(throttled)}, {percent(truth)}",
        percent(by_quota),
        f"{percent(min(by_file.values(), default=0))} to {percent(max(by_file.values(), default=0))}, {percent(all_bytes)}",
        f"{times}, {percent(at_limit)}",
        percent(held_up),
        f"{percent(interrupted)}, own calls {'told apart' if states['interrupts'] == 'active' else 'not told apart'}",
        percent(named),
    ]
    return cells, failed


def functions(text):
    """Share of the samples of the first process that is in functions of `deburr_sys::spin`, and how many there are."""
    profile = (document(text) or {}).get("profile")
    if not profile:
        return 0, 0
    process = profile["processes"][0]
    within = [it["with_callees"] for it in process["functions"] if "spin" in it["name"]]
    return max(within, default=0), process["samples"]


def codes(report):
    return [finding["code"] for finding in report["findings"]]


def percent(share):
    return f"{share * 100:.1f} %"
