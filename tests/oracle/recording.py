# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads what deburr reports of the same time: the tables of its recording, and its report as JSON."""

import json
import re
import sqlite3
import subprocess
from collections import defaultdict

# Special values of docs/recording-format.md: `proc` of many small processes together, and culprits that are no process.
OTHERS, MOVED, NOT_LOOKED_UP = 4294967295, -1, -2


class Account:
    """deburr's account of a process, in ns; `blame` by pid, or by OTHERS, MOVED, NOT_LOOKED_UP."""

    def __init__(self):
        self.wall_ns = self.on_cpu_ns = self.queued_ns = self.throttled_ns = 0
        self.wait_max_ns = self.waits_ns = self.waits = 0
        self.blame = defaultdict(int)
        self.comm = "?"


def opened(path):
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def window(connection):
    """Start and end of the recording's window on the monotonic clock, in ns."""
    (start_ns,) = connection.execute("SELECT start_mono_ns FROM meta").fetchone()
    ending = connection.execute("SELECT window_ns FROM ending").fetchone()
    if not ending:
        raise ValueError("the recording has no end")
    return start_ns, start_ns + ending[0]


class Recording:
    def __init__(self, path):
        connection = opened(path)
        (self.target,) = connection.execute("SELECT target FROM meta").fetchone()
        self.start_ns, self.end_ns = window(connection)
        pids, comms = {OTHERS: OTHERS, MOVED: MOVED, NOT_LOOKED_UP: NOT_LOOKED_UP}, {}
        for proc, pid, comm in connection.execute("SELECT proc, pid, comm FROM process ORDER BY seq"):
            pids[proc], comms[pid] = pid, comm
        self.accounts = defaultdict(Account)
        for proc, wall, on_cpu, queued, throttled, longest, waits in connection.execute(
            "SELECT proc, wall_ns, on_cpu_ns, queued_ns, throttled_ns, wait_max_ns, waits FROM process_tick"
        ):
            account = self.accounts[pids[proc]]
            account.comm = comms.get(pids[proc], "?")
            account.wall_ns += wall
            account.on_cpu_ns += on_cpu
            account.queued_ns += queued
            account.throttled_ns += throttled
            account.wait_max_ns = max(account.wait_max_ns, longest)
            for _, count, ns in json.loads(waits or "[]"):
                account.waits += count
                account.waits_ns += ns
        for victim, culprit, ns in connection.execute("SELECT victim, culprit, ns FROM blame"):
            self.accounts[pids[victim]].blame[pids[culprit]] += ns
        # {pid: (end on the monotonic clock, tid, length, {pid: ns})} of the longest wait that is told whole, without its
        # throttled time (culprit -3).
        self.whole_waits = {}
        parts, throttled = defaultdict(lambda: defaultdict(int)), defaultdict(int)
        for t_ns, victim, tid, wait_ns, culprit, ns in connection.execute(
            "SELECT t_ns, victim, tid, wait_ns, culprit, ns FROM long_wait"
        ):
            wait = pids[victim], self.start_ns + t_ns, tid, wait_ns
            if culprit == -3:
                throttled[wait] += ns
            else:
                parts[wait][pids[culprit]] += ns
        for wait, behind in parts.items():
            pid, end_ns, tid, wait_ns = wait
            wait_ns -= throttled[wait]
            if wait_ns > self.whole_waits.get(pid, (0, 0, 0))[2]:
                self.whole_waits[pid] = end_ns, tid, wait_ns, behind
        connection.close()


class Report:
    def __init__(self, binary, path):
        done = subprocess.run([binary, "report", "--json", path], capture_output=True, text=True)
        if done.returncode not in (0, 1) or not done.stdout:
            raise ValueError(f"deburr report ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        self.document = json.loads(done.stdout)

    def ledger(self):
        """{pid: {state: share of its wall time}} of the processes that have a ledger of their own."""
        found = {}
        for entry in self.document["ledger"]:
            victim = entry["victim"]
            if victim["kind"] == "process" and victim.get("processes", 1) == 1 and entry["wall_ns"]:
                found[victim["pid"]] = {part["state"]: part["ns"] / entry["wall_ns"] for part in entry["parts"]}
        return found

    def findings(self, code):
        return [finding for finding in self.document["findings"] if finding["code"] == code]

    def impossible(self):
        """What no report may contain, as sentences: shares outside 0 to 1, and percentages above 100."""
        for path, value in shares(self.document):
            if not -1e-9 <= value <= 1 + 1e-9:
                yield f"{path} is {value}"
        for finding in self.document["findings"]:
            blamed = sum(cause.get("share", 0) for cause in finding["causes"])
            if blamed > 1 + 1e-6:
                yield f"the shares of {finding['code']}'s causes sum to {blamed:.4f}"
        for finding in self.findings("SCH001"):
            for number in re.findall(r"([\d.]+) ?%", finding["title"]):
                if float(number) > 100:
                    yield f"a title says {number} %: {finding['title']!r}"


def shares(node, path="report"):
    """(path, value) of every number in the document whose name says that it is a share."""
    if isinstance(node, dict):
        for name, value in node.items():
            if isinstance(value, (int, float)) and (name == "share" or name.endswith("_share")):
                yield f"{path}.{name}", value
            yield from shares(value, f"{path}.{name}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from shares(value, f"{path}[{index}]")


def inconsistencies(binary, path):
    """What `deburr check` finds wrong with a recording; empty if nothing."""
    done = subprocess.run([binary, "check", path], capture_output=True, text=True)
    said = (done.stdout + done.stderr).replace(f"`{path}`: ", "").strip()[:500]
    return "" if done.returncode == 0 else said or f"status {done.returncode}"
