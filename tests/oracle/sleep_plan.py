# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Random plans for sleeper.c, drawn from a seed: processes whose threads sleep, wake each other, and use a CPU."""

import random

KINDS = ["futex", "pipe", "unix", "tcp", "udp", "event", "signal"]
# Channels with a descriptor, which can be polled.
POLLED = ["pipe", "unix", "tcp", "udp", "event"]
# Calls that poll, besides epoll_wait.
POLLS = ["poll", "ppoll", "select", "pselect"]
# Bounds of their timeouts, in us; 0 = none.
TIMEOUTS = [(0, 0), (1_000, 20_000), (50_000, 200_000)]
# Channels that fill up: who tells much waits for who takes it.
FILLED = ["pipe", "unix", "tcp"]
# What a thread does by itself: its role, the most CPU time that it takes as a share of a CPU, and how long it pauses and works.
ALONE = {
    "sleep": (0.0, (1_000, 200_000), (0, 0), "sleep"),
    "spin": (0.4, (2_000, 40_000), (500, 20_000), "spin"),
    "timer": (0.0, (1_000, 100_000), (0, 0), "sleep"),
    "child": (0.1, (2_000, 60_000), (1_000, 60_000), "sleep"),
    "join": (0.1, (2_000, 60_000), (1_000, 60_000), "sleep"),
    "fault": (0.1, (500, 20_000), (0, 0), "sleep"),
    "pread": (0.1, (500, 20_000), (0, 0), "sleep"),
    "sync": (0.1, (5_000, 50_000), (0, 0), "sleep"),
    "calls": (0.4, (2_000, 40_000), (2_000, 20_000), "spin"),
    "map": (0.3, (5_000, 30_000), (0, 0), "sleep"),
}
# Locks, for which several threads wait.
LOCKS = ["mutex", "flock", "record"]
# Most CPU time in all.
MOST_CPUS = 1.2


class Plan:
    """`channels`: as sleeper.c takes them. `processes`: for each a list of threads, as it takes them. `kind` is how runs are told
    apart in tables."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.channels = []
        self.processes = [[] for _ in range(self.random.randint(2, 4))]
        self.cpus = 0.0
        self.target = "pid" if self.random.random() < 0.2 else "comm"
        for number in range(self.random.randint(3, 8)):
            self.add_channel(number)
        for _ in range(self.random.randint(2, 6)):
            self.add_alone(self.random.choice(list(ALONE)))
        for _ in range(self.random.randint(0, 2)):
            self.add_lock(self.random.choice(LOCKS))
        if self.random.random() < 0.4:
            self.add_flood()
        # A process without a thread of its own sleeps.
        for process in self.processes:
            if not process:
                process.append(self.thread("sleep", pause=(1_000, 50_000)))

    def thread(self, role, channel=0, out=0, how="sleep", pause=(0, 0), work=(0, 0)):
        (a, b), (c, d) = pause, work
        return f"{role}:{channel}:{out}:{how}:{a}-{b}:{c}-{d}:{self.random.getrandbits(60)}"

    def anywhere(self, thread):
        self.random.choice(self.processes).append(thread)

    def add_channel(self, number):
        kind = self.random.choice(KINDS)
        much = kind in FILLED and self.random.random() < 0.3
        self.channels.append(f"{kind}/{self.random.choice([20_000, 50_000]) if much else 1}")
        least = self.random.choice([300, 1_000, 1_000, 5_000])
        # Channels after the first may be told by one that takes from another.
        if number and self.random.random() < 0.4:
            before = self.random.randrange(number)
            self.anywhere(self.thread("relay", before, number, self.random.choice(["sleep", "spin"]), work=(20, 1_000)))
        self.anywhere(self.thread("make", number, pause=(least, least * 20), work=(0, self.random.choice([0, 500])), how="spin"))
        takes = ["take", *(["epoll", "any poll"] if kind in POLLED else [])]
        # One that waits for a signal is known by its thread.
        for _ in range(1 if kind == "signal" else self.random.randint(1, 2)):
            self.add_taker(self.random.choice(takes), number, much)

    def add_taker(self, role, number, much):
        """`much`: the channel fills up."""
        pause, out = (2_000, 20_000) if much else (0, 0), 0
        if role == "any poll":
            role, pause, out = self.random.choice(POLLS), self.random.choice(TIMEOUTS), number
            before = [at for at, channel in enumerate(self.channels[:number]) if channel.partition("/")[0] in POLLED]
            # Two of them at times.
            if before and self.random.random() < 0.4:
                out = self.random.choice(before)
        self.anywhere(self.thread(role, number, out, self.random.choice(["sleep", "spin"]), pause, work=(20, 500)))

    def add_alone(self, name):
        cpus, pause, work, how = ALONE[name]
        if self.cpus + cpus <= MOST_CPUS:
            self.cpus += cpus
            self.anywhere(self.thread("sleep" if name == "spin" else name, how=how, pause=pause, work=work))

    def add_lock(self, role):
        number = self.random.randrange(4)
        chosen = self.random.choice(self.processes)
        for _ in range(self.random.randint(2, 4)):
            process = chosen if role == "mutex" else self.random.choice(self.processes)
            process.append(self.thread(role, number, how=self.random.choice(["sleep", "spin"]), pause=(500, 10_000), work=(200, 5_000)))

    def add_flood(self):
        number = len(self.channels)
        self.channels.append(f"udp/{self.random.choice([1, 1_000])}")
        self.anywhere(self.thread("flood", number, pause=(5_000, 20_000), work=(1_000, 10_000)))
        self.anywhere(self.thread("take", number))
