#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads or writes in one way until it is stopped, and reports which bytes of it must have reached the disk.

    block_worker.py MODE DIRECTORY SEED BLOCK_KIB PER_S

Starts at a line on standard input, stops at the next, and prints what it did as JSON: {file name: bytes}. Every page is
written once and synced before the end, so that no more and no less than these bytes go to the disk.
"""

import json
import mmap
import os
import random
import select
import sys
import time

PAGE = 4096
FILE_BYTES = 24 << 20


def stopped():
    return bool(select.select([sys.stdin], [], [], 0)[0])


class Worker:
    def __init__(self, mode, directory, seed, block_kib, per_s):
        self.mode, self.directory = mode, directory
        self.random, self.block = random.Random(seed), block_kib << 10
        self.pause_s = 1 / per_s
        self.bytes, self.number = {}, 0
        self.buffer = mmap.mmap(-1, self.block)
        self.buffer.write(os.urandom(self.block))

    def path(self, name):
        return os.path.join(self.directory, name)

    def count(self, name, size):
        self.bytes[name] = self.bytes.get(name, 0) + size

    def prepare(self):
        """Makes the files that exist before the measurement."""
        if self.mode in ("direct_read", "buffered_read"):
            with open(self.path("data"), "wb") as file:
                for _ in range(FILE_BYTES >> 20):
                    file.write(os.urandom(1 << 20))
                file.flush()
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            flags = os.O_RDONLY | (os.O_DIRECT if self.mode == "direct_read" else 0)
            self.file = os.open(self.path("data"), flags)
            # Sequential reads would be read ahead: more than was asked for.
            if self.mode == "buffered_read":
                os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)
            self.places = list(range(0, FILE_BYTES - self.block + 1, self.block))
            self.random.shuffle(self.places)
        elif self.mode in ("direct_write", "synced", "mapped"):
            self.file = os.open(self.path("data"), os.O_RDWR | os.O_CREAT, 0o600)
            # Filled beforehand: then only what is asked for is written, whatever the filesystem does with holes.
            for at in range(0, FILE_BYTES, 1 << 20):
                os.pwrite(self.file, bytes(1 << 20), at)
            os.fsync(self.file)
            if self.mode == "direct_write":
                os.close(self.file)
                self.file = os.open(self.path("data"), os.O_RDWR | os.O_DIRECT)
            if self.mode == "mapped":
                self.map = mmap.mmap(self.file, FILE_BYTES)
            self.places = list(range(0, FILE_BYTES - self.block + 1, self.block))
            self.random.shuffle(self.places)

    def step(self):
        """Does one piece of work; False = there was none left."""
        if self.mode in ("renamed", "deleted"):
            self.number += 1
            name = "new" if self.mode == "renamed" else f"short{self.number}"
            file = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(file, self.buffer)
            os.fsync(file)
            os.close(file)
            if self.mode == "renamed":
                os.rename(self.path(name), self.path(f"kept{self.number}"))
            else:
                os.unlink(self.path(name))
            self.count("", self.block)
            return True
        if not self.places:
            return False
        at = self.places.pop()
        if self.mode in ("direct_read", "buffered_read"):
            os.preadv(self.file, [self.buffer], at)
        elif self.mode == "mapped":
            self.map[at : at + self.block] = self.buffer[:]
            self.map.flush(at, self.block)
        else:
            os.pwritev(self.file, [self.buffer], at)
            if self.mode == "synced":
                os.fdatasync(self.file)
        self.count("data", self.block)
        return True

    def unsynced(self):
        """Writes until it is stopped, and syncs once at the end."""
        with open(self.path("data"), "wb", buffering=0) as file:
            while not stopped():
                if file.tell() < 2 * FILE_BYTES:
                    file.write(self.buffer)
                    self.count("data", self.block)
                time.sleep(self.pause_s)
            os.fsync(file.fileno())

    def run(self):
        self.prepare()
        print("ready", flush=True)
        sys.stdin.readline()
        if self.mode == "buffered":
            self.unsynced()
        else:
            while not stopped() and self.step():
                time.sleep(self.pause_s * self.random.uniform(0.2, 1.8))
        print(json.dumps(self.bytes), flush=True)
        sys.stdin.readline()


mode, directory, seed, block_kib, per_s = sys.argv[1:]
Worker(mode, directory, int(seed), int(block_kib), float(per_s)).run()
