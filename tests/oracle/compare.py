# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compares deburr's figures with those of the trace, process by process, and finds those that are too far apart."""

import dataclasses

from recording import OTHERS

# Bounds in points: a point is a hundredth of a process's wall time.
POINTS_MOSTLY, POINTS_ALWAYS = 1.0, 3.0
# Share of runs that may be beyond the `mostly` bounds ("95 % of runs").
MOSTLY_NOT = 0.05
# An error of more points than this is not excused by a repetition.
POINTS_AT_ONCE = 10.0
BLAME_MOSTLY, BLAME_ALWAYS = 0.05, 0.15
BLAME_WAITS = 1000
# Bounds of the longest wait, as a share of its length: both clocks are read some us apart, more where the hypervisor
# stops a CPU in between.
LONGEST_MOSTLY, LONGEST_ALWAYS = 0.02, 0.10
LONGEST_FLOOR_NS = 1_000_000

# Share of a wait told whole that may be told as behind a process that it was not behind.
WHOLE_MOSTLY, WHOLE_ALWAYS = 0.05, 0.15

# Least wall time of a process: shares of less say little, since 10 ms at either end of the window are a point of 1 s.
LEAST_WALL_NS = 1_000_000_000
# A process that ran and waited for less than this share of its time is asleep for both, which proves nothing.
LEAST_BUSY = 0.01
# Blame over fewer waits, or over less time, is chance.
LEAST_BLAMED_NS, LEAST_BLAMED_WAITS = 50_000_000, 20


@dataclasses.dataclass
class Difference:
    """A figure of a process by the trace (`true`) and by deburr (`said`). `error` is in the unit of the bounds `mostly`
    and `always`."""

    pid: int
    who: str
    what: str
    true: float
    said: float
    error: float
    mostly: float
    always: float
    unit: str
    measure: str
    of_workload: bool = False

    def __str__(self):
        return f"{self.who} ({self.pid}): {self.what} {self.said:.4g}, in truth {self.true:.4g}"


def nearest(said, one, other):
    """The value nearest to `said` that the trace allows: it may leave open which of two threads did something."""
    return min(max(said, min(one, other)), max(one, other))


def points(pid, who, what, true, said):
    true, said = true * 100, said * 100
    return Difference(pid, who, what, true, said, abs(said - true), POINTS_MOSTLY, POINTS_ALWAYS, "points", what)


def differences(replay, recording, report, cast):
    """The differences of every process with enough activity; those of the workload are marked."""
    workload = {process.pid for process in cast.processes}
    for difference in all_differences(replay, recording, report, cast):
        difference.of_workload = difference.pid in workload
        yield difference


def all_differences(replay, recording, report, cast):
    truth = replay.processes(recording.start_ns, recording.end_ns)
    quota = under_quota(cast)
    names = {cast.pid(index): cast.comm(index) for index in range(len(cast.processes))}
    ledger = report.ledger()
    for pid, true in sorted(truth.items()):
        said = recording.accounts.get(pid)
        # A process that is not traced itself, or was woken by such a one, is no reference. The workload's processes are
        # neither.
        if true.wall_ns < LEAST_WALL_NS or (true.doubtful and pid not in names):
            continue
        seen = said is not None and said.wall_ns > 0
        busy = (true.on_cpu_ns + true.queued_ns) / true.wall_ns
        if max(busy, 1 - asleep(said) if seen else 0) < LEAST_BUSY:
            continue
        who = names.get(pid) or (said.comm if seen else "?")
        if not seen:
            yield points(pid, who, "seen at all", 1.0, 0.0)
            continue
        yield from of_ledger(pid, who, true, said, ledger.get(pid))
        yield from of_waits(pid, who, true, said, pid in quota)
        if pid not in quota:
            yield from of_blame(pid, who, true, said, replay, truth)
            yield from of_whole_wait(pid, who, true, recording, replay)


def asleep(said):
    return 1 - (said.on_cpu_ns + said.queued_ns + said.throttled_ns) / said.wall_ns


def of_ledger(pid, who, true, said, line):
    on_cpu, queued = true.on_cpu_ns / true.wall_ns, true.queued_ns / true.wall_ns
    late, hidden = true.late_ns / true.wall_ns, true.hidden_ns / true.wall_ns
    asleep_true = 1 - on_cpu - queued
    yield points(pid, who, "wall time of its threads", 1.0, said.wall_ns / true.wall_ns)

    def told(prefix, on_cpu_said, queued_said, asleep_said):
        yield points(pid, who, f"{prefix}on CPU", nearest(on_cpu_said, on_cpu - late, on_cpu), on_cpu_said)
        yield points(pid, who, f"{prefix}queued", nearest(queued_said, queued, queued + late + hidden), queued_said)
        yield points(pid, who, f"{prefix}asleep", nearest(asleep_said, asleep_true - hidden, asleep_true), asleep_said)

    yield from told("", said.on_cpu_ns / said.wall_ns, (said.queued_ns + said.throttled_ns) / said.wall_ns, asleep(said))
    if line:
        on_cpu_said, queued_said = line.get("on_cpu", 0), line.get("queued", 0) + line.get("throttled", 0)
        yield from told("report: ", on_cpu_said, queued_said, 1 - on_cpu_said - queued_said)


def of_waits(pid, who, true, said, quota):
    """Sum and maximum of the waits. Not under a quota: there deburr's wait sizes leave out throttled time, which the
    trace does not distinguish."""
    if quota:
        return
    waits = said.waits_ns / said.wall_ns
    most = (true.queued_ns + true.late_ns + true.hidden_ns) / true.wall_ns
    yield points(pid, who, "sum of waits", nearest(waits, true.queued_ns / true.wall_ns, most), waits)
    told = said.wait_max_ns
    longest = nearest(told, true.wait_max_ns, max(true.wait_max_ns, true.late_max_ns))
    error = max(abs(told - longest) - LONGEST_FLOOR_NS, 0) / max(longest, LONGEST_FLOOR_NS)
    yield Difference(
        pid, who, "longest wait, ms", longest / 1e6, told / 1e6, error, LONGEST_MOSTLY, LONGEST_ALWAYS, "of it", "longest wait"
    )


def of_blame(pid, who, true, said, replay, truth):
    """Half the sum of the absolute differences of the shares. Short-lived culprits count as one, since deburr sums up
    theirs."""
    if true.queued_ns < LEAST_BLAMED_NS or len(true.waits) < LEAST_BLAMED_WAITS or not said.queued_ns:
        return

    def shares(blame, whole):
        found = {}
        for culprit, ns in blame.items():
            if culprit is None:
                continue
            short = culprit == OTHERS or culprit > 0 and truth.get(culprit, true).wall_ns < LEAST_WALL_NS
            culprit = OTHERS if short else culprit
            found[culprit] = found.get(culprit, 0) + ns / whole
        # Behind nobody: the CPU was idle, or about to switch.
        found[None] = 1 - sum(found.values())
        return found

    true_shares = shares(replay.blame(true), true.queued_ns)
    told = shares(said.blame, said.queued_ns)
    apart = sum(abs(true_shares.get(key, 0) - told.get(key, 0)) for key in true_shares.keys() | told.keys()) / 2
    # Time for which the trace leaves the culprit open, and by which a wait may have been longer, may be anybody's.
    apart = max(apart - (replay.open_ns(true) + true.late_ns + true.hidden_ns) / true.queued_ns, 0)
    many = len(true.waits) >= BLAME_WAITS
    worst = max(true_shares.keys() | told.keys(), key=lambda key: abs(true_shares.get(key, 0) - told.get(key, 0)))
    name = {None: "nobody", OTHERS: "the short-lived", -1: "moved", -2: "not looked up"}.get(worst, worst)
    yield Difference(
        pid, who, f"blame apart by {apart:.3f} over {len(true.waits)} waits; share of {name}",
        true_shares.get(worst, 0), told.get(worst, 0), apart, BLAME_MOSTLY if many else BLAME_ALWAYS, BLAME_ALWAYS, "of the blame",
        f"blame, {BLAME_WAITS} waits and more" if many else "blame, fewer waits",
    )  # fmt: skip


def of_whole_wait(pid, who, true, recording, replay):
    """The longest wait that is told whole: its length, and what it was behind. Time that is told as not known may be
    anybody's."""
    end_ns, tid, told_ns, behind = recording.whole_waits.get(pid, (0, 0, 0, {}))
    wait = replay.wait_ending(tid, end_ns) if told_ns else None
    if wait is None or true.doubtful:
        return
    true_ns = wait.queued_ns
    error = max(abs(told_ns - true_ns) - LONGEST_FLOOR_NS, 0) / max(true_ns, LONGEST_FLOOR_NS)
    yield Difference(
        pid, who, "wait told whole, ms", true_ns / 1e6, told_ns / 1e6, error, LONGEST_MOSTLY, LONGEST_ALWAYS, "of it", "wait told whole"
    )
    blame = replay.blame(wait)
    told = {culprit: ns / told_ns for culprit, ns in behind.items() if culprit > 0}
    unknown = sum(ns for culprit, ns in behind.items() if culprit < 0) / told_ns
    truly = {culprit: ns / true_ns for culprit, ns in blame.items() if culprit is not None}
    apart = sum(max(ns - truly.get(key, 0), 0) for key, ns in told.items() if key != OTHERS)
    apart = max(apart - replay.open_ns(wait) / true_ns, 0)
    worst = max(told, key=lambda key: told[key] - truly.get(key, 0), default=None)
    yield Difference(
        pid, who, f"wait told whole, {unknown:.2f} of it not known; share of {worst}", truly.get(worst, 0), told.get(worst, 0),
        apart, WHOLE_MOSTLY, WHOLE_ALWAYS, "of the wait", "what the wait told whole was behind",
    )  # fmt: skip


# Under a quota, blame sometimes exceeds waiting a little, for reasons that are not all understood: see
# docs/accuracy.md.
BLAMED_TOO_MUCH, BLAMED_TOO_MUCH_BY_QUOTA = 0.001, 0.003


def under_quota(cast):
    return {cast.pid(index) for index in range(len(cast.processes)) if cast.workload.under_quota(index)}


def broken(recording, report, cast):
    """What must never be in a recording or its report, as sentences."""
    quota = under_quota(cast)
    yield from report.impossible()
    for pid, account in sorted(recording.accounts.items()):
        blamed = sum(account.blame.values())
        # Blame is read at another time than the waits, hence an allowance for one wait.
        most = BLAMED_TOO_MUCH_BY_QUOTA if pid in quota else BLAMED_TOO_MUCH
        if blamed > account.queued_ns * (1 + most) + 1_000_000:
            yield f"{account.comm} ({pid}): {blamed / 1e6:.1f} ms of blame for {account.queued_ns / 1e6:.1f} ms of waiting"

