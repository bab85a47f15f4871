# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compares how deburr divides the CPU time of a process into the program's and the kernel's with the trace of its system calls.

In the kernel is a thread that runs between the entry of a call and its exit. The kernel, whose figures deburr reads, knows it only
of the moments of its clock tick: of CPU time with N ticks, the share in the kernel has the error of a sample of N. The bounds are
three and five standard deviations of that (a normal distribution has 0.3 % and less beyond), and the rounding of both readings to
hundredths of a second. How much more the truth may be: interrupts, which may have come outside of calls, and the time of a call
before its entry and after its exit are traced. Page faults outside of calls count as the program.
"""

import gzip
import os
import platform
import re

import compare
from sleep_replay import within

# CPU time of less is not compared: that would be chance.
LEAST_NS = 400_000_000
# A reading is in units of USER_HZ.
ROUNDED_NS = 10_000_000
# Of a call, outside of what is traced; perf writes both events in that time.
CALL_NS = 1_000
DEVIATIONS_MOSTLY, DEVIATIONS_ALWAYS = 3, 5


def tick_ns():
    """Length of the kernel's clock tick; the longest that there is, if its configuration cannot be read."""
    for path, opened in (("/proc/config.gz", gzip.open), (f"/boot/config-{platform.release()}", open)):
        if os.path.exists(path):
            with opened(path, "rt") as file:
                found = re.search(r"^CONFIG_HZ=(\d+)$", file.read(), re.MULTILINE)
            if found:
                return 1_000_000_000 // int(found[1])
    return ROUNDED_NS


def differences(witness, pid, who, readings):
    if len(readings) < 2:
        return
    (start, *before), (end, *after) = readings[0], readings[-1]
    user_ns, system_ns = (b - a for a, b in zip(before, after))
    on_cpu_ns, in_calls_ns, open_ns = divided(witness, pid, start, end)
    if min(on_cpu_ns, user_ns + system_ns) < LEAST_NS:
        return
    true, told = in_calls_ns / on_cpu_ns, system_ns / (user_ns + system_ns)
    # Of a share of 0 or 1 too, a sample of N may have one that is another.
    ticks = on_cpu_ns / tick_ns()
    true = compare.nearest(told, true, min(true + open_ns / on_cpu_ns, 1))
    deviation = max(true * (1 - true) / ticks, 1 / ticks**2) ** 0.5
    bounds = [(ROUNDED_NS / on_cpu_ns + many * deviation) * 100 for many in (DEVIATIONS_MOSTLY, DEVIATIONS_ALWAYS)]
    measure = "in the kernel"
    what = f"{measure}, of which {open_ns / on_cpu_ns * 100:.1f} points are open"
    yield compare.Difference(pid, who, what, true * 100, told * 100, abs(told - true) * 100, *bounds, "points", measure)


def divided(witness, pid, start, end):
    """Time of a process on CPUs, that in calls, and what of it is open, in ns."""
    on_cpu_ns = in_calls_ns = open_ns = 0
    replay = witness.replay
    for tid in (tid for tid in replay.running if witness.process_of.get(tid) == pid):
        for since, until, in_call in replay.running[tid]:
            ns = within(since, until, start, end)
            on_cpu_ns += ns
            in_calls_ns += ns if in_call else 0
        open_ns += CALL_NS * sum(start <= time < end for time in replay.calls.get(tid, ()))
        open_ns += sum(within(*came, start, end) for came in replay.came.get(tid, ()))
    for (tid, _, _), all in replay.interrupts.items():
        if witness.process_of.get(tid) == pid:
            open_ns += sum(ns for since, _, ns in all if start <= since < end)
    return on_cpu_ns, in_calls_ns, open_ns
