# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Checks what `deburr limits` reports of the processes that `limits.sh` starts."""

import os
import re
import shutil
import subprocess
import tempfile

from vm import document, output, progress

POD, WIDE = ("/pod", 0.9), ("/pod/wide", 2.7)
SOURCE = 'package main\n\nimport "time"\n\nfunc main() { time.Sleep(time.Hour) }\n'


def service(directory):
    """Builds a Go program for the language version of the installed Go; returns its path, None = there is no Go."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if not go:
        progress("no Go is here: what it makes of its limit is left out")
        return None
    environment = dict(os.environ, GOTOOLCHAIN="local", GOPROXY="off", GOFLAGS="-p=1", GOENV="off", CGO_ENABLED="0")
    environment.pop("GOROOT", None)
    language = re.match(r"go(\d+\.\d+)", output(go, "env", "GOVERSION", env=environment))[1]
    program = os.path.join(directory, "service")
    with tempfile.TemporaryDirectory(dir=directory) as source:
        for name, text in (("main.go", SOURCE), ("go.mod", f"module service\n\ngo {language}\n")):
            with open(os.path.join(source, name), "w") as file:
                file.write(text)
        subprocess.run([go, "build", "-ldflags=-s -w", "-o", program, "."], check=True, cwd=source, env=environment)
    return program


def levels(limit):
    return [((level["path"], level["cpus"]), level["own"], level["binds"]) for level in limit["quotas"]]


def of_quotas(rows):
    """Checks of the processes in the pod, whose quota is tighter than those of its containers: (holds, complaint)."""
    above = (POD, False, True)
    expected = {
        "nested": ("/pod/wide/below", [(WIDE, False, False), above]),
        "namespaced": ("/pod/open", [above]),
        "mounted": ("/pod/wide", [(WIDE, True, False), above]),
    }
    for name, (cgroup, quotas) in expected.items():
        row = rows[name]
        limit = row["limit"]
        holds = row["cgroup"] == cgroup and levels(limit) == quotas and limit["sight"] == "whole"
        yield holds and (limit["cpus"], limit["bound_by"]) == (0.9, "quota"), f"{name}: {row}"
    yield rows["nested"]["limit"]["quotas"][0]["burst_us"] == 20000, f"burst: {rows['nested']}"


def of_sets(rows):
    """Checks of the processes that may run on one CPU: (holds, complaint)."""
    for name, cpus, bound in (("set", "1", "cpuset"), ("asked", "1", "cpuset"), ("pinned", "0", "affinity")):
        limit = rows[name]["limit"]
        allowed = limit["cpuset" if bound == "cpuset" else "affinity"]
        yield (limit["cpus"], limit["bound_by"], allowed) == (1.0, bound, cpus), f"{name}: {limit}"


def of_go(rows, cpus):
    """Checks of Go's own choice of GOMAXPROCS, for which it looks at its own cgroup: (holds, complaint)."""
    version = rows["go_wide"]["runtime"]["version"]
    release = tuple(int(number) for number in re.match(r"go(\d+)\.(\d+)", version).groups())
    own = min(cpus, 3) if release >= (1, 25) else cpus
    # Go 1.25 does not find its cgroup files where a part of the tree is mounted.
    part = own if release != (1, 25) else cpus
    # With two CPUs Go's choice fits, whatever it looks at.
    for name, value in (("go_wide", own), ("go_open", cpus), ("go_part", part)):
        runtime = rows[name]["runtime"]
        number = runtime["parallelism"][0]
        yield (number["value"], number["confidence"]) == (value, "exact"), f"{name}: {value} expected: {runtime}"
        yield rows[name]["verdict"] == ("above" if value > 2 else "fits"), f"{name}: {rows[name]['verdict']}"
        if cpus > 2:
            why = "old_version" if release < (1, 25) else "level_above" if value == own or name == "go_open" else "mount_root"
            yield runtime["belief"]["why"] == why, f"{name}: {why} expected: {runtime['belief']}"
        seen = (runtime["seen"]["files"], runtime["seen"]["part"])
        yield seen == ("leaf", name == "go_part"), f"{name} sees {seen}"


def failed(said, cpus):
    """Complaints of the checks that do not hold."""
    found, contained = (document(said.get(part, "")) for part in ("limits", "contained"))
    if not found or not contained:
        return [f"no JSON: {said.get('limits', '')[:300]} {said.get('contained', '')[:300]}"]
    names = {int(pid): name for name, _, pid in (line.partition(" ") for line in said["names"].splitlines()) if pid}
    rows = {names[row["pid"]]: row for row in found["processes"]}
    lost = sorted(set(names.values()) - set(rows))
    if lost:
        return [f"not told of: {lost}"]
    checks = [(found["host"]["cgroup"] == "v2", f"cgroup {found['host']['cgroup']}")]
    checks += [*of_quotas(rows), *of_sets(rows)]
    tokio = rows["tokio"]
    number = tokio["runtime"]["parallelism"][0]
    told = (tokio["runtime"]["kind"], number["value"], number["confidence"], tokio["verdict"])
    checks.append((told == ("tokio", 8, "start", "above"), f"tokio: {tokio}"))
    if "go_wide" in rows:
        checks += of_go(rows, cpus)
    # From inside the namespace, the pod is not visible.
    limit = contained["processes"][0]["limit"]
    inside = (limit["cpus"], limit["sight"], levels(limit))
    checks.append((inside == (min(2.7, cpus), "part", [(("/", 2.7), True, cpus > 2)]), f"contained: {limit}"))
    return [complaint for holds, complaint in checks if not holds]
