# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the parts of docs/overhead.md have in common, and how they are put together.

Each part says when and where it was measured; one that was not measured again is kept as it is.
"""

import datetime
import os
import platform
import re
import shutil
import statistics
import subprocess


def quartiles(values):
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def spread(values, unit, digits=1):
    low, middle, high = quartiles(values)
    return f"{middle:+.{digits}f} {unit} [{low:.{digits}f} {high:.{digits}f}]"


def machine():
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    hypervisor = (
        subprocess.run(
            ["systemd-detect-virt", "--vm"], capture_output=True, text=True
        ).stdout.strip()
        if shutil.which("systemd-detect-virt")
        else ""
    )
    virtual = f", virtual machine ({hypervisor})" if hypervisor not in ("", "none") else ""
    return (
        f"{os.cpu_count()} CPUs, {model.group(1) if model else platform.machine()}{virtual}, "
        f"Linux {platform.release()}, load average {os.getloadavg()[0]:.1f} at the end"
    )


def budget_lines(rows):
    """A table of (what, budget, measured, whether it is met)."""
    lines = ["", "### Budgets", "", "| what | budget | measured | |", "|---|---|---|---|"]
    for what, budget, got, met in rows:
        lines.append(f"| {what} | {budget} | {got} | {'met' if met else '**missed**'} |")
    return lines


def version(command):
    try:
        output = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return "not here"
    return output.splitlines()[0] if output else "unknown"


def circumstances(arguments, lengths, others):
    """When, where and with what a part was measured."""
    today = datetime.date.today().isoformat()
    versions = [f"deburr: `{version([arguments.binary, '--version'])}`"]
    versions += [f"{name}: `{version([name, '--version'])}`" for name in others]
    return [
        f"- Date: {today}; {arguments.rounds} round{'s' * (arguments.rounds > 1)}, {lengths}.",
        f"- Machine: {machine()}.",
        f"- {'; '.join(versions)}.",
    ]


HEAD = """# What observing costs

Written by `make bench`; not by hand. It says what was measured on one machine on one day: measure on yours.
"""


def kept(path):
    """title -> text of the parts of an existing document."""
    try:
        with open(path) as file:
            text = file.read()
    except FileNotFoundError:
        return {}
    parts = re.split(r"^## (.*)\n", text, flags=re.M)[1:]
    return {title: body.strip() for title, body in zip(parts[::2], parts[1::2])}


def write(path, titles, measured):
    """Writes the document: for each title what was measured now, else what was there already."""
    parts = kept(path) | measured
    sections = [f"## {title}\n\n{parts[title]}\n" for title in titles if title in parts]
    with open(path, "w") as file:
        file.write("\n".join([HEAD, *sections]))
