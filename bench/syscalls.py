# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Cost of counting system calls: for the command that is counted, for other processes, and beside strace."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import time

from document import budget_lines, circumstances, quartiles
from load import cpu_seconds

TITLE = "Counting system calls"

# Nothing but system calls: two for each byte, on devices that do nothing.
CALLS = 300_000
LOOP = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={CALLS}"]
# Calls that do work, on a tree that every Debian has.
TREE = ["find", "/usr/share", "/usr/lib", "-xdev", "-size", "+1"]
# strace takes so long that fewer calls must do.
TRACED_CALLS = 15_000


class Calls:
    """CPU seconds of each load, bare, counted, and beside another process that is counted; under strace, the wall time
    that it adds to a call, in ns."""

    def __init__(self, binary, scratch, rounds, progress):
        self.binary, self.scratch, self.rounds = binary, scratch, rounds
        self.progress = progress
        self.seconds = {}

    def note(self, load, way, seconds):
        self.seconds.setdefault((load, way), []).append(seconds)

    def counted(self, command):
        path = os.path.join(self.scratch, "calls.json")
        subprocess.run(
            [self.binary, "syscalls", "-q", "--force", "-o", path, "--", *command],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with open(path) as file:
            run = json.load(file)["runs"][0]
        return (run["user_ns"] + run["system_ns"]) / 1e9

    def beside(self, command):
        idle = subprocess.Popen(["sleep", "600"])
        observer = subprocess.Popen(
            [self.binary, "syscalls", "-q", "-p", str(idle.pid), "-d", "600"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(1)
            return cpu_seconds(command)
        finally:
            observer.send_signal(signal.SIGTERM)
            observer.wait()
            idle.kill()
            idle.wait()

    def measure(self):
        for number in range(self.rounds):
            self.progress(f"system calls: round {number + 1} of {self.rounds}")
            for load, command in (("loop", LOOP), ("find", TREE)):
                self.note(load, "bare", cpu_seconds(command))
                self.note(load, "counted", self.counted(command))
                self.note(load, "beside", self.beside(command))
        if shutil.which("strace"):
            few = [*LOOP[:-1], f"count={TRACED_CALLS}"]
            trace = ["strace", "-c", "-f", "-o", "/dev/null"]
            bare = [wall(few) for _ in range(3)]
            traced = [wall(trace + few) for _ in range(3)]
            # The difference leaves out the start-up of the command.
            calls = TRACED_CALLS * 2
            self.seconds["loop", "strace"] = [(t - min(bare)) / calls * 1e9 for t in traced]

    def factor(self, load, way):
        """Ratios to the bare run of the same round."""
        pairs = zip(self.seconds[load, way], self.seconds[load, "bare"])
        return [with_it / bare for with_it, bare in pairs]

    def ns_per_call(self, way):
        pairs = zip(self.seconds["loop", way], self.seconds["loop", "bare"])
        return [(with_it - bare) / (2 * CALLS) * 1e9 for with_it, bare in pairs]


def wall(command):
    begun = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.monotonic() - begun


def shown(values, unit, digits):
    low, middle, high = quartiles(values)
    return f"{middle:.{digits}f}{unit} [{low:.{digits}f} {high:.{digits}f}]"


def part(calls, arguments):
    loop = statistics.median(calls.factor("loop", "counted"))
    bare_ns = [seconds / (2 * CALLS) * 1e9 for seconds in calls.seconds["loop", "bare"]]
    lines = circumstances(arguments, f"{2 * CALLS} calls in the loop", ["strace"])
    lines += budget_lines([("a loop of system calls, CPU time", "3 times", f"{loop:.2f} times", loop <= 3)])
    lines += [
        "",
        "### Cost to the observed",
        "",
        "CPU time beside the run without an observer just before it: median [quartiles]. The loop is `dd` with a",
        "block size of one byte: nothing but system calls, each about a file. `find` looks at every file below two",
        "directories.",
        "",
        "| who | loop | for each call | find |",
        "|---|---|---|---|",
        f"| not observed | 1 | {shown(bare_ns, ' ns in all', 0)} | 1 |",
    ]
    for way, name in (
        ("counted", "counted by `deburr syscalls -- CMD`"),
        ("beside", "another process, while one is counted"),
    ):
        lines.append(
            f"| {name} | {shown(calls.factor('loop', way), ' times', 2)} "
            f"| +{shown(calls.ns_per_call(way), ' ns', 0)} "
            f"| {shown(calls.factor('find', way), ' times', 2)} |"
        )
    traced = calls.seconds.get(("loop", "strace"))
    if traced:
        times = statistics.median(traced) / statistics.median(bare_ns) + 1
        lines.append(
            f"| `strace -c -f` (wall time, {TRACED_CALLS * 2} calls) | {times:.0f} times "
            f"| +{shown(traced, ' ns', 0)} | |"
        )
    lines += ["", "Nothing is attached before and afterwards."]
    return lines
