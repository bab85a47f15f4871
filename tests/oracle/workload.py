# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Random workloads for a few CPUs, drawn from a seed (`random_workload`), and fixed ones (`FIXED`).

A real-time thread that computes for long is the only one of its kind on its CPU, and takes at most 0.7 s of every 0.75 s:
perf, deburr and everything else must make progress.
"""

import dataclasses
import os
import random

MS, S = 1_000, 1_000_000


@dataclasses.dataclass
class Thread:
    """As worker.c takes it; lengths in us. `cpus` are indexes into the CPUs of `stage()`, 0 and 1; none = both."""

    burst: tuple
    sleep: tuple
    policy: str = "other"
    value: int = 0
    period_us: int = 0
    cpus: tuple = ()
    hop_us: int = 0
    child_us: int = 0


@dataclasses.dataclass
class Group:
    """A cgroup; `parent` is the index of the one above it, None = the root."""

    shares: int = 1024
    quota_us: int = 0
    period_us: int = 0
    parent: int = None


@dataclasses.dataclass
class Process:
    threads: list
    group: int = None
    cpuset: tuple = ()


@dataclasses.dataclass
class Workload:
    """`target`: what deburr looks at: "pid" (the first process), "comm", "cgroup" or "host"."""

    kind: str
    processes: list
    groups: list = dataclasses.field(default_factory=list)
    target: str = "pid"

    def under_quota(self, index):
        """Whether this process can be throttled, which the trace does not show."""
        group = self.processes[index].group
        while group is not None:
            if self.groups[group].quota_us:
                return True
            group = self.groups[group].parent
        return any(thread.policy == "deadline" for thread in self.processes[index].threads)


def stage():
    """The CPUs that work is confined to, so that it competes on any machine: the last two."""
    return sorted(os.sched_getaffinity(0))[-2:]


VICTIM = Thread((1 * MS, 1 * MS), (4 * MS, 4 * MS))
SPINNER = Thread((500 * MS, 500 * MS), (0, 0))
RT_HOG = Thread((700 * MS, 700 * MS), (50 * MS, 50 * MS), "fifo", 50, cpus=(0,))


def bound(thread, *cpus):
    return dataclasses.replace(thread, cpus=cpus)


# Cases in which waiting was once reported as sleep: a wait that begins with a wake-up and outlasts a reading.
FIXED = {
    "shares 2 : 1024, two spinners": Workload(
        "fixed", [Process([VICTIM], 0)] + [Process([SPINNER], 1)] * 2, [Group(2), Group(1024)]
    ),
    "shares 2 : 1024, four spinners": Workload(
        "fixed", [Process([VICTIM], 0)] + [Process([SPINNER], 1)] * 4, [Group(2), Group(1024)]
    ),
    "FIFO, 0.7 of every 0.75 s": Workload("fixed", [Process([bound(VICTIM, 0)]), Process([RT_HOG])]),
    "shares 20 : 1024, one spinner, one CPU": Workload(
        "fixed", [Process([bound(VICTIM, 0)], 0), Process([bound(SPINNER, 0)], 1)], [Group(20), Group(1024)]
    ),
}


class Dice(random.Random):
    def log(self, low, high):
        """Log-uniform: as likely from 1 to 10 as from 10 to 100."""
        return int(round(low * (high / low) ** self.random()))

    def bounds(self, low, high):
        first, second = self.log(low, high), self.log(low, high)
        return min(first, second), max(first, second)

    def thread(self, **more):
        """Bursts and sleeps of 50 us to 500 ms; a quarter of the threads never sleep."""
        burst = self.bounds(50, 500 * MS)
        sleep = self.choice([(0, 0), self.bounds(50, 500 * MS), self.bounds(1 * MS, 20 * MS), self.bounds(50, 2 * MS)])
        return Thread(burst, sleep, **more)

    def cpus(self):
        return self.choice([(), (), (0,), (1,)])

    def groups(self, count, low=2, high=10_000):
        groups = [Group(self.log(low, high)) for _ in range(count)]
        for index in range(1, count):
            if self.random() < 0.3:
                groups[index].parent = self.randrange(index)
        return groups


def weights(dice):
    groups = dice.groups(dice.randint(2, 5))
    return [Process([dice.thread()], dice.randrange(len(groups))) for _ in range(dice.randint(3, 7))], groups


def starved(dice):
    """A tiny weight against large ones: waits that last for seconds."""
    groups = [Group(dice.log(2, 20)), Group(dice.log(1024, 10_000))]
    victims = [Process([dice.thread(), VICTIM], 0)] + [Process([dice.thread()], 0) for _ in range(dice.randint(0, 1))]
    return victims + [Process([SPINNER], 1) for _ in range(dice.randint(2, 5))], groups


def nice(dice):
    return [Process([dice.thread(value=dice.randint(-15, 19))]) for _ in range(dice.randint(3, 7))], []


def real_time(dice):
    """A real-time thread that keeps a CPU busy, small real-time threads, and ordinary threads."""
    hog = dataclasses.replace(RT_HOG, policy=dice.choice(["fifo", "rr"]), cpus=(dice.randint(0, 1),))
    if dice.random() < 0.4:
        hog.burst, hog.sleep = dice.choice([((20 * MS,) * 2, (10 * MS,) * 2), ((300 * MS,) * 2, (100 * MS,) * 2)])
    small = [
        Process([Thread(dice.bounds(50, 2 * MS), dice.bounds(20 * MS, 200 * MS), dice.choice(["fifo", "rr"]),
                        dice.randint(1, 90), cpus=dice.cpus())])
        for _ in range(dice.randint(0, 2))
    ]  # fmt: skip
    victims = [Process([dice.thread(cpus=dice.cpus())]) for _ in range(dice.randint(1, 4))]
    return [Process([bound(VICTIM, *hog.cpus)]), Process([hog])] + small + victims, []


def policies(dice):
    processes = []
    for _ in range(dice.randint(3, 6)):
        policy = dice.choice(["batch", "idle", "other", "deadline"])
        if policy == "deadline":
            period = dice.log(4 * MS, 100 * MS)
            runtime = int(period * dice.uniform(0.05, 0.15))
            # Sometimes more than its runtime: it is then throttled until its next period.
            burst = int(runtime * dice.uniform(0.5, 1.5))
            processes.append(
                Process([Thread((burst // 2, burst), dice.bounds(period, 3 * period), policy, runtime, period)])
            )
        else:
            processes.append(Process([dice.thread(policy=policy, value=0 if policy == "idle" else dice.randint(0, 10))]))
    return [Process([dice.thread()])] + processes, []


def placement(dice):
    """Affinities and cpusets."""
    processes = []
    for _ in range(dice.randint(3, 7)):
        inside = dice.random() < 0.5
        processes.append(
            Process([dice.thread(cpus=() if inside else dice.cpus())], cpuset=(dice.randint(0, 1),) if inside else ())
        )
    return processes, []


def quotas(dice):
    """Quotas of 10 to 90 % of a CPU, with periods of 1 to 100 ms; no less than the kernel's least quota of 1 ms."""
    groups = dice.groups(dice.randint(1, 3), 512, 2048)
    for group in groups:
        group.period_us = dice.log(1 * MS, 100 * MS)
        group.quota_us = max(int(group.period_us * dice.uniform(0.1, 0.9)), 1 * MS)
        group.parent = None
    processes = [
        Process([dice.thread() for _ in range(dice.randint(1, 3))], dice.randrange(len(groups)))
        for _ in range(dice.randint(2, 4))
    ]
    return processes + [Process([dice.thread()]) for _ in range(dice.randint(0, 2))], groups


def threads(dice):
    def crowd():
        return [Thread(dice.bounds(50, 5 * MS), dice.bounds(50, 50 * MS)) for _ in range(dice.randint(4, 24))]

    return [Process(crowd()) for _ in range(dice.randint(1, 3))] + [Process([dice.thread()])], []


def forks(dice):
    """Forks 30 to 300 children per second, of 0.2 to 5 ms each, beside other processes."""
    storms = []
    for _ in range(dice.randint(1, 2)):
        pause = dice.log(3 * MS, 30 * MS)
        storms.append(Process([Thread((1, 1), (pause, pause), child_us=dice.log(200, 5 * MS))]))
    return [Process([dice.thread()])] + storms + [Process([dice.thread()]) for _ in range(dice.randint(0, 3))], []


def hops(dice):
    """Threads that bind themselves to each of the two CPUs in turn."""
    hopping = [
        Process([dice.thread(cpus=(0, 1), hop_us=dice.log(1 * MS, 100 * MS))]) for _ in range(dice.randint(1, 4))
    ]
    return hopping + [Process([dice.thread(cpus=dice.cpus())]) for _ in range(dice.randint(1, 3))], []


def mixed(dice):
    """Some of everything."""
    groups, processes = [], []
    for make in dice.sample([weights, nice, real_time, policies, placement, quotas, threads, hops], 3):
        others, their_groups = make(dice)
        for process in dice.sample(others, min(2, len(others))):
            if process.group is not None:
                process.group += len(groups)
            processes.append(process)
        for group in their_groups:
            if group.parent is not None:
                group.parent += len(groups)
        groups += their_groups
    # Two such real-time threads on one CPU would leave nothing to others.
    hogs = [process for process in processes if process.threads[0].burst[1] >= 20 * MS]
    hogs = [process for process in hogs if process.threads[0].policy in ("fifo", "rr")]
    return [process for process in processes if process not in hogs[1:]], groups


KINDS = {
    "weights": weights,
    "starved": starved,
    "nice": nice,
    "real-time": real_time,
    "policies": policies,
    "placement": placement,
    "quotas": quotas,
    "threads": threads,
    "forks": forks,
    "migrations": hops,
    "mixed": mixed,
}


def random_workload(seed):
    """The workload of a seed; consecutive seeds go through all kinds."""
    dice = Dice(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    processes, groups = KINDS[kind](dice)
    target = dice.choice(["pid", "pid", "pid", "comm", "cgroup", "host"])
    if target == "cgroup" and processes[0].group is None:
        target = "pid"
    return Workload(kind, processes, groups, target)
