# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Loads on a disk: fio, and files that are written back."""

import json
import os
import random
import resource
import subprocess

from load import PINNED_CPU
from observer import Failed, end_with_parent

# Requests in flight; fixed, as the seed is, so that all runs do the same.
DEPTH, SEED = 16, 1


def kernel_threads_ns():
    """CPU time of all kernel threads, some of which do a loop device's work."""
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            if parent == 2:
                with open(f"/proc/{pid}/schedstat") as file:
                    total += int(file.read().split()[0])
        except OSError:
            continue
    return total


class Fio:
    """fio: 4 kB at random places of a device or file, past the page cache."""

    def __init__(self, operation, path, seconds, megabytes, iops=None):
        self.name, self.operation, self.seconds = operation, operation, seconds
        self.command = ["taskset", "-c", str(PINNED_CPU), "fio", "--name=bench"]
        self.command += [f"--filename={path}", f"--rw={operation}", f"--size={megabytes}m"]
        self.command += ["--bs=4k", "--direct=1", "--ioengine=libaio", f"--iodepth={DEPTH}"]
        self.command += [f"--runtime={seconds}", "--time_based", f"--randseed={SEED}"]
        self.command += ["--norandommap", "--thread", "--output-format=json"]
        if iops:
            self.command.append(f"--rate_iops={iops}")

    def run(self):
        """(IOs per second, CPU time of an IO in ns: fio's and the kernel threads')"""
        kernel, own = kernel_threads_ns(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            self.command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            preexec_fn=end_with_parent,
        )
        kernel, now = kernel_threads_ns() - kernel, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise Failed(f"fio: {(done.stderr or done.stdout).strip()[-160:]}")
        used = now.ru_utime + now.ru_stime - own.ru_utime - own.ru_stime
        # Warnings may stand before the document.
        job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
        side = job["read" if "read" in self.operation else "write"]
        return side["iops"], (used * 1e9 + kernel) / side["total_ios"]


class Files:
    """Small files of a filesystem, written through the page cache and synced."""

    COUNT, BLOCKS, BLOCK = 1500, 4, 4096

    def __init__(self, name, point, new):
        self.name, self.point, self.new = name, point, new
        self.rounds = 0
        self.random = random.Random(SEED)
        if not new:
            self.write("old", self.BLOCKS)

    def write(self, folder, blocks):
        os.makedirs(f"{self.point}/{folder}", exist_ok=True)
        for number in range(self.COUNT):
            with open(f"{self.point}/{folder}/{number}", "wb") as file:
                file.write(bytes(self.BLOCK * blocks))
        os.sync()

    def run(self):
        if self.new:
            self.rounds += 1
            self.write(f"new{self.rounds}", self.BLOCKS)
            return
        for _ in range(3):
            for number in range(self.COUNT):
                with open(f"{self.point}/old/{number}", "r+b") as file:
                    file.seek(self.random.randrange(self.BLOCKS) * self.BLOCK)
                    file.write(bytes(self.BLOCK))
            os.sync()
