# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the tools observe: the benchmarks whose slowdown counts, and loads of the host."""

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time

from observer import Failed


def cpu_seconds(command):
    """CPU time of a command and of all its descendants that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise Failed(process.stdout.decode(errors="replace").strip()[-160:])
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


class Workload:
    """A switch-heavy benchmark, sized to about a second of CPU time."""

    def __init__(self, name, command, operations):
        self.name, self.command = name, command
        self.operations = operations
        self.operations = max(1, round(operations / self.run()))

    def run(self):
        """CPU seconds of one run."""
        pinned = ["taskset", "-c", str(PINNED_CPU), "nice", "-n", "-20"]
        return cpu_seconds(pinned + self.command(self.operations))

    def ns_per_operation(self):
        return self.run() / self.operations * 1e9


PINNED_CPU = max(os.sched_getaffinity(0))


def workloads():
    yield Workload("pipe", lambda n: ["perf", "bench", "sched", "pipe", "-l", str(n)], 100_000)
    yield Workload(
        "switch",
        lambda n: ["stress-ng", "--quiet", "--switch", "1", "--switch-ops", str(n)],
        100_000,
    )


def threads(count, wakeups_per_s):
    """Runs `count` threads that together wake up `wakeups_per_s` times per second."""
    threading.stack_size(64 * 1024)
    pause = count / wakeups_per_s

    def live():
        time.sleep(random.random() * pause)
        while True:
            time.sleep(pause)

    for _ in range(count):
        threading.Thread(target=live, daemon=True).start()
    print("ready", flush=True)
    signal.pause()


def creations(per_s):
    """Creates `per_s` threads per second, which end at once."""
    threading.stack_size(64 * 1024)
    print("ready", flush=True)
    start, made = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - start) * per_s) - made
        for _ in range(due):
            threading.Thread(target=int).start()
        made += due
        time.sleep(0.005)


def named(name):
    """A process of that name, which does nothing: a target whose further processes come later."""
    with open("/proc/self/comm", "w") as file:
        file.write(name)
    print("ready", flush=True)
    signal.pause()


def naps(name):
    """A process of that name, which sleeps for a little more than a millisecond again and again."""
    with open("/proc/self/comm", "w") as file:
        file.write(name)
    print("ready", flush=True)
    while True:
        time.sleep(0.0012)


LOADS = {"threads": threads, "creations": creations, "named": named, "naps": naps}
# The name of the processes of `perf bench sched pipe`.
PIPE_COMM = "sched-pipe"
# Those of a process that does nothing, and of one that naps.
REST_COMM, NAPS_COMM = "at-rest", "naps"


class Load:
    """A load in processes of its own, which end with the `with` block."""

    def __init__(self, *commands):
        self.commands = commands
        self.processes = []

    def __enter__(self):
        for command in self.commands:
            own = command[0] in LOADS
            line = [sys.executable, __file__, *command] if own else list(command)
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                stdout=subprocess.PIPE if own else subprocess.DEVNULL,
                start_new_session=True,
            )
            self.processes.append(process)
            if own and process.stdout.readline() != b"ready\n":
                raise Failed(f"load {' '.join(command)} did not start")
        time.sleep(1)
        return self

    def __exit__(self, *_):
        for process in self.processes:
            # The load has a session of its own: this ends what it started, too.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    LOADS[sys.argv[1]](*(int(word) if word.isdigit() else word for word in sys.argv[2:]))
