# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Cost of observing the scheduler, with deburr and with other tools.

Cost to the observed: CPU time (user and system, of the benchmark's own processes) per operation of a
switch-heavy benchmark pinned to one CPU. Each run with an observer follows a run without one; the figure
is the ratio of that pair, the order of the observers is drawn anew each round, and medians and quartiles
are given. CPU time, unlike wall time, hardly depends on what else the machine does.

Cost of a run of a program: the kernel's own statistics (BPF_ENABLE_STATS, which end with this process),
in separate runs, because the statistics themselves cost about as much as a small program.
"""

import os
import random
import re
import shutil
import subprocess
import time

from load import PIPE_COMM, Load, workloads
from observer import Bpf, Failed, Observer, attached

FOREVER_S = 3600
# Runs of a program in a second from which on their mean is worth something.
OFTEN = 10_000
# What a target costs: the pipe benchmark is its target, the other one is not.
TARGET = "deburr, with a target"


def bpftrace_runqlat(scratch):
    """The installed script; where its include does not compile, the same with the constant written out."""
    stock = shutil.which("runqlat.bt") or "/usr/share/bpftrace/tools/runqlat.bt"
    check = subprocess.run(["bpftrace", "-d", stock], capture_output=True, text=True)
    if check.returncode == 0:
        return stock, "as installed"
    with open(stock) as file:
        text = file.read()
    patched = f"{scratch}/runqlat.bt"
    with open(patched, "w") as file:
        file.write(text.replace("#include <linux/sched.h>", "").replace("TASK_RUNNING", "0"))
    return patched, "`TASK_RUNNING` replaced by 0: as installed it does not compile here"


def tools(binary, scratch):
    """name -> (command, whether it loads BPF programs, note)"""
    found = {
        "empty program": (
            [binary, "bench-empty", "-d", str(FOREVER_S)],
            True,
            "`tp_btf/sched_switch`, returns at once",
        ),
        "deburr": (
            [binary, "record", "-q", "-d", str(FOREVER_S), "-o", f"{scratch}/bench.deburr"],
            True,
            "`deburr record`: waits, ledger, throttling, culprits, with its reader",
        ),
    }
    found[TARGET] = (
        [*found["deburr"][0][:-1], f"{scratch}/target.deburr", "--comm", PIPE_COMM],
        True,
        "the same with `--comm`: on what and behind whom its threads sleep. `pipe` is the target, `switch` is not",
    )
    for name in ("runqlat", "runqslower"):
        command = next(filter(shutil.which, (name, f"{name}-bpf", f"bpf-{name}")), None)
        # An interval and a threshold that keep it from printing while it is measured.
        found[f"bcc {name}"] = (
            [command, str(FOREVER_S * 1000)] if command else None,
            True,
            "libbpf-tools",
        )
    command = next(filter(shutil.which, ("offcputime", "offcputime-bpf", "bpf-offcputime")), None)
    found["bcc offcputime"] = (
        [command, str(FOREVER_S * 1000)] if command else None,
        True,
        "libbpf-tools: stacks of all sleeps",
    )
    script, note = bpftrace_runqlat(scratch) if shutil.which("bpftrace") else (None, "")
    found["bpftrace runqlat"] = (["bpftrace", script] if script else None, True, note)
    perf = (
        ["perf", "sched", "record", "-o", f"{scratch}/sched.data"] if shutil.which("perf") else None
    )
    found["perf sched record"] = (perf, False, "")
    perf = ["perf", "trace", "-s", "-a", "-o", f"{scratch}/calls.txt"]
    found["perf trace -s"] = (
        perf if shutil.which("perf") else None,
        False,
        "all system calls and how long they took",
    )
    perf = ["perf", "lock", "contention", "-a", "-b"]
    found["perf lock contention -b"] = (
        perf if shutil.which("perf") else None,
        True,
        "locks of the kernel only",
    )
    perf = [
        "perf",
        "record",
        "--switch-events",
        "-e",
        "dummy",
        "-a",
        "-o",
        f"{scratch}/switch.data",
    ]
    found["perf record --switch-events"] = (
        perf if shutil.which("perf") else None,
        False,
        "no BPF, no tracepoint",
    )
    return found


class Comparison:
    """Paired runs of every tool that works here."""

    def __init__(self, binary, scratch, rounds, progress):
        self.tools = tools(binary, scratch)
        self.rounds, self.scratch, self.progress = rounds, scratch, progress
        self.errors, self.bpf = {}, Bpf()
        self.slowdown, self.base = {}, {}
        self.programs = {}
        # Nanoseconds of a run of each program that runs often, by tool, workload and name.
        self.by_name = {}

    def start(self, name):
        command, bpf, _ = self.tools[name]
        if command is None:
            raise Failed("not installed")
        # deburr never overwrites a recording, and perf's files grow.
        for leftover in os.listdir(self.scratch):
            if not leftover.endswith(".bt"):
                os.unlink(f"{self.scratch}/{leftover}")
        return Observer(command, bpf)

    def attempt(self, name, work):
        """Calls `work` while a tool runs; a tool that fails is left out from then on."""
        try:
            with self.start(name) as observer:
                work(observer)
                observer.check()
        except (Failed, OSError) as error:
            self.errors[name] = str(error)
            self.progress(f"{name}: {error}")

    def working(self):
        return [name for name in self.tools if name not in self.errors]

    def end_to_end(self, works):
        for number in range(self.rounds):
            self.progress(f"round {number + 1} of {self.rounds}")
            for name in random.sample(self.working(), len(self.working())):
                before = {work.name: work.ns_per_operation() for work in works}
                during = {}

                def measure(_, during=during):
                    during.update({work.name: work.ns_per_operation() for work in works})

                self.attempt(name, measure)
                for work, ns in during.items():
                    self.base.setdefault(work, []).append(before[work])
                    self.slowdown.setdefault((name, work), []).append(100 * (ns / before[work] - 1))

    def per_run(self, works):
        """Nanoseconds of each program's run under workloads, by the kernel's statistics. The first is that of all tools."""
        stats = self.bpf.statistics()
        try:
            for number in range(min(self.rounds, 5)):
                self.progress(f"program statistics, round {number + 1}")
                for name in self.working():
                    if self.tools[name][1]:
                        self.attempt(
                            name, lambda observer, name=name: self.count_all(observer, name, works)
                        )
        finally:
            os.close(stats)

    def count_all(self, observer, name, works):
        for work in works if name in ("deburr", TARGET) else works[:1]:
            self.count_runs(observer, (name, work.name), work)

    def count_runs(self, observer, key, work):
        programs = attached(observer.pid)[0]
        before = {program: self.bpf.runs(program) for program in programs}
        work.run()
        spent = runs = 0
        busiest = 0
        for program, (count, ns) in before.items():
            now_count, now_ns = self.bpf.runs(program)
            if now_count - count >= OFTEN:
                each = (now_ns - ns) / (now_count - count)
                self.by_name.setdefault((*key, self.bpf.name(program)), []).append(each)
            runs += now_count - count
            spent += now_ns - ns
            busiest = max(busiest, now_count - count)
        if busiest:
            # The program that runs at every switch runs most often; the time of all programs is divided by its runs.
            self.programs.setdefault(key, []).append((spent / busiest, spent / runs))


def footprint(binary, scratch, seconds, progress):
    """deburr's own CPU, memory and recording size under each load."""
    spinners = ["stress-ng", "--quiet", "--cpu", str(8 * os.cpu_count())]
    pipe = ["perf", "bench", "sched", "pipe", "-l", str(10**9)]
    loads = {
        "at rest (what else the host does)": [],
        "spinners (8 a CPU) and a pipe benchmark": [spinners, pipe],
        "1 000 threads, 2 000 wake-ups/s": [["threads", "1000", "2000"]],
        "10 000 threads, 2 000 wake-ups/s": [["threads", "10000", "2000"]],
        "5 000 thread creations/s": [["creations", "5000"]],
    }
    rows = {}
    for name, commands in loads.items():
        progress(f"deburr under: {name}")
        file = f"{scratch}/footprint.deburr"
        try:
            with Load(*commands):
                created = forks()
                with Observer(
                    [binary, "record", "-q", "-d", str(FOREVER_S), "-o", file]
                ) as observer:
                    # The first second takes the baseline of every process; it is start-up, not running cost.
                    time.sleep(1)
                    created, before, start = forks(), observer.cpu_ns(), time.monotonic()
                    time.sleep(seconds)
                    wall = time.monotonic() - start
                    row = {
                        "cpu_percent": 100 * (observer.cpu_ns() - before) / 1e9 / wall,
                        "rss_bytes": observer.memory_bytes(),
                        "attach_s": observer.attach_s,
                        "creations_per_s": (forks() - created) / wall,
                    }
                    observer.check()
                lived = time.monotonic() - observer.started
                row["bytes_per_minute"] = recorded_bytes(file) / lived * 60
                rows[name] = row
        except (Failed, OSError) as error:
            rows[name] = {"error": str(error)}
        for suffix in ("", "-wal", "-shm"):
            if os.path.exists(file + suffix):
                os.unlink(file + suffix)
    return rows


def recorded_bytes(file):
    return sum(os.path.getsize(file + s) for s in ("", "-wal") if os.path.exists(file + s))


def forks():
    with open("/proc/stat") as file:
        return int(re.search(r"^processes (\d+)", file.read(), re.M).group(1))
