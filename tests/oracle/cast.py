# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs a workload on this machine, and removes all that it made."""

import os
import shutil
import subprocess
import time

from perf import Missing
from workload import stage

HERE = os.path.dirname(os.path.abspath(__file__))
PREFIX = "deburr-oracle-"
CPU_TREES = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
CPUSET_TREE = "/sys/fs/cgroup/cpuset"
# Workers end by themselves after this time if all else fails.
LIMIT_S = 120


def compiled(directory, name="worker"):
    """Compiles worker.c, or another, in that directory; returns the path of the program."""
    compiler = next((name for name in ("cc", "clang", "gcc") if shutil.which(name)), None)
    if not compiler:
        raise Missing("no C compiler")
    program = os.path.join(directory, name)
    done = subprocess.run(
        [compiler, "-O2", "-o", program, os.path.join(HERE, f"{name}.c"), "-lpthread", "-lm"],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Missing(f"{name}.c does not compile: {done.stderr.strip()[-300:]}")
    return program


def cpu_tree():
    """Path of the cgroup v1 tree with the cpu controller; None = there is none."""
    return next((tree for tree in CPU_TREES if os.path.exists(f"{tree}/cpu.shares")), None)


def write(path, text):
    with open(path, "w") as file:
        file.write(str(text))


def remove(path):
    """Removes a cgroup, whose processes may take a moment to be gone: tries for 2 s."""
    for _ in range(100):
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
    raise OSError(f"{path} cannot be removed")


def remove_left():
    """Removes the cgroups of oracles that were killed."""
    for tree in filter(None, [cpu_tree(), CPUSET_TREE]):
        for folder, _, _ in sorted(os.walk(tree), key=lambda entry: -len(entry[0])):
            name = next((part for part in folder.split("/") if part.startswith(PREFIX)), None)
            if name and not os.path.exists(f"/proc/{name[len(PREFIX) :].split('-')[0]}"):
                remove(folder)


class Cast:
    """A workload's processes and cgroups: `with Cast(...) as cast`."""

    def __init__(self, workload, program, seed):
        self.workload, self.program, self.seed = workload, program, seed
        self.made, self.processes = [], []
        self.groups, self.cpusets = [], {}

    def __enter__(self):
        try:
            self.make_groups()
            for index, process in enumerate(self.workload.processes):
                self.start(index, process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        # Children of a fork storm end with their parent, but not at once: `remove` waits for them.
        for path in reversed(self.made):
            remove(path)

    def make(self, path):
        os.mkdir(path)
        self.made.append(path)
        return path

    def make_groups(self):
        tree = cpu_tree()
        if self.workload.groups and not tree:
            raise Missing("no cgroup v1 with the cpu controller")
        for index, group in enumerate(self.workload.groups):
            above = tree if group.parent is None else self.groups[group.parent]
            path = self.make(f"{above}/{PREFIX}{os.getpid()}-{index}")
            self.groups.append(path)
            write(f"{path}/cpu.shares", group.shares)
            if group.quota_us:
                write(f"{path}/cpu.cfs_period_us", group.period_us)
                write(f"{path}/cpu.cfs_quota_us", group.quota_us)
        for cpus in {process.cpuset for process in self.workload.processes if process.cpuset}:
            if not os.path.exists(f"{CPUSET_TREE}/cpuset.cpus"):
                raise Missing("no cgroup v1 with the cpuset controller")
            path = self.cpusets[cpus] = self.make(f"{CPUSET_TREE}/{PREFIX}{os.getpid()}-{len(self.cpusets)}")
            write(f"{path}/cpuset.cpus", ",".join(str(stage()[cpu % len(stage())]) for cpu in cpus))
            with open(f"{CPUSET_TREE}/cpuset.mems") as file:
                write(f"{path}/cpuset.mems", file.read().strip())

    def start(self, index, process):
        joins = [f"{self.groups[process.group]}/cgroup.procs"] if process.group is not None else []
        joins += [f"{self.cpusets[process.cpuset]}/cgroup.procs"] if process.cpuset else []
        threads = [self.argument(thread, process, f"{self.seed}{index:02}{at:02}") for at, thread in enumerate(process.threads)]
        command = [self.program, self.comm(index), str(LIMIT_S), ",".join(joins) or "-", *threads]
        self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE))

    def argument(self, thread, process, seed):
        cpus = [stage()[cpu % len(stage())] for cpu in thread.cpus or (0, 1)]
        mask = sum(1 << cpu for cpu in set(cpus))
        # No affinity for threads in a cpuset, for deadline threads (which are only admitted without one), and where the
        # whole machine is the stage.
        whole = len(stage()) == os.cpu_count() and not thread.cpus
        if process.cpuset or thread.policy == "deadline" or whole:
            mask = 0
        hop_us = thread.hop_us if bin(mask).count("1") > 1 else 0
        (low, high), (least, most) = thread.burst, thread.sleep
        return (
            f"{thread.policy}:{thread.value}:{thread.period_us}:{mask:x}:{low}-{high}:{least}-{most}:"
            f"{hop_us}:{thread.child_us}:{seed}"
        )

    def comm(self, index):
        return f"orc{index}"

    def pid(self, index):
        return self.processes[index].pid

    def ended(self):
        """What workers that ended too early said, as sentences."""
        for index, process in enumerate(self.processes):
            if process.poll() is not None:
                said = process.stderr.read().decode(errors="replace").strip()
                yield f"{self.comm(index)} ended with {process.returncode}: {said}"
