// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stage of one run: the lab's cgroup, the processes in it, and how both are removed.

use super::disk::{Disk, DiskSpec, ServeOptions, Served};
use super::needs::usable_cpus;
use super::network::Place;
use crate::host::cgroup::Tree;
use crate::host::guard::{EXPERIMENT, Guard};
use crate::host::undo::{DirectoryKind, Undo, write_setting};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use deburr_core::procfs::cpu_list;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Cgroup of the observing `deburr`, below the lab's own.
pub(super) const OBSERVER: &str = "observer";
/// Longest time that a worker may take to start or to answer, even on a busy host.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// Longest time that a system program such as `losetup` may take.
const TOOL_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time that an experiment may take to put everything back.
const PUT_BACK_TIMEOUT: Duration = Duration::from_secs(30);
/// CPU time that real-time tasks of the lab may use per second, in microseconds: slightly less than the kernel allows
/// all real-time tasks by default.
const REALTIME_US_PER_S: u32 = 940_000;
/// Number of names that are tried for the lab's cgroup.
const NAMES: u32 = 4;
const NO_READER: &str = "the scenario has no `[victim.reader]`";
/// Interval at which signals are checked.
const LOOK: Duration = Duration::from_millis(20);

/// Set when SIGINT, SIGTERM or SIGHUP has arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Handles these signals until the process exits.
    pub(crate) fn on_signals() -> Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.0.clone())?;
        }
        Ok(stop)
    }

    /// An error if a signal has arrived.
    pub(super) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!(Interrupted);
        }
        Ok(())
    }
}

/// The run was ended by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted; everything that the lab made is undone")]
pub(crate) struct Interrupted;

/// How to start a worker process, and its task.
#[derive(Clone, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) comm: &'a str,
    /// Its cgroup, below the lab's own.
    pub(crate) cgroup: &'a str,
    /// CPUs that it may use, as indices into the CPUs that the lab may use. `None` = all.
    pub(crate) cpus: Option<&'a [usize]>,
    /// Its nice value.
    pub(crate) nice: Option<i32>,
    /// Whether it runs with real-time priority (`SCHED_FIFO`).
    pub(crate) realtime: bool,
    /// The rest of its command line: the task of `deburr lab-worker`.
    pub(crate) what: &'a [String],
}

/// The cgroup and the processes of one run. Dropping it ends and removes them.
#[derive(Debug)]
pub(crate) struct Stage {
    // Fields are dropped in this order: running workers are ended before the janitor removes the cgroup.
    /// With their names.
    workers: Vec<(String, Worker)>,
    guard: Guard,
    // Dropped after the guard, since the server must answer until the filesystem is unmounted.
    disk: Option<Disk>,
    files: Option<PathBuf>,
    slow_file: Option<Served>,
    pub(super) place: Place,
    tree: Tree,
    base: PathBuf,
    scratch: PathBuf,
    cpus: Vec<usize>,
    program: PathBuf,
    stop: Stop,
}

impl Stage {
    /// Creates the lab's cgroup, with `weight` times the default CPU weight.
    pub(crate) fn new(stop: Stop, weight: u32) -> Result<Self> {
        let tree = Tree::find()?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let (guard, base, scratch) = Self::ground(&tree, &program)?;
        tree.set_weight(&base, weight)?;
        Ok(Self {
            workers: Vec::new(),
            guard,
            disk: None,
            files: None,
            slow_file: None,
            place: Place::default(),
            tree,
            base,
            scratch,
            cpus: usable_cpus(),
            program,
            stop,
        })
    }

    /// Makes the lab's cgroup and its directory, under a random name that nobody else has.
    fn ground(tree: &Tree, program: &Path) -> Result<(Guard, PathBuf, PathBuf)> {
        for _ in 0..NAMES {
            let mut guard = Guard::new(program, "lab")?;
            let base = tree.mount.join(guard.name());
            let scratch = std::path::absolute(std::env::temp_dir())?.join(guard.name());
            if guard.make(DirectoryKind::Cgroup, &base)?
                && guard.make(DirectoryKind::Files, &scratch)?
            {
                return Ok((guard, base, scratch));
            }
        }
        bail!("every name that was tried for the lab's cgroup is taken")
    }

    /// The cgroup tree that holds the lab's cgroup.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Path of the lab's cgroup in that tree.
    pub(crate) fn cgroup_path(&self) -> String {
        format!("/{}", self.base.file_name().unwrap_or_default().to_string_lossy())
    }

    /// Directory of the lab's cgroup.
    pub(crate) fn cgroup_dir(&self) -> &Path {
        &self.base
    }

    /// The CPU numbers of a selection of indices; `None` = all usable CPUs. Indices without a CPU are skipped.
    pub(crate) fn cpus(&self, selection: Option<&[usize]>) -> Vec<usize> {
        match selection {
            Some(chosen) => chosen.iter().filter_map(|&at| self.cpus.get(at).copied()).collect(),
            None => self.cpus.clone(),
        }
    }

    /// Creates a cgroup below the lab's own.
    pub(crate) fn cgroup(&self, path: &str) -> Result<PathBuf> {
        self.tree.make(&self.base, path)
    }

    /// Path of a scratch file, which is removed when the run ends.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Registers with the janitor how to undo a change. Must be called before the change is made.
    pub(crate) fn will_undo(&mut self, undo: &Undo) -> Result<()> {
        self.guard.will_undo(undo)
    }

    /// Makes a cgroup in another tree than the lab's own, which is removed at the end with all that is in it.
    pub(crate) fn make_foreign_cgroup(&mut self, dir: &Path) -> Result<()> {
        ensure!(self.guard.make(DirectoryKind::Cgroup, dir)?, "`{}` exists", dir.display());
        Ok(())
    }

    /// Changes a setting until the run ends.
    pub(crate) fn change(&mut self, undo: &Undo, file: &Path, value: &str) -> Result<()> {
        self.will_undo(undo)?;
        write_setting(file, value)?;
        undo.as_set().map_or(Ok(()), |set| self.will_undo(&set))
    }

    /// Creates the run's disk, as fast as memory.
    pub(crate) fn make_disk(&mut self, spec: &DiskSpec) -> Result<()> {
        let disk = Disk::make(self, spec).context("cannot make the lab's disk")?;
        self.files = Some(disk.mount().to_owned());
        self.disk = Some(disk);
        Ok(())
    }

    /// Puts the files of the run on the host's own disk.
    pub(crate) fn use_host_disk(&mut self) -> Result<()> {
        let dir = self.scratch("files");
        std::fs::create_dir(&dir).with_context(|| format!("cannot make `{}`", dir.display()))?;
        self.files = Some(dir);
        Ok(())
    }

    /// Directory of the run's files.
    pub(crate) fn files(&self) -> Result<&Path> {
        self.files.as_deref().context("the scenario has neither `[disk]` nor `host_disk`")
    }

    /// Mounts an overlay over an empty directory and returns where. Its upper layer, which gets all changes, is in
    /// `changes`, among the files of the run.
    pub(crate) fn make_overlay(&mut self, changes: &Path) -> Result<PathBuf> {
        let (lower, at) = (self.scratch("lower"), self.scratch("overlay"));
        let (upper, work) = (changes.join("upper"), changes.join("work"));
        for dir in [&lower, &at, &upper, &work] {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot make `{}`", dir.display()))?;
        }
        self.will_undo(&Undo::Mount { at: at.clone() })?;
        let data = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let data = std::ffi::CString::new(data)?;
        let flags = MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
        mount("overlay", &at, "overlay", flags, Some(data.as_c_str()))
            .context("cannot mount an overlay")?;
        Ok(at)
    }

    /// The run's disk.
    pub(crate) fn disk(&mut self) -> Result<&mut Disk> {
        self.disk.as_mut().context("the scenario has no `[disk]`")
    }

    /// Creates the file that the victim reads, as fast as memory.
    pub(crate) fn make_slow_file(&mut self) -> Result<()> {
        let serving = ServeOptions { comm: "lab-file", size_mib: 1, megabytes_per_s: 10_000 };
        let file = Served::make(self, serving).context("cannot make the lab's slow file")?;
        self.slow_file = Some(file);
        Ok(())
    }

    pub(crate) fn slow_file(&self) -> Result<&Served> {
        self.slow_file.as_ref().context(NO_READER)
    }

    /// That file, to be made slow.
    pub(crate) fn slow_file_mut(&mut self) -> Result<&mut Served> {
        self.slow_file.as_mut().context(NO_READER)
    }

    /// Number of CPUs in a selection; `None` = all usable CPUs.
    pub(crate) fn count_cpus(&self, selection: Option<&[usize]>) -> usize {
        selection.map_or(self.cpus.len(), <[usize]>::len)
    }

    /// The CPU number at an index into the CPUs that the lab may use.
    pub(crate) fn cpu(&self, index: usize) -> Result<usize> {
        let cpu = self.cpus.get(index).copied();
        cpu.ok_or_else(|| {
            anyhow!("CPU number {index} of {} usable ones is asked for", self.cpus.len())
        })
    }

    /// The CPUs that the lab may use, as a list.
    pub(crate) fn cpu_list(&self) -> String {
        let numbers: Vec<u32> =
            self.cpus.iter().filter_map(|cpu| u32::try_from(*cpu).ok()).collect();
        cpu_list::format(&numbers)
    }

    /// Starts workers and waits until all of them are working.
    pub(crate) fn start(&mut self, jobs: &[Job<'_>]) -> Result<()> {
        let mut begun = Vec::with_capacity(jobs.len());
        for job in jobs {
            begun.push((job.comm.to_owned(), self.spawn(job)?));
        }
        for (_, worker) in &mut begun {
            worker.expect_ready()?;
        }
        self.workers.append(&mut begun);
        Ok(())
    }

    /// Process ids of the workers of that name that were started with [`Self::start`].
    pub(crate) fn pids(&self, comm: &str) -> Vec<u32> {
        let named = self.workers.iter().filter(|(name, _)| name == comm);
        named.map(|(_, worker)| worker.pid()).collect()
    }

    /// Starts one worker that the caller communicates with.
    pub(crate) fn start_one(&self, job: &Job<'_>) -> Result<Worker> {
        let mut worker = self.spawn(job)?;
        worker.expect_ready()?;
        Ok(worker)
    }

    fn spawn(&self, job: &Job<'_>) -> Result<Worker> {
        let dir = self.cgroup(job.cgroup)?;
        let mut command = self.worker_command(&dir);
        command.arg(format!("--comm={}", job.comm));
        if let Some(nice) = job.nice {
            command.arg(format!("--nice={nice}"));
        }
        if job.realtime {
            self.allow_realtime(&dir, REALTIME_US_PER_S)?;
            command.arg("--realtime");
        }
        for index in job.cpus.into_iter().flatten() {
            command.arg(format!("--cpu={}", self.cpu(*index)?));
        }
        command.args(job.what).stdin(Stdio::piped()).stdout(Stdio::piped());
        Worker::spawn(command, &self.stop)
    }

    /// Gives one of the lab's cgroups a CPU budget for real-time tasks, in microseconds per second.
    pub(crate) fn allow_realtime(&self, dir: &Path, us_per_s: u32) -> Result<()> {
        self.tree.set_realtime(&self.base, us_per_s)?;
        self.tree.set_realtime(dir, us_per_s)
    }

    /// Starts another program in a cgroup.
    pub(crate) fn start_program(
        &self,
        cgroup: &Path,
        words: &[String],
        environment: &[(&str, String)],
    ) -> Result<Worker> {
        let mut command = self.worker_command(cgroup);
        command.args(["tool", "--"]).args(words).envs(environment.iter().cloned());
        // Its messages go to stderr.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Worker::spawn(command, &self.stop)
    }

    /// Whether a signal has arrived.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.check().is_err()
    }

    fn worker_command(&self, cgroup: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("lab-worker").arg("--cgroup").arg(cgroup);
        command
    }

    /// Runs another program to completion and returns its standard output.
    pub(crate) fn tool(&self, program: &str, arguments: &[&Path]) -> Result<String> {
        self.tool_within(program, arguments, TOOL_TIMEOUT)
    }

    /// Like [`Self::tool`], with another time limit.
    pub(crate) fn tool_within(
        &self,
        program: &str,
        arguments: &[&Path],
        timeout: Duration,
    ) -> Result<String> {
        let (out, err) = (self.scratch("tool-stdout"), self.scratch("tool-stderr"));
        let mut command = self.worker_command(&self.cgroup("tools")?);
        command.args(["tool", program]).args(arguments).stdin(Stdio::null());
        command.stdout(File::create(&out)?).stderr(File::create(&err)?);
        let mut worker = Worker::spawn(command, &self.stop)?;
        let status = self.wait(&mut worker, timeout, program)?;
        if !status.success() {
            bail!("`{program}` failed ({status}): {}", read_text(&err)?.trim());
        }
        read_text(&out)
    }

    fn wait(&self, worker: &mut Worker, timeout: Duration, who: &str) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = worker.child.try_wait()? {
                return Ok(status);
            }
            self.stop.check()?;
            if Instant::now() > deadline {
                bail!("{who} did not end in {} s", timeout.as_secs());
            }
            thread::sleep(LOOK);
        }
    }

    /// Runs this program itself, with its output in files, in a cgroup of its own so that the load does not starve
    /// it. Returns its exit status, standard output and standard error.
    pub(crate) fn run_self(
        &self,
        arguments: &[String],
        timeout: Duration,
    ) -> Result<(ExitStatus, String, String)> {
        let (mut worker, out) = self.spawn_self(OBSERVER, arguments, &BTreeMap::new())?;
        let status = self.wait(&mut worker, timeout, "the observing `deburr`")?;
        out.read(status)
    }

    /// The same for an experiment, which is not killed when its time is over or a signal arrives: it is told to end, and
    /// ends when everything is put back.
    pub(crate) fn run_experiment(
        &self,
        arguments: &[String],
        environment: &BTreeMap<String, String>,
        timeout: Duration,
    ) -> Result<(ExitStatus, String, String)> {
        let (mut worker, out) = self.spawn_self(EXPERIMENT, arguments, environment)?;
        let status = match self.wait(&mut worker, timeout, "the experiment") {
            Ok(status) => status,
            Err(error) => {
                let ended = worker.end(PUT_BACK_TIMEOUT)?;
                self.stop.check()?;
                ended.ok_or(error)?
            }
        };
        out.read(status)
    }

    /// Starts this program itself in one of the lab's cgroups, with its output in files.
    fn spawn_self(
        &self,
        cgroup: &str,
        arguments: &[String],
        environment: &BTreeMap<String, String>,
    ) -> Result<(Worker, OutputFiles)> {
        let out = OutputFiles { out: self.scratch("stdout"), err: self.scratch("stderr") };
        let mut command = self.worker_command(&self.cgroup(cgroup)?);
        command.arg("exec").args(arguments).envs(environment);
        // A second signal would end it at once, so those of a terminal must not reach it besides.
        command.process_group(0).stdin(Stdio::null());
        command.stdout(File::create(&out.out)?).stderr(File::create(&out.err)?);
        Ok((Worker::spawn(command, &self.stop)?, out))
    }

    /// Sleeps; returns early with an error if a signal arrives.
    pub(crate) fn settle(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.stop.check()?;
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Ends all processes and removes the cgroup and all files. An error says what could not be removed.
    pub(crate) fn clear(mut self) -> Result<()> {
        self.end_all();
        self.guard.finish()
    }
}

impl Stage {
    fn end_all(&mut self) {
        // From now on the disk and the file take no time, so that processes waiting for them end soon.
        if let Some(disk) = &mut self.disk {
            disk.served().close();
        }
        if let Some(file) = &mut self.slow_file {
            file.close();
        }
        self.workers.clear();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// The files with what a program wrote.
struct OutputFiles {
    out: PathBuf,
    err: PathBuf,
}

impl OutputFiles {
    /// Adds their texts to its exit status.
    fn read(&self, status: ExitStatus) -> Result<(ExitStatus, String, String)> {
        Ok((status, read_text(&self.out)?, read_text(&self.err)?))
    }
}

fn read_text(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A child process; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    stop: Stop,
}

impl Worker {
    fn spawn(mut command: Command, stop: &Stop) -> Result<Self> {
        let mut child = command.spawn().context("cannot start a process of the lab")?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = stdout.map(BufReader::new);
        Ok(Self { child, stdin, stdout, stop: stop.clone() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it is still running.
    pub(crate) fn still_runs(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Tells it to end, and waits for that even if a signal has arrived. `None` = it did not end in time.
    fn end(&mut self, within: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + within;
        if self.still_runs()? {
            kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        }
        while self.still_runs()? && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        Ok(self.child.try_wait()?)
    }

    /// Closes its standard input.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Sends it a line on its standard input.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        use std::io::Write as _;
        let stdin = self.stdin.as_mut().context("the worker's input is closed")?;
        writeln!(stdin, "{line}").context("a process of the lab has ended early")
    }

    /// Sends it a line and returns its answer, which is empty if it has ended.
    pub(crate) fn ask(&mut self, line: &str) -> Result<String> {
        self.tell(line)?;
        self.read_line()
    }

    fn expect_ready(&mut self) -> Result<()> {
        match self.read_line()?.as_str() {
            "ready\n" => Ok(()),
            "" => bail!("a process of the lab could not be set up, see above"),
            other => bail!("a process of the lab says `{}`", other.escape_default()),
        }
    }

    /// Its next line of output; empty at the end. Workers write whole lines, shorter than a pipe's atomic size.
    fn read_line(&mut self) -> Result<String> {
        let stdout = self.stdout.as_mut().context("the worker's output is not read")?;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let step = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        while stdout.buffer().is_empty() {
            self.stop.check()?;
            if Instant::now() > deadline {
                bail!("a process of the lab did not answer in {} s", ANSWER_TIMEOUT.as_secs());
            }
            let readable = PollFlags::IN;
            match poll(&mut [PollFd::new(stdout.get_ref(), readable)], Some(&step)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => return Err(error).context("cannot wait for a process of the lab"),
            }
        }
        let mut line = String::new();
        stdout.read_line(&mut line).context("cannot read what a process of the lab says")?;
        Ok(line)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
