# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A running tool, and the BPF programs that it holds according to the kernel."""

import ctypes
import os
import platform
import re
import signal
import struct
import subprocess
import tempfile
import time

ATTACH_LIMIT_S = 20
# Time to start up for a tool without BPF programs (perf).
SETTLE_S = 1.5
STOP_LIMIT_S = 30


PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """A tool could not be started, or ended by itself."""


def end_with_parent():
    """For a child before it runs its command: the kernel kills it when this process ends, however that happens."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Bpf:
    """The few bpf(2) commands that are needed here."""

    SYSCALL = {"x86_64": 321, "aarch64": 280}
    PROG_GET_FD_BY_ID, MAP_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD, ENABLE_STATS = 13, 14, 15, 32
    # struct bpf_prog_info, up to and including its name, and what it says of its maps
    INFO_BYTES, NAME_AT, MAPS_AT = 80, 64, 52
    # struct bpf_map_info
    MAP_NAME_AT = 24
    MOST_MAPS = 64

    def __init__(self):
        self.number = self.SYSCALL[platform.machine()]

    def call(self, command, attributes):
        buffer = ctypes.create_string_buffer(attributes, 64)
        result = LIBC.syscall(self.number, command, buffer, 64)
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    def statistics(self):
        """Enables the kernel's statistics until the descriptor is closed: they end with this process, however it
        ends."""
        return self.call(self.ENABLE_STATS, struct.pack("I", 0))

    def runs(self, program):
        """(runs, nanoseconds) of a program since the statistics were first switched on."""
        descriptor = self.call(self.PROG_GET_FD_BY_ID, struct.pack("I", program))
        try:
            info = fdinfo("self", descriptor)
        finally:
            os.close(descriptor)
        return int(info.get("run_cnt", 0)), int(info.get("run_time_ns", 0))

    def info(self, get, number, info):
        """Fills in what the kernel knows of a program or map."""
        descriptor = self.call(get, struct.pack("I", number))
        try:
            request = struct.pack("IIQ", descriptor, self.INFO_BYTES, ctypes.addressof(info))
            self.call(self.OBJ_GET_INFO_BY_FD, request)
        finally:
            os.close(descriptor)

    def name(self, program):
        """Name of a program, of which the kernel keeps the first 15 bytes."""
        info = ctypes.create_string_buffer(self.INFO_BYTES)
        self.info(self.PROG_GET_FD_BY_ID, program, info)
        return info.raw[self.NAME_AT :].split(b"\0")[0].decode(errors="replace")

    def maps(self, program):
        """The maps that a program uses: number -> name, as long as that of a program."""
        numbers = (ctypes.c_uint32 * self.MOST_MAPS)()
        info = ctypes.create_string_buffer(self.INFO_BYTES)
        struct.pack_into("=IQ", info, self.MAPS_AT, self.MOST_MAPS, ctypes.addressof(numbers))
        self.info(self.PROG_GET_FD_BY_ID, program, info)
        (count,) = struct.unpack_from("I", info, self.MAPS_AT)
        names = {}
        for number in numbers[: min(count, self.MOST_MAPS)]:
            info = ctypes.create_string_buffer(self.INFO_BYTES)
            self.info(self.MAP_GET_FD_BY_ID, number, info)
            name = info.raw[self.MAP_NAME_AT : self.MAP_NAME_AT + 16]
            names[number] = name.split(b"\0")[0].decode(errors="replace")
        return names


def fdinfo(pid, descriptor):
    with open(f"/proc/{pid}/fdinfo/{descriptor}") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def attached(pid):
    """The ids of the BPF programs that a process holds, and how many of them it has attached."""
    programs, links = set(), 0
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return programs, links
    for descriptor in descriptors:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            if "bpf" not in target and "perf_event" not in target:
                continue
            info = fdinfo(pid, descriptor)
        except OSError:
            continue
        links += "link_type" in info or "perf_event" in target
        if "prog_id" in info:
            programs.add(int(info["prog_id"]))
    return programs, links


def map_bytes(pid):
    """Memory of the maps that a process holds, by number, as the kernel counts it."""
    found = {}
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            info = fdinfo(pid, descriptor)
        except OSError:
            continue
        if "map_id" in info:
            found[int(info["map_id"])] = int(info["memlock"])
    return found


class Observer:
    """A running tool. `attach_s` is the time from its start to its last attached program."""

    def __init__(self, command, bpf=True):
        self.log = tempfile.TemporaryFile()
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.log,
            preexec_fn=end_with_parent,
        )
        self.attach_s = None
        try:
            if bpf:
                self.wait_attached()
            else:
                time.sleep(SETTLE_S)
                self.check()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self):
        return self.process.pid

    def check(self):
        status = self.process.poll()
        if status is not None:
            self.log.seek(0)
            lines = self.log.read().decode(errors="replace").strip().splitlines()
            said = [line for line in lines if re.search("error|unable to", line, re.I)] or lines
            raise Failed(f"ended with status {status}: {(said or ['nothing said'])[-1][:160]}")

    def wait_attached(self):
        before, since = 0, self.started
        while True:
            links = attached(self.pid)[1]
            now = time.monotonic()
            if links > before:
                before, since = links, now
            # Programs are attached one after the other; the last one is that which no other follows for half a second.
            if before and now - since > 0.5:
                self.attach_s = since - self.started
                return
            self.check()
            if now - self.started > ATTACH_LIMIT_S:
                raise Failed(f"attached nothing within {ATTACH_LIMIT_S} s")
            time.sleep(0.002)

    def cpu_ns(self):
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[0])
        return total

    def memory_bytes(self):
        with open(f"/proc/{self.pid}/status", errors="replace") as file:
            return int(re.search(r"VmRSS:\s*(\d+) kB", file.read()).group(1)) * 1024

    def stop(self):
        for signal_number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
            if self.process.poll() is not None:
                break
            self.process.send_signal(signal_number)
            try:
                self.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                pass
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
