# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A block device as fast as memory that needs no cleanup.

A loop device over a file of tmpfs that has no name (memfd), which detaches itself after its last user; its filesystems
are mounted for this process and its children only. So nothing is left however this process ends.
"""

import ctypes
import errno
import fcntl
import os
import struct
import subprocess

from observer import LIBC, Failed

LOOP_CTL_GET_FREE, LOOP_CONFIGURE = 0x4C82, 0x4C0A
LO_FLAGS_AUTOCLEAR = 4
# struct loop_config: fd, block size, struct loop_info64 (flags at 52), reserved
LOOP_CONFIG_BYTES, FLAGS_AT = 8 + 232 + 64, 8 + 52
CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 0x4000, 1 << 18, 2


def call(name, *arguments):
    if getattr(LIBC, name)(*arguments) != 0:
        raise Failed(f"{name}: {os.strerror(ctypes.get_errno())}")


def own_mounts():
    """Enters a mount namespace of its own: mounts are seen by this process and its children only, and vanish with
    them."""
    call("unshare", CLONE_NEWNS)
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)


class Disk:
    """The device; every byte of it is written once, so that its memory is allocated."""

    def __init__(self, megabytes):
        with open("/dev/loop-control") as control:
            # Another process may take the free device first.
            for _ in range(20):
                number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
                self.path = f"/dev/loop{number}"
                if self.configure(megabytes):
                    break
            else:
                raise Failed("no free loop device")
        with open(self.path, "wb", buffering=0) as device:
            for _ in range(megabytes):
                device.write(bytes(1 << 20))
            os.fsync(device)

    def configure(self, megabytes):
        backing = os.memfd_create("bench")
        try:
            os.truncate(backing, megabytes << 20)
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            config = bytearray(LOOP_CONFIG_BYTES)
            struct.pack_into("II", config, 0, backing, 4096)
            struct.pack_into("I", config, FLAGS_AT, LO_FLAGS_AUTOCLEAR)
            fcntl.ioctl(self.descriptor, LOOP_CONFIGURE, bytes(config))
        except OSError as error:
            os.close(self.descriptor)
            if error.errno == errno.EBUSY:
                return False
            raise
        finally:
            os.close(backing)
        return True

    @property
    def name(self):
        return os.path.basename(self.path)

    def done(self):
        """(IOs, bytes) completed so far, by the kernel's counters: requests, and sectors of 512 bytes."""
        with open(f"/sys/block/{self.name}/stat") as file:
            fields = [int(field) for field in file.read().split()]
        return fields[0] + fields[4], (fields[2] + fields[6]) * 512

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.descriptor)


class Mount:
    """An ext4 filesystem on the device, mounted at `point`."""

    def __init__(self, disk, point):
        self.point = point
        made = subprocess.run(
            ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", disk.path],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise Failed(f"mkfs.ext4: {made.stderr.strip()[-160:]}")
        os.makedirs(point, exist_ok=True)
        call("mount", disk.path.encode(), point.encode(), b"ext4", 0, None)

    def __enter__(self):
        return self.point

    def __exit__(self, *_):
        call("umount2", self.point.encode(), MNT_DETACH)
