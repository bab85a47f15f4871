# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Cost of observing block IO, with deburr and with other tools.

Cost to the observed: the IOs per second of fio (4 kB at random, 16 in flight, O_DIRECT, one CPU) on a loop device over
memory, and the CPU time per IO of fio, the kernel's threads and the tool. Each run with an observer has one without
beside it, before or after, and the order of the observers is drawn anew each round.

Cost of a program: the kernel's statistics, in separate runs, with those of empty programs on the same hooks
subtracted.

Sampling: fio at given rates; how many requests deburr followed, what that cost, and which share of the IOs it reported.
"""

import os
import random
import shutil
import sqlite3
import statistics
import time

from disk import Disk, Mount, own_mounts
from disk_load import Files, Fio
from observer import Bpf, Failed, Observer, attached

FOREVER_S = 3600
DISK_MB, FILE_MB = 384, 64
# Rates of fio, one after the other, in IOs per second; None = as many as it can.
RATES = (1_000, 10_000, 50_000, 100_000, 200_000, None)
HERE = os.path.dirname(os.path.abspath(__file__))


def tools(binary, scratch):
    """name -> (command or None, note)"""
    record = [binary, "record", "-q", "-d", str(FOREVER_S), "-o", f"{scratch}/bench.deburr"]
    empty = [binary, "bench-empty", "--on", "block", "-d", str(FOREVER_S)]
    bpftrace, biolatency = shutil.which("bpftrace"), shutil.which("biolatency")
    biosnoop = shutil.which("biosnoop")
    return {
        "empty programs": (empty, "on `block_bio_queue`, `block_io_start`, `block_rq_issue`, `block_rq_complete`"),
        "deburr, every request": (record + ["--io-one-in", "1"], "all probes, with its reader"),
        "deburr": (record, "the same; follows as many requests as it pays for"),
        "biolatency-like": (
            bpftrace and [bpftrace, f"{HERE}/biolatency.bt"],
            "bpftrace on tracepoints (`bench/biolatency.bt`)",
        ),
        "biosnoop-like": (
            bpftrace and [bpftrace, f"{HERE}/biosnoop.bt"],
            "bpftrace on tracepoints (`bench/biosnoop.bt`)",
        ),
        "bcc biolatency": (biolatency and [biolatency, str(FOREVER_S)], "libbpf-tools"),
        "bcc biosnoop": (biosnoop and [biosnoop], "libbpf-tools"),
    }


class Spent:
    """Runs and time of an observer's programs for block IO, by name, while a load ran."""

    # The scheduler probe's programs are measured elsewhere.
    OTHERS = ("on_switch", "on_wakeup", "on_task")

    def __init__(self, bpf, observer):
        self.bpf = bpf
        self.programs = {}
        for program in attached(observer.pid)[0]:
            name = bpf.name(program)
            if not name.startswith(self.OTHERS):
                self.programs[program] = (name, bpf.runs(program))

    def since(self):
        """name -> (runs, nanoseconds)"""
        spent = {}
        for program, (name, (runs, ns)) in self.programs.items():
            now_runs, now_ns = self.bpf.runs(program)
            before = spent.get(name, (0, 0))
            spent[name] = before[0] + now_runs - runs, before[1] + now_ns - ns
        return spent


def of_hook(spent, hook):
    """Sums over programs of one hook, which have names like `on_issue_1`."""
    runs = [value for name, value in spent.items() if name.startswith(f"on_{hook}")]
    return sum(r for r, _ in runs), sum(ns for _, ns in runs)


class IoComparison:
    """All measurements. A tool that fails is left out from then on, with its error in `errors`."""

    def __init__(self, binary, scratch, rounds, progress):
        self.binary, self.scratch, self.rounds, self.progress = binary, scratch, rounds, progress
        self.tools = tools(binary, scratch)
        self.errors, self.bpf = {}, Bpf()
        # (tool, operation) -> [(IOPS lost in percent, CPU time added in percent)]
        self.cost = {}
        # operation -> [(IOPS, ns)]
        self.base = {}
        # load -> {tool: [{program: (runs, ns)}]}, load -> [(IOs, bytes)]
        self.programs, self.carried = {}, {}
        # names of the loads whose requests have one IO each
        self.single = []
        # [{...}], one for each rate
        self.sampling = []

    def start(self, name):
        command, _ = self.tools[name]
        if command is None:
            raise Failed("not installed")
        self.remove_recording()
        return Observer(command)

    def remove_recording(self):
        for suffix in ("", "-wal", "-shm"):
            if os.path.exists(f"{self.scratch}/bench.deburr{suffix}"):
                os.unlink(f"{self.scratch}/bench.deburr{suffix}")

    def working(self):
        return [name for name in self.tools if name not in self.errors]

    def attempt(self, name, work):
        try:
            with self.start(name) as observer:
                result = work(observer)
                observer.check()
                return result
        except (Failed, OSError) as error:
            self.errors[name] = str(error)
            self.progress(f"{name}: {error}")
            return None

    def measure(self, seconds):
        own_mounts()
        with Disk(DISK_MB) as disk:
            loads = [Fio(rw, disk.path, seconds, DISK_MB) for rw in ("randread", "randwrite")]
            self.end_to_end(loads)
            self.per_run(disk, loads)
            self.at_rates(disk)

    def end_to_end(self, loads):
        for number in range(self.rounds):
            self.progress(f"block IO, round {number + 1} of {self.rounds}")
            for name in random.sample(self.working(), len(self.working())):
                first = random.random() < 0.5
                base = {load.name: load.run() for load in loads} if first else {}
                during = self.attempt(name, lambda observer: self.observed(observer, loads))
                if during is None:
                    continue
                base = base or {load.name: load.run() for load in loads}
                for load, (iops, ns) in during.items():
                    alone_iops, alone_ns = base[load]
                    self.base.setdefault(load, []).append(base[load])
                    loss = 100 * (1 - iops / alone_iops), 100 * (ns / alone_ns - 1)
                    self.cost.setdefault((name, load), []).append(loss)

    def observed(self, observer, loads):
        during = {}
        for load in loads:
            before = observer.cpu_ns()
            iops, ns = load.run()
            own = observer.cpu_ns() - before
            during[load.name] = iops, ns + own / (iops * load.seconds)
        return during

    def per_run(self, disk, raw):
        """Runs each load in turn, with the empty programs and with deburr's, and counts the runs of the programs."""
        with Mount(disk, f"{self.scratch}/mount") as point:
            with open(f"{point}/large", "wb") as file:
                for _ in range(FILE_MB):
                    file.write(bytes(1 << 20))
            os.sync()
            overwrite = Fio("randwrite", f"{point}/large", raw[0].seconds, FILE_MB)
            overwrite.name = "overwrites of a file, O_DIRECT"
            old = Files("writeback, old files", point, new=False)
            new = Files("writeback, new files", point, new=True)
            self.count_all(disk, [overwrite, old, new])
        self.count_all(disk, raw)
        self.single = [load.name for load in (*raw, overwrite)]

    def count_all(self, disk, loads):
        names = ["empty programs", "deburr, every request"]
        stats = self.bpf.statistics()
        try:
            for number in range(min(self.rounds, 3)):
                self.progress(f"programs of block IO, round {number + 1}")
                for name in random.sample(names, len(names)):
                    if name not in self.errors:
                        self.attempt(name, lambda o, name=name: self.count(o, name, disk, loads))
        finally:
            os.close(stats)

    def count(self, observer, name, disk, loads):
        for load in loads:
            spent, before = Spent(self.bpf, observer), disk.done()
            load.run()
            ios, size = (now - then for now, then in zip(disk.done(), before))
            tool = self.programs.setdefault(load.name, {}).setdefault(name, [])
            tool.append(spent.since())
            self.carried.setdefault(load.name, []).append((ios, size))

    def at_rates(self, disk):
        empty_ns = self.empty_run_ns()
        rest = self.own_cpu_at_rest()
        if rest is None:
            return
        for rate in RATES:
            self.progress(f"deburr at {rate or 'as many as it gets'} IOs a second")
            load = Fio("randwrite", disk.path, 10, DISK_MB, rate)
            row = self.attempt("deburr", lambda o, load=load: self.sampled(o, load, empty_ns))
            if row:
                told, self_chosen = self.recorded(disk)
                row.update(asked=rate, rest_percent=rest, told=told, one_in=self_chosen)
                self.sampling.append(row)

    def empty_run_ns(self):
        """Time of a run of an empty program by the kernel's statistics, in ns."""
        spent = [
            value
            for tools in self.programs.values()
            for spent in tools.get("empty programs", [])
            for value in spent.values()
        ]
        runs = sum(runs for runs, _ in spent)
        return sum(ns for _, ns in spent) / runs if runs else 0

    def own_cpu_at_rest(self):
        def watch(observer):
            time.sleep(2)
            before = observer.cpu_ns()
            start = time.monotonic_ns()
            time.sleep(10)
            return 100 * (observer.cpu_ns() - before) / (time.monotonic_ns() - start)

        return self.attempt("deburr", watch)

    def sampled(self, observer, load, empty_ns):
        """Cost as percent of one CPU over a whole load, in which sampling begins, too."""
        stats = self.bpf.statistics()
        try:
            time.sleep(1.5)
            spent, before, start = (
                Spent(self.bpf, observer),
                observer.cpu_ns(),
                time.monotonic_ns(),
            )
            iops, _ = load.run()
            wall, own = time.monotonic_ns() - start, observer.cpu_ns() - before
            spent = spent.since()
            time.sleep(0.5)
        finally:
            os.close(stats)
        ran = sum(runs for runs, _ in spent.values())
        net = sum(ns for _, ns in spent.values()) - ran * empty_ns
        return {
            "iops": iops,
            "bpf_percent": 100 * net / wall,
            "own_percent": 100 * own / wall,
            "empty_percent": 100 * ran * empty_ns / wall,
            "net_ns": net / max(of_hook(spent, "complete")[0], 1),
        }

    def recorded(self, disk):
        """IOs and bytes that the probe reported, as shares of the kernel's counters in the same recording; and the
        median of how many requests one that was followed stands for."""
        with open(f"/sys/block/{disk.name}/dev") as file:
            device = file.read().strip()
        base = sqlite3.connect(f"{self.scratch}/bench.deburr")
        try:
            told = base.execute(
                "SELECT sum(ios), sum(bytes) FROM io_tick WHERE device = ?", (device,)
            )
            told = told.fetchone()
            ends = base.execute(
                "SELECT reads + writes, read_bytes + write_bytes FROM disk_reading"
                " WHERE device = ? ORDER BY t_ns",
                (device,),
            ).fetchall()
            rates = base.execute(
                "SELECT sampled_one_in FROM device_tick WHERE device = ?", (device,)
            ).fetchall()
        finally:
            base.close()
        done = [last - first for first, last in zip(ends[0], ends[-1])] if ends else [0, 0]
        shares = [(t or 0) / d if d else None for t, d in zip(told, done)]
        one_in = statistics.median(r for (r,) in rates) if rates else None
        return shares, one_in
