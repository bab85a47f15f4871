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

from load import NAPS_COMM, PIPE_COMM, REST_COMM, Load, workloads
from observer import Bpf, Failed, Observer, attached, map_bytes

FOREVER_S = 3600
# Runs of a program in a second from which on their mean is worth something.
OFTEN = 10_000
# What a target costs: the pipe benchmark is its target, the other one is not.
TARGET = "deburr, with a target"
# What a target costs others: neither benchmark is the target.
BESIDE = "deburr, with another target"
# Processes that nap: deburr does not write more than 3000 records a second.
NAPPING = 3
# Why a tool is not measured that is not there.
NOT_HERE = {
    "bcc offwaketime": "not installed: libbpf-tools has none, and that of bpfcc-tools is compiled when it starts, with "
    "the headers of the running kernel"
}
# Maps of the scheduler probe for what threads sleep on, and the probes of which all maps are counted with them, by the
# beginning of the names of their data.
MAPS_OF_SLEEPS = ("watched_process", "watches", "sleeps", "polled")
MAPS_OF_PROBES = ("irq_bpf.", "reclaim_.", "net_bpf.")


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
    found[BESIDE] = (
        [*found["deburr"][0][:-1], f"{scratch}/beside.deburr", "--comm", REST_COMM],
        True,
        "the same with a target that does nothing",
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
    names = ("offwaketime", "offwaketime-bpf", "bpf-offwaketime", "offwaketime-bpfcc")
    command = next(filter(shutil.which, names), None)
    found["bcc offwaketime"] = (
        [command, str(FOREVER_S * 1000)] if command else None,
        True,
        "stacks of all sleeps, and of who ends them",
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


def clear(scratch):
    """deburr never overwrites a recording, and perf's files grow."""
    for leftover in os.listdir(scratch):
        if not leftover.endswith(".bt"):
            os.unlink(f"{scratch}/{leftover}")


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
        # Nanoseconds that a switch takes longer at which a record of a sleep is written.
        self.record_ns = []

    def start(self, name):
        command, bpf, _ = self.tools[name]
        if command is None:
            raise Failed(NOT_HERE.get(name, "not installed"))
        clear(self.scratch)
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

    def per_record(self, seconds):
        """What a record of a sleep costs: processes nap, and each nap has a record if they are the target, else none."""
        command = self.tools[BESIDE][0]
        stats = self.bpf.statistics()
        try:
            for number in range(min(self.rounds, 5)):
                self.progress(f"records of sleeps, round {number + 1}")
                with Load(*[["naps", NAPS_COMM]] * NAPPING) as load:
                    pids = [process.pid for process in load.processes]
                    aside = self.switches(command, pids, seconds)
                    target = self.switches([*command[:-1], NAPS_COMM], pids, seconds)
                (runs, ns, _), (of_runs, of_ns, records) = aside, target
                self.record_ns.append((of_ns / of_runs - ns / runs) * of_runs / records)
        except (Failed, OSError, ZeroDivisionError) as error:
            self.progress(f"records of sleeps: {error}")
        finally:
            os.close(stats)

    def switches(self, command, pids, seconds):
        """Runs of the program at switches and their time, beside a command; and how often those processes slept."""
        clear(self.scratch)
        with Observer(command) as observer:
            programs = attached(observer.pid)[0]
            at_switch = [it for it in programs if self.bpf.name(it).startswith("on_switch")]

            def now():
                of_programs = [self.bpf.runs(program) for program in at_switch]
                return sum(map(slept, pids)), *(sum(numbers) for numbers in zip(*of_programs))

            # The first second takes the baseline of every process.
            time.sleep(1)
            before = now()
            time.sleep(seconds)
            sleeps, runs, ns = (after - then for after, then in zip(now(), before))
            observer.check()
        return runs, ns, sleeps


def slept(pid):
    """How often a process of one thread has gone to sleep."""
    with open(f"/proc/{pid}/status", errors="replace") as file:
        return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", file.read(), re.M).group(1))


def maps(binary, scratch):
    """Bytes of the maps for sleeps, interrupts, memory and the network, and of all maps; `None` = it does not run here."""
    bpf = Bpf()
    clear(scratch)
    command = [binary, "record", "-q", "-d", str(FOREVER_S), "-o", f"{scratch}/maps.deburr"]
    try:
        with Observer(command) as observer:
            counted, others, sizes = set(), set(), map_bytes(observer.pid)
            for program in attached(observer.pid)[0]:
                names = bpf.maps(program)
                of_sleeps = {it for it, name in names.items() if name in MAPS_OF_SLEEPS}
                counted |= of_sleeps
                is_counted = any(name.startswith(MAPS_OF_PROBES) for name in names.values())
                (counted if is_counted else others).update(names.keys() - of_sleeps)
    except (Failed, OSError):
        return None
    sleeps = sum(sizes.get(it, 0) for it in counted - others)
    return sleeps, sum(sizes.values())


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
