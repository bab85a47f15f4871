// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A victim whose threads wait for one of them: for a lock that it holds, in memory, of a file or in the kernel, or for work
//! that it hands out.

use super::scenario::check_period_us;
use super::stage::Stage;
use super::stalls::{Calls, For, Stalls};
use super::victim::{Summary, Window, compute, now_ns, sleep_until};
use super::victims::{Running, Victim, VictimSpec, WhichRun};
use anyhow::{Context as _, Result, ensure};
use deburr_sys::mutex::Mutex;
use deburr_sys::populate::populate;
use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::thread::{ClockId, set_name};
use serde::Deserialize;
use std::ffi::CStr;
use std::fs::File;
use std::io::BufRead as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex as Protected, PoisonError};
use std::time::Duration;

/// Bytes of a page.
const PAGE: usize = 4096;

/// A victim with workers, and one thread that they wait for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CrewSpec {
    workers: u32,
    waits_for: WaitsFor,
    /// Time from one request of a worker to the next, in microseconds.
    period_us: u64,
    /// Time for which the other thread holds the lock, or works before it hands out, in each of its periods, which are
    /// twice as long as this with the fault; in microseconds. Of an address space, the pages that it maps.
    hold_us: u64,
    /// The same in the control run.
    control_hold_us: u64,
    /// What it does meanwhile.
    #[serde(default)]
    meanwhile: Meanwhile,
    /// Time for which a worker sleeps in the middle of each work that is handed out, as if to try again, in microseconds;
    /// not in the control run.
    #[serde(default)]
    retry_us: u64,
}

/// What a thread does while others wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Meanwhile {
    #[default]
    Computes,
    Sleeps,
    /// Writes a file and syncs it, however long that takes.
    Syncs,
}

impl Meanwhile {
    fn word(self) -> &'static str {
        match self {
            Self::Computes => "computes",
            Self::Sleeps => "sleeps",
            Self::Syncs => "syncs",
        }
    }
}

/// What the workers wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WaitsFor {
    /// A lock.
    Lock,
    /// A lock of a file.
    FileLock,
    /// The lock of their address space.
    AddressSpace,
    /// The lock of an inode.
    Inode,
    /// Work that a dispatcher hands out.
    Thread,
}

impl Victim for CrewSpec {
    fn validate(&self, _cgroup: &str) -> Result<()> {
        ensure!((1..=64).contains(&self.workers), "`victim.crew.workers` must be 1 to 64");
        check_period_us("victim.crew.period_us", self.period_us)?;
        for (key, value) in [("hold_us", self.hold_us), ("control_hold_us", self.control_hold_us)] {
            ensure!((1..=1_000_000).contains(&value), "`victim.crew.{key}` must be 1 to 1000000");
        }
        ensure!(
            self.retry_us == 0
                || (self.waits_for == WaitsFor::Thread && self.retry_us <= self.hold_us),
            "`victim.crew.retry_us` must be at most `hold_us`, of work that a thread hands out"
        );
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        let ms = |us: u64| us as f64 / 1000.0;
        let does = self.meanwhile.word();
        let (waits, whom) = match self.waits_for {
            WaitsFor::Lock => ("needs a lock", "another thread holds it while it"),
            WaitsFor::FileLock => ("needs a lock of a file", "another thread holds it while it"),
            WaitsFor::AddressSpace => ("maps a page", "another thread maps"),
            WaitsFor::Inode => ("writes into a file", "another thread writes"),
            WaitsFor::Thread => ("waits for work", "a dispatcher hands it out after it"),
        };
        let (workers, hold, less) = (self.workers, self.hold_us, self.control_hold_us);
        let other = match self.waits_for {
            WaitsFor::AddressSpace | WaitsFor::Inode => {
                format!("{whom} {hold} pages at once, in the control run {less}")
            }
            _ if self.meanwhile == Meanwhile::Syncs => format!("{whom} syncs a file"),
            _ => {
                format!("{whom} {does} for {} ms, in the control run for {} ms", ms(hold), ms(less))
            }
        };
        let mut lines = vec![
            format!("{workers} threads, each of which {waits} every {} ms", ms(self.period_us)),
            other,
        ];
        if self.retry_us > 0 {
            let retry = ms(self.retry_us);
            lines.push(format!("for each work a worker sleeps {retry} ms, in the control run not"));
        }
        lines
    }

    fn needs_files(&self) -> bool {
        self.meanwhile == Meanwhile::Syncs
    }

    fn start(&self, spec: &VictimSpec, stage: &Stage, run: WhichRun<'_>) -> Result<Running> {
        let hold_us = if run.with_faults { self.hold_us } else { self.control_hold_us };
        let waits_for = match self.waits_for {
            WaitsFor::Lock => "lock",
            WaitsFor::FileLock => "file-lock",
            WaitsFor::AddressSpace => "address-space",
            WaitsFor::Inode => "inode",
            WaitsFor::Thread => "thread",
        };
        let file = match self.meanwhile {
            Meanwhile::Syncs => stage.files()?.join("state"),
            _ => stage.scratch("lock"),
        };
        let what = [
            "crew".into(),
            format!("--waits-for={waits_for}"),
            format!("--workers={}", self.workers),
            format!("--period-us={}", self.period_us),
            format!("--hold-us={hold_us}"),
            format!("--pause-us={}", 2 * self.hold_us - hold_us),
            format!("--file={}", file.display()),
            format!("--meanwhile={}", self.meanwhile.word()),
            format!("--retry-us={}", if run.with_faults { self.retry_us } else { 0 }),
        ];
        spec.start_worker(stage, &what)
    }
}

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct CrewArgs {
    #[arg(long)]
    waits_for: WaitsFor,
    #[arg(long)]
    workers: u32,
    #[arg(long)]
    period_us: u64,
    /// Time for which the lock is held, or until work is handed out
    #[arg(long)]
    hold_us: u64,
    /// Time until that begins again
    #[arg(long)]
    pause_us: u64,
    /// File whose lock they wait for, or that is synced meanwhile
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    meanwhile: Meanwhile,
    /// Time for which a worker sleeps in the middle of its work
    #[arg(long)]
    retry_us: u64,
}

impl CrewArgs {
    /// Each thread has the file open itself: a lock belongs to that.
    fn open(&self) -> Result<File> {
        let open = File::options().create(true).write(true).truncate(false).open(&self.file);
        open.with_context(|| format!("cannot open `{}`", self.file.display()))
    }

    /// Not where work is handed out that is late: each thread that is woken runs before the one that wakes them, and what
    /// measuring takes delays all others.
    fn measures_sleep(&self) -> bool {
        self.waits_for != WaitsFor::Thread || self.meanwhile == Meanwhile::Sleeps
    }

    fn stalls(&self) -> Result<Stalls> {
        if self.measures_sleep() { Stalls::of_this_thread() } else { Ok(Stalls::unmeasured()) }
    }
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// A file in memory.
    memory: Option<File>,
    lock: Mutex,
    /// When the last work was due that was handed out.
    work: Protected<u64>,
    handed_out: Condvar,
}

impl Shared {
    /// Writes into the file in memory. The kernel holds the lock of its inode meanwhile.
    fn write(&self, bytes: &[u8]) -> Result<()> {
        self.memory.as_ref().map_or(Ok(()), |file| file.write_all_at(bytes, 0))?;
        Ok(())
    }
}

/// Works from the first line on standard input to the second, which gives a [`Window`]. Prints the [`Summary`] of that
/// window as JSON.
pub(crate) fn work_until_told(args: &CrewArgs) -> Result<()> {
    let mut stdin = std::io::stdin().lock();
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    line.clear();
    let memory = match args.waits_for {
        WaitsFor::Inode => Some(memfd_create("journal", MemfdFlags::CLOEXEC)?.into()),
        _ => None,
    };
    let shared = Shared { memory, ..Shared::default() };
    let (answers, calls, led) = std::thread::scope(|scope| {
        let leader = scope.spawn(|| lead(args, &shared));
        let worker = |_| scope.spawn(|| work(args, &shared));
        let workers: Vec<_> = (0..args.workers).map(worker).collect();
        let told = stdin.read_line(&mut line);
        shared.stop.store(true, Ordering::Relaxed);
        let (mut answers, mut calls) = (Vec::new(), Calls::default());
        for worker in workers {
            let (own, slept) = worker.join().expect("a worker does not panic")?;
            answers.extend(own);
            calls.extend(slept);
        }
        let led = leader.join().expect("the leader does not panic")?;
        told?;
        anyhow::Ok((answers, calls, led))
    })?;
    let window: Window = line.parse()?;
    let summary = Summary::of_answers(&answers, window);
    let slept = calls.within(window).beside(led.within(window));
    let summary = Summary { slept: args.measures_sleep().then_some(slept), ..summary };
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}

fn name(it: &CStr) {
    // Only for the report: it works under any name.
    let _ = set_name(it);
}

/// Holds the lock, or hands out work.
fn lead(args: &CrewArgs, shared: &Shared) -> Result<Calls> {
    name(match args.waits_for {
        WaitsFor::Lock | WaitsFor::FileLock => c"holder",
        WaitsFor::AddressSpace => c"mapper",
        WaitsFor::Inode => c"writer",
        WaitsFor::Thread => c"dispatcher",
    });
    let file = args.open()?;
    let mut stalls = args.stalls()?;
    let hold = |stalls: &mut Stalls| -> Result<()> {
        let sleep = || std::thread::sleep(Duration::from_micros(args.hold_us));
        match args.meanwhile {
            Meanwhile::Computes => compute(args.hold_us * 1000),
            Meanwhile::Sleeps => stalls.during(For::Timer, sleep),
            Meanwhile::Syncs => {
                file.write_all_at(&[1; PAGE], 0)?;
                stalls.during(For::Disk, || file.sync_all())?;
            }
        }
        Ok(())
    };
    let pages = usize::try_from(args.hold_us)? * PAGE;
    let much = vec![1; if args.waits_for == WaitsFor::Inode { pages } else { 0 }];
    while !shared.stop.load(Ordering::Relaxed) {
        let due_ns = now_ns(ClockId::Monotonic);
        match args.waits_for {
            WaitsFor::Lock => {
                let _held = stalls.during(For::Others, || shared.lock.lock());
                hold(&mut stalls)?;
            }
            WaitsFor::FileLock => {
                stalls.during(For::Others, || flock(&file, FlockOperation::LockExclusive))?;
                hold(&mut stalls)?;
                flock(&file, FlockOperation::Unlock)?;
            }
            WaitsFor::AddressSpace => stalls.during(For::Others, || populate(pages))?,
            WaitsFor::Inode => stalls.during(For::Others, || shared.write(&much))?,
            WaitsFor::Thread => {
                hold(&mut stalls)?;
                *shared.work.lock().unwrap_or_else(PoisonError::into_inner) = due_ns;
                shared.handed_out.notify_all();
            }
        }
        let pause = || std::thread::sleep(Duration::from_micros(args.pause_us));
        stalls.during(For::Timer, pause);
    }
    // The last ones that wait.
    *shared.work.lock().unwrap_or_else(PoisonError::into_inner) = u64::MAX;
    shared.handed_out.notify_all();
    Ok(stalls.calls())
}

/// When each request was due and when it was done, in nanoseconds.
type Answers = Vec<(u64, u64)>;

fn work(args: &CrewArgs, shared: &Shared) -> Result<(Answers, Calls)> {
    name(c"worker");
    let file = args.open()?;
    let (mut answers, mut stalls) = (Vec::new(), args.stalls()?);
    let mut due_ns = now_ns(ClockId::Monotonic);
    while !shared.stop.load(Ordering::Relaxed) {
        if args.waits_for != WaitsFor::Thread {
            stalls.during(For::Timer, || sleep_until(due_ns));
        }
        match args.waits_for {
            WaitsFor::Lock => drop(stalls.during(For::Others, || shared.lock.lock())),
            WaitsFor::FileLock => {
                stalls.during(For::Others, || flock(&file, FlockOperation::LockExclusive))?;
                flock(&file, FlockOperation::Unlock)?;
            }
            WaitsFor::AddressSpace => stalls.during(For::Others, || populate(PAGE))?,
            WaitsFor::Inode => stalls.during(For::Others, || shared.write(&[2]))?,
            WaitsFor::Thread => {
                let last = due_ns;
                let wait = || {
                    let work = shared.work.lock().unwrap_or_else(PoisonError::into_inner);
                    let work = shared.handed_out.wait_while(work, |due| *due <= last);
                    *work.unwrap_or_else(PoisonError::into_inner)
                };
                due_ns = stalls.during(For::Idle, wait);
                if args.retry_us > 0 {
                    let retry = || std::thread::sleep(Duration::from_micros(args.retry_us));
                    stalls.during(For::Timer, retry);
                }
            }
        }
        let done_ns = now_ns(ClockId::Monotonic);
        if due_ns < u64::MAX {
            answers.push((due_ns, done_ns));
        }
        if args.waits_for != WaitsFor::Thread {
            due_ns = (due_ns + args.period_us * 1000).max(done_ns);
        }
    }
    Ok((answers, stalls.calls()))
}
