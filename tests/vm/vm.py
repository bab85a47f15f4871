# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Virtual machines for tests: boots Debian's kernels with an initramfs of a few files, and returns the test's output.

Kernels come from Debian's archive through apt, with its own lists and cache below target/vm: nothing is installed and
this host's apt settings stay as they are. The machine's only files are deburr, the libraries it is linked with, busybox,
`init` beside this file, and the test. Neither root nor KVM is needed: qemu emulates the processor, so time in there is
slow and uneven.
"""

import argparse
import json
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
WORK = os.path.join(TOP, "target", "vm")
RELEASES = ["bullseye", "bookworm", "trixie", "sid"]
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Modules that a disk needs, in load order; most kernels have some of them built in.
MODULES = ["virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk"]
# Drivers and schedulers of disks that a test may load.
DRIVERS = ["acpi-cpufreq", "mq-deadline"]
# Modules that a test may unload and load. Their files stay as they are in the package, compressed or not.
LOADABLE = ["brd", "dummy"]
# Without cmpxchg16b: qemu 7.2 now and then leaves garbage in the flags after it, and the kernel panics.
WITHOUT = "-cx16"
# Folders beside a kernel, for these three.
PARTS = (".modules", ".drivers", ".loadable")
RESULT_BYTES = 16 << 20


class Missing(Exception):
    """A requirement is missing."""


class Broken(Exception):
    """Something that is installed does not work."""


def progress(text):
    print(f"vm: {text}", file=sys.stderr, flush=True)


def output(*command, **how):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **how).stdout


def need(program, package):
    path = shutil.which(program)
    if not path:
        raise Missing(f"`{program}` is not here (Debian's package {package}; `scripts/setup --vm` installs it)")
    return path


def need_all():
    """Checks for what every machine needs."""
    if platform.machine() != "x86_64":
        raise Missing("an x86-64 machine is needed: the virtual ones run this one's binary")
    need("qemu-system-x86_64", "qemu-system-x86")
    need("strip", "binutils")
    need("busybox", "busybox-static")


def in_folder(folder):
    """Paths of the files in there, ordered; none where there is no such folder."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names]


def read(path):
    with open(path) as file:
        return file.read()


def formatted(path, size_bytes):
    """A new disk with an empty filesystem."""
    if os.path.exists(path):
        os.remove(path)
    with open(path, "wb") as file:
        file.truncate(size_bytes)
    output(need("mkfs.ext4", "e2fsprogs"), "-q", "-F", "-E", "lazy_itable_init=0", path)
    return path


def firmware(name, *defined):
    """Compiles `firmware.asl` with these words defined; returns the path of the ACPI table."""
    iasl = need("iasl", "acpica-tools")
    path = os.path.join(WORK, name)
    command = [iasl, *(f"-D{word}" for word in defined), "-p", path, os.path.join(HERE, "firmware.asl")]
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode != 0:
        raise Broken(f"iasl: {made.stdout.strip()}")
    return f"{path}.aml"


class Kernel:
    """A kernel, the modules without which it has no disks (the files of `IMAGE.modules`, in their order), drivers that a
    test may load (those of `IMAGE.drivers`), and modules as they are installed (those of `IMAGE.loadable`)."""

    def __init__(self, image):
        self.image = image
        self.modules = in_folder(image + ".modules")
        self.drivers = in_folder(image + ".drivers")
        self.loadable = in_folder(image + ".loadable")
        self.name = os.path.basename(image).removeprefix("vmlinuz-")


class Archive:
    """Debian's archive, through apt with settings of its own."""

    def __init__(self, update=False):
        need("apt-get", "apt")
        self.directory = directory = os.path.join(WORK, "archive")
        for part in ("lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(directory, part), exist_ok=True)
        sources = os.path.join(directory, "sources.list")
        with open(sources, "w") as file:
            for release in RELEASES:
                print(f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {release} main", file=file)
        self.options = [
            f"-oDir::Etc::sourcelist={sources}",
            "-oDir::Etc::sourceparts=/dev/null",
            f"-oDir::State::lists={directory}/lists",
            f"-oDir::Cache={directory}/cache",
            "-oAPT::Sandbox::User=",
            "-oAcquire::Languages=none",
            "-oAcquire::Retries=1",
            "-oAcquire::http::Timeout=20",
            "-oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
        ]
        if update or len(os.listdir(os.path.join(directory, "lists"))) < 3:
            progress("asking Debian's archive")
            self.apt("apt-get", "-q", "update")

    def apt(self, tool, *arguments):
        # apt starts programs itself, which may not be on this process's restricted PATH (scripts/listed).
        around = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        try:
            return output(tool, *self.options, *arguments, cwd=self.directory, env=around, stderr=subprocess.PIPE)
        except subprocess.CalledProcessError as error:
            said = (error.stderr or "").strip().splitlines() or ["no reason given"]
            raise Missing(f"Debian's archive: `{tool} {' '.join(arguments)}`: {said[-1]}") from error

    def kernel(self, release):
        """The kernel of that release's cloud image."""
        described = self.apt("apt-cache", "show", f"linux-image-cloud-amd64/{release}")
        found = re.search(r"^Depends:.*\blinux-image-(\d\S*-cloud-amd64)", described, re.M)
        if not found:
            raise Missing(f"{release} has no linux-image-cloud-amd64")
        version = found[1]
        image = os.path.join(self.directory, f"vmlinuz-{version}")
        # What was taken out of the packages: another version of this file may have wanted less.
        taken, wanted = f"{image}.taken", " ".join([*MODULES, *DRIVERS, *LOADABLE])
        if not os.path.exists(taken) or read(taken) != wanted:
            # From 7.x on linux-image depends on packages that hold the kernel and its modules.
            names = self.apt("apt-cache", "pkgnames", "linux-").split()
            split = [f"linux-{part}-{version}" for part in ("binary", "modules")]
            for package in [name for name in split if name in names] or [f"linux-image-{version}"]:
                self.extract(self.fetch(release, package), image)
            with open(taken, "w") as file:
                file.write(wanted)
        if not os.path.exists(image):
            raise Missing(f"{release}: no kernel in the packages of {version}")
        return Kernel(image)

    def fetch(self, release, package):
        """Downloads a package unless it is there already; returns its path."""

        def here():
            return [name for name in os.listdir(self.directory) if name.startswith(package + "_")]

        if not here():
            progress(f"{release}: fetching {package}")
            self.apt("apt-get", "-q", "download", package)
        return os.path.join(self.directory, here()[0])

    def extract(self, deb, image):
        """Takes the kernel and the modules that are needed out of a package."""
        tree = image + ".tree"
        for part in PARTS:
            os.makedirs(image + part, exist_ok=True)
        output("dpkg-deb", "-x", deb, tree)
        for where, _, names in os.walk(tree):
            for name in names:
                path = os.path.join(where, name)
                if name.startswith("vmlinuz"):
                    os.rename(path, image)
                stem, dot, kind = name.partition(".ko")
                place = None
                if dot and stem in LOADABLE:
                    shutil.copy(path, os.path.join(image + ".loadable", name))
                if stem in MODULES:
                    place = os.path.join(image + ".modules", f"{MODULES.index(stem)}-{stem}.ko")
                elif stem in DRIVERS:
                    place = os.path.join(image + ".drivers", f"{stem}.ko")
                if place and kind in ("", ".xz"):
                    with (lzma.open if kind else open)(path, "rb") as packed, open(place, "wb") as file:
                        shutil.copyfileobj(packed, file)
        shutil.rmtree(tree)


def libraries(binary):
    """Paths of the libraries that the binary is linked with, and of the loader; none for a static one."""
    said = subprocess.run(["ldd", binary], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return re.findall(r"(/\S+) \(0x", said)


def compiled(name):
    """Compiles a program in C of this folder, without libraries that the machine lacks. Returns its path."""
    program = os.path.join(WORK, name)
    need("cc", "gcc, libc6-dev")
    source = os.path.join(HERE, f"{name}.c")
    words = ["cc", "-O2", "-Wall", "-Wextra", "-static", "-pthread", "-o", program, source]
    if subprocess.run(words).returncode != 0:
        raise Missing("`cc` cannot link a static program (Debian's package libc6-dev)")
    return program


def initramfs(binary, kernel, test, *files):
    """Builds the archive of all files that the machine needs; `files` lie in its root. Returns its path."""
    busybox = need("busybox", "busybox-static")
    name = f"{kernel.name}-{os.path.basename(test)}"
    root = os.path.join(WORK, f"{name}.root")
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("bin", "proc", "sys", "dev", "tmp", "modules"):
        os.makedirs(os.path.join(root, folder))
    for source in libraries(binary):
        target = root + source
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(source, target)
    for module in kernel.modules:
        shutil.copy(module, os.path.join(root, "modules"))
    shutil.copy(busybox, os.path.join(root, "bin", "busybox"))
    os.symlink("busybox", os.path.join(root, "bin", "sh"))
    shutil.copy(os.path.join(HERE, "init"), os.path.join(root, "init"))
    shutil.copy(test, os.path.join(root, "test"))
    for file in files:
        shutil.copy(file, root)
    subprocess.run(["strip", "--strip-debug", "-o", os.path.join(root, "bin", "deburr"), binary], check=True)
    names = output("find", ".", cwd=root)
    path = os.path.join(WORK, f"{name}.initramfs")
    with open(path, "wb") as file:
        subprocess.run(
            [busybox, "cpio", "-o", "-H", "newc"],
            cwd=root, input=names.encode(), stdout=file, stderr=subprocess.DEVNULL, check=True,
        )
    shutil.rmtree(root)
    return path


def pin(process, cpus):
    """Binds each virtual CPU's thread to a CPU of this host; waits until they are there."""
    deadline = time.monotonic() + 20
    tasks = f"/proc/{process.pid}/task"
    while time.monotonic() < deadline and process.poll() is None:
        threads = {}
        for tid in os.listdir(tasks):
            try:
                with open(f"{tasks}/{tid}/comm") as file:
                    found = re.match(r"CPU (\d+)/TCG", file.read())
            except FileNotFoundError:
                continue
            if found:
                threads[int(found[1])] = int(tid)
        if len(threads) == len(cpus):
            for virtual, cpu in enumerate(cpus):
                os.sched_setaffinity(threads[virtual], {cpu})
            return
        time.sleep(0.05)
    raise Broken("qemu did not start its virtual CPUs")


def weigh_session(process, nice):
    """Gives the session of a process the weight of its nice value (autogroup), where sessions have one."""
    try:
        with open(f"/proc/{process.pid}/autogroup", "w") as file:
            file.write(str(nice))
    except OSError:
        # Without such weights, or without the right to change them, the nice value has to do.
        pass


def boot(kernel, archive, name, limit_s, cpus=2, pinned=None, nice=19, drives=(), cpu="max", tables=(),
         kernel_words="", threads="multi", memory="1G"):
    """Boots a machine; returns the test's output by part, None = the machine did not finish in time.

    `pinned` has a CPU of this host for each virtual CPU. `nice` below 0 needs root. `drives` are qemu's options for raw
    disks, of which the first one is vda; one more is for results. `cpu` is qemu's name of a processor, `tables` are paths
    of ACPI tables that are added to the firmware's own. With `threads` = "single", one thread of this host runs all
    virtual CPUs in turn: one that runs beside another may meet a breakpoint that the kernel has already taken out of its
    code, and the kernel ends with "Oops: int3".
    """
    said, console, results = (os.path.join(WORK, f"{name}.{kind}") for kind in ("said", "console", "results"))
    words = f"console=ttyS0 loglevel=4 panic=-1 {kernel_words}".strip()
    command = [
        "nice", "-n", str(nice), "qemu-system-x86_64", "-accel", f"tcg,thread={threads}", "-cpu", f"{cpu},{WITHOUT}",
        "-smp", str(cpus), "-m", memory, "-nodefaults", "-display", "none", "-no-reboot",
        "-name", f"{name},debug-threads=on", "-kernel", kernel.image, "-initrd", archive,
        "-serial", f"file:{console}", "-serial", f"file:{said}",
    ]
    for table in tables:
        command += ["-acpitable", f"file={table}"]
    for number, drive in enumerate(drives):
        command += ["-drive", f"{drive},format=raw,if=none,id=drive{number},cache=unsafe"]
        command += ["-device", f"virtio-blk-pci,drive=drive{number}"]
    if kernel.modules:
        with open(results, "wb") as file:
            file.truncate(RESULT_BYTES)
        words += " results=disk"
        command += ["-drive", f"file={results},format=raw,if=none,id=results,cache=unsafe"]
        command += ["-device", "virtio-blk-pci,drive=results,serial=results"]
    command += ["-append", words]
    # In a session of its own: the scheduler may weight sessions before processes. qemu's warnings are about features
    # that an emulated processor lacks.
    with open(os.path.join(WORK, f"{name}.qemu"), "w") as warned:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=warned, start_new_session=True)
    try:
        if nice < 0:
            weigh_session(process, nice)
        if pinned:
            pin(process, pinned)
        process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    text = ""
    for path in (said, results):
        if os.path.exists(path):
            with open(path, errors="replace") as file:
                text += file.read().rstrip("\0")
            os.remove(path)
    with open(said, "w") as file:
        file.write(text)
    found = parts(text)
    return found if "end" in found else None


def unfinished(name):
    """What a machine that did not come to its end had done until then: its console may be lost where the test ran."""
    with open(os.path.join(WORK, f"{name}.said")) as file:
        done = list(parts(file.read()))
    path = os.path.join(WORK, f"{name}.console")
    with open(path, errors="replace") as file:
        console = file.read().split("\n")
    # The next boot writes its own.
    os.replace(path, path + ".unfinished")
    path += ".unfinished"
    # What a kernel says of its own end begins with one of these, and ends with the place of its code in memory.
    words = [line.strip()[:160] for line in console if re.search("BUG:|Oops|RIP:|panic", line)][:4] or [
        next((line.strip()[:160] for line in reversed(console) if line.strip()), "nothing")
    ]
    return f"the machine did not come to its end; parts begun: {', '.join(done) or 'none'}; last words: {words}; see {path}"


class Fitness:
    """How fit this host was while virtual machines ran: from creation, or from `again`.

    A test that fails on a fit host is a failure; one that fails again and again on a host that is not fit is inconclusive.
    The limits are those of the lab (crates/cli/src/lab/fitness.rs).
    """

    STEAL_SHARE = 0.05
    OUTSIDE_SHARE = 0.15

    def __init__(self):
        self.again()

    def again(self):
        self.before = self.counters()

    @staticmethod
    def counters():
        """In seconds: the wall clock, busy and stolen time of all CPUs, and CPU time of this process and of its
        children that have ended."""
        with open("/proc/stat") as file:
            numbers = [int(number) / os.sysconf("SC_CLK_TCK") for number in file.readline().split()[1:9]]
        user, nice, system, _, _, _, _, stolen = numbers
        mine = os.times()
        own = mine.user + mine.system + mine.children_user + mine.children_system
        return time.monotonic(), user + nice + system, stolen, own

    def unfit(self, after=None):
        """Reasons why the host was not fit since then; empty = it was fit."""
        after = after or self.counters()
        wall, busy, stolen, own = (now - then for now, then in zip(after, self.before))
        reasons = []
        if stolen > self.STEAL_SHARE * (busy + stolen):
            share = stolen / (busy + stolen)
            reasons.append(f"the hypervisor took {share:.0%} of what the CPUs wanted (limit {self.STEAL_SHARE:.0%})")
        outside = max(busy - own, 0) / (wall * os.cpu_count())
        if outside > self.OUTSIDE_SHARE:
            reasons.append(f"others took {outside:.0%} of all CPUs (limit {self.OUTSIDE_SHARE:.0%})")
        return reasons


def arguments(description):
    """Options of a test in one kind of machine."""
    usage = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    usage.add_argument("--binary", default=os.path.join(TOP, "target", "release", "deburr"))
    usage.add_argument("--kernel", help="path of another kernel, its modules for disks in PATH.modules/")
    usage.add_argument("--show", action="store_true", help="print what was printed in there")
    return usage.parse_args()


def judged(name, options, checks, release, limit_s, attempts=3, files=(), **machine):
    """Runs `NAME.sh` in a machine of two CPUs, and again where that may help. `checks` yields (holds, complaint) for the
    machine's output by part. `files` lie in its root; `machine` has more arguments for `boot`. Prints the verdict, and
    returns the exit status."""
    need_all()
    os.makedirs(WORK, exist_ok=True)
    kernel = Kernel(options.kernel) if options.kernel else Archive().kernel(release)
    archive = initramfs(options.binary, kernel, os.path.join(HERE, f"{name}.sh"), *files)
    for attempt in range(1, attempts + 1):
        progress(f"{name}: boot {attempt}")
        fitness = Fitness()
        said = boot(kernel, archive, name, limit_s, cpus=2, nice=0, threads="single", **machine)
        unfit = fitness.unfit()
        if said is None:
            failed = [unfinished(name)]
        else:
            try:
                failed = [complaint for holds, complaint in checks(said) if not holds]
            except (KeyError, ValueError) as error:
                failed = [f"what it printed is damaged: {error!r}"]
        if not failed:
            break
        progress(f"{name}: " + "; ".join(failed + unfit))
        # One boot in sixty stays silent, which is qemu's fault; anything else that fails on a fit host is a failure.
        if not unfit and attempt > 1:
            break
    if options.show and said:
        for part, text in said.items():
            print(f"=== {part}\n{text}")
    bad = verdict(name.replace("-", "_"), failed, unfit)
    os.remove(archive)
    return 1 if bad else 0


def verdict(name, failed, unfit):
    """Prints the result of a test, and notes an inconclusive one for `scripts/test`; returns whether it failed."""
    notes = os.environ.get("DEBURR_INCONCLUSIVE")
    if failed and unfit and notes:
        reason = f"{', '.join(unfit)}; not so: {'; '.join(failed)}".replace("\n", " ").replace("\t", " ")
        with open(notes, "a") as file:
            file.write(f"vm\t{name}\t{reason}\n")
        print(f"test {name} ... inconclusive")
        return False
    print(f"test {name} ... {'FAILED' if failed else 'ok'}")
    return bool(failed)


def parts(text):
    """{name: text} of the machine's output: each part follows a line `=== NAME`."""
    pieces = re.split(r"^=== (\w+)\n", text.replace("\r", ""), flags=re.M)
    return dict(zip(pieces[1::2], pieces[2::2]))


def document(text):
    """The JSON document in the text; messages around it are left out."""
    start = text.find("{\n")
    return json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 else None


def exit_status(main):
    """The exit status of a test's `main`, or that of its exception: 2 = a requirement is missing, 1 = something is
    broken."""
    try:
        return main()
    except Missing as error:
        print(f"vm: error: {error}", file=sys.stderr)
        return 2
    except (Broken, subprocess.CalledProcessError) as error:
        # What is here and does not work is no reason to skip.
        print(f"vm: failed: {error}", file=sys.stderr)
        return 1
