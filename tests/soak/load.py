# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the soak runs beside the recording: storms of processes, cgroups and mounts that come and go, and IO.

Each kind is a process of its own that works in small portions and rests between them, so that it takes no more than its
share of the CPUs. What a portion makes, it removes again.
"""

import ctypes
import os
import random
import signal
import time

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH = 1, 0x20000, 0x4000, 0x40000, 2
# A portion is repeated at most this often, however little CPU time it takes.
LEAST_PAUSE_S = 0.02
MOST_PAUSE_S = 30
BLOCK_BYTES = 64 << 10


class Stop(Exception):
    """The load is to end."""


def own_mounts():
    """Gives this process mounts of its own, which nobody else sees and which end with it. False if that is not allowed."""
    if LIBC.unshare(CLONE_NEWNS) != 0:
        return False
    return LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0


def cgroup_tree():
    """The directory of a tree of cgroups with the CPU controller, or None."""
    for name in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"):
        if os.path.exists(f"{name}/cgroup.procs") and os.access(name, os.W_OK):
            return name
    return None


class Load:
    """One kind of work. `count` is what it has made so far, in memory that the soak sees too."""

    unit = "portions"

    def __init__(self, name, directory, counter):
        self.name, self.directory, self.counter = name, directory, counter

    def begin(self):
        """Called once, in the process that works."""

    def portion(self, chance):
        """Does a little. Returns how many were made."""
        raise NotImplementedError

    def end(self):
        """Removes what may be left. Called once, by the soak."""

    def run(self, share, seed, parent):
        """Works until SIGTERM, and takes at most `share` of one CPU."""
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # The parent ended before this was set.
            os._exit(0)

        def stop(*_):
            raise Stop

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        chance, begun = random.Random(seed), time.monotonic()
        self.begin()
        while True:
            self.counter.value += self.portion(chance)
            used = sum(os.times()[:4])
            pause = used / share - (time.monotonic() - begun)
            time.sleep(min(max(pause, LEAST_PAUSE_S), MOST_PAUSE_S))


class Forks(Load):
    """Processes that end at once, some of them after a while, a few with a name and threads of their own."""

    unit = "processes"

    def portion(self, chance):
        count = chance.randint(1, 60)
        pids = []
        for _ in range(count):
            life_s = chance.choice((0, 0, 0, 0.005, 0.05))
            pid = os.fork()
            if pid == 0:
                # Nothing of the parent's handlers may run here.
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                LIBC.prctl(15, f"soak-{chance.randint(0, 9999)}".encode(), 0, 0, 0)
                time.sleep(life_s)
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
        return count


class Cgroups(Load):
    """Cgroups that live for moments, each with a process."""

    unit = "cgroups"

    def __init__(self, name, directory, counter):
        super().__init__(name, directory, counter)
        self.tree = cgroup_tree()
        self.top = self.tree and os.path.join(self.tree, os.path.basename(directory))
        if self.top:
            os.mkdir(self.top)

    def portion(self, chance):
        made = []
        for _ in range(chance.randint(1, 8)):
            path = os.path.join(self.top, f"{chance.randrange(1 << 32):08x}")
            os.mkdir(path)
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                with open(f"{path}/cgroup.procs", "w", encoding="ascii") as procs:
                    procs.write("0")
                time.sleep(chance.choice((0, 0.01, 0.2)))
                os._exit(0)
            made.append((path, pid))
        for path, pid in made:
            os.waitpid(pid, 0)
            removed(path)
        return len(made)

    def end(self):
        if self.top and os.path.isdir(self.top):
            for entry in os.scandir(self.top):
                if entry.is_dir():
                    removed(entry.path)
            removed(self.top)


class Mounts(Load):
    """Filesystems in memory that are mounted and unmounted, where the recording sees them."""

    unit = "mounts"

    def portion(self, chance):
        points = []
        for index in range(chance.randint(1, 10)):
            point = os.path.join(self.directory, f"mount-{index}")
            os.makedirs(point, exist_ok=True)
            if LIBC.mount(b"soak", point.encode(), b"tmpfs", 0, b"size=64k") != 0:
                raise OSError(ctypes.get_errno(), "mount")
            points.append(point)
        for point in points:
            LIBC.umount2(point.encode(), MNT_DETACH)
        return len(points)

    def end(self):
        for entry in os.scandir(self.directory):
            if entry.name.startswith("mount-"):
                LIBC.umount2(entry.path.encode(), MNT_DETACH)


class Files(Load):
    """Files that are written, flushed to their disk, read and removed."""

    unit = "kB"

    def portion(self, chance):
        path = os.path.join(self.directory, f"file-{chance.randint(0, 99)}")
        block, blocks = os.urandom(BLOCK_BYTES), chance.randint(1, 32)
        with open(path, "wb") as file:
            for _ in range(blocks):
                file.write(block)
            file.flush()
            if chance.random() < 0.5:
                os.fdatasync(file.fileno())
        with open(path, "rb") as file:
            while file.read(BLOCK_BYTES):
                pass
        os.unlink(path)
        return blocks * BLOCK_BYTES >> 10


def removed(path):
    """Removes a cgroup, once the kernel has noticed that its processes are gone."""
    for _ in range(200):
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)


KINDS = {"forks": Forks, "cgroups": Cgroups, "mounts": Mounts, "files": Files}
