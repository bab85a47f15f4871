// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes and threads that an experiment changes. Each is known by its number and its start time, so that one that got
//! the number later is never touched.

use deburr_core::procfs::{cpu_list, pid};
use deburr_core::prove::knob::Policy;
use deburr_sys::scheduling::{self, Scheduling};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpriority_process, pidfd_open, pidfd_send_signal,
    setpriority_process,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: i32,
    /// When it started, in ticks of the kernel's clock since boot.
    start_ticks: u64,
}

/// A thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Thread {
    /// The number of its process.
    pub(crate) pid: i32,
    /// Its own number.
    pub(crate) tid: i32,
    start_ticks: u64,
}

/// What can be changed of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Property {
    Nice,
    Policy,
    Affinity,
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nice => "the nice value",
            Self::Policy => "the scheduling policy",
            Self::Affinity => "the CPUs",
        })
    }
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} of process {}", self.tid, self.pid)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)
    }
}

/// The statistics of a process or a thread.
fn stat_of(path: &str) -> io::Result<pid::PidStat> {
    pid::stat(&fs::read(path)?).map_err(|error| io::Error::other(error.to_string()))
}

fn id(number: i32) -> io::Result<Pid> {
    Pid::from_raw(number).filter(|pid| pid.as_raw_pid() > 0).ok_or(io::Error::from(Errno::SRCH))
}

impl Process {
    /// The process that has this number now.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, start_ticks: stat_of(&format!("/proc/{pid}/stat"))?.start_ticks })
    }

    /// Its statistics now; an error if it has ended.
    pub(crate) fn stat(&self) -> io::Result<pid::PidStat> {
        let stat = stat_of(&format!("/proc/{}/stat", self.pid))?;
        let is_it = stat.start_ticks == self.start_ticks && !"ZX".contains(stat.state);
        if is_it { Ok(stat) } else { Err(Errno::SRCH.into()) }
    }

    /// Its first thread.
    pub(crate) fn main_thread(&self) -> Thread {
        Thread { pid: self.pid, tid: self.pid, start_ticks: self.start_ticks }
    }

    /// Its threads.
    pub(crate) fn threads(&self) -> io::Result<Vec<Thread>> {
        self.stat()?;
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid))?.flatten();
        let mut threads: Vec<Thread> = tasks
            .filter_map(|task| {
                let tid = task.file_name().to_str()?.parse().ok()?;
                let stat = stat_of(&format!("/proc/{}/task/{tid}/stat", self.pid)).ok()?;
                Some(Thread { pid: self.pid, tid, start_ticks: stat.start_ticks })
            })
            .collect();
        threads.sort_unstable();
        Ok(threads)
    }

    /// A handle that means this process even if its number is given to another one.
    pub(crate) fn handle(&self) -> io::Result<OwnedFd> {
        let handle = pidfd_open(id(self.pid)?, PidfdFlags::empty())?;
        // The number may have been another process's when the handle was opened; it is not if it is this one's now.
        self.stat()?;
        Ok(handle)
    }

    /// Lets it go on if it is stopped, or is about to stop.
    pub(crate) fn go_on(&self) -> io::Result<()> {
        match self.handle().and_then(|handle| Ok(pidfd_send_signal(handle, Signal::CONT)?)) {
            Err(error) if is_gone(&error) => Ok(()),
            told => told,
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::SRCH].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| gone.contains(&code))
}

impl Thread {
    /// An error unless this thread is there.
    fn check(&self) -> io::Result<()> {
        let stat = stat_of(&format!("/proc/{}/task/{}/stat", self.pid, self.tid))?;
        let is_it = stat.start_ticks == self.start_ticks && !"ZX".contains(stat.state);
        if is_it { Ok(()) } else { Err(Errno::SRCH.into()) }
    }

    /// A property, as text; `None` if the thread has ended.
    pub(crate) fn read(&self, property: Property) -> io::Result<Option<String>> {
        let read = || {
            let tid = id(self.tid)?;
            let text = match property {
                Property::Nice => getpriority_process(Some(tid))?.to_string(),
                Property::Policy => policy_text(scheduling::get(self.tid)?),
                Property::Affinity => {
                    let set = sched_getaffinity(Some(tid))?;
                    let cpus: Vec<u32> = (0..CpuSet::MAX_CPU as u32)
                        .filter(|&cpu| set.is_set(cpu as usize))
                        .collect();
                    cpu_list::format(&cpus)
                }
            };
            // It was this thread's only if it is still there.
            self.check()?;
            Ok(text)
        };
        match read() {
            Err(error) if is_gone(&error) => Ok(None),
            text => text.map(Some),
        }
    }

    /// Gives a property a value.
    pub(crate) fn write(&self, property: Property, value: &str) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let tid = id(self.tid)?;
        self.check()?;
        match property {
            Property::Nice => {
                setpriority_process(Some(tid), value.parse().map_err(|_| invalid())?)?;
            }
            Property::Policy => {
                scheduling::set(self.tid, policy_of(value).ok_or_else(invalid)?)?;
            }
            Property::Affinity => {
                let cpus = cpu_list::parse(value.as_bytes()).map_err(|_| invalid())?;
                let mut set = CpuSet::new();
                for cpu in cpus {
                    let cpu = cpu as usize;
                    if cpu >= CpuSet::MAX_CPU {
                        return Err(invalid());
                    }
                    set.set(cpu);
                }
                sched_setaffinity(Some(tid), &set)?;
            }
        }
        Ok(())
    }
}

/// What follows the text of a policy whose children start with the usual one.
const RESET: &str = "+reset";

/// The number of each policy that can be written again.
const POLICIES: [(&str, i32); 5] =
    [("other", 0), ("fifo", 1), ("rr", 2), ("batch", 3), ("idle", 5)];

fn policy_text(it: Scheduling) -> String {
    let name = POLICIES.iter().find(|(_, number)| *number == it.policy);
    let name = name.map_or_else(|| format!("policy-{}", it.policy), |(name, _)| (*name).to_owned());
    let priority = if it.priority > 0 { format!(":{}", it.priority) } else { String::new() };
    format!("{name}{priority}{}", if it.reset_on_fork { RESET } else { "" })
}

fn policy_of(text: &str) -> Option<Scheduling> {
    let bare = text.strip_suffix(RESET);
    let text = bare.unwrap_or(text);
    Policy::parse(text)?;
    let (name, priority) = text.split_once(':').unwrap_or((text, "0"));
    let (_, policy) = POLICIES.iter().find(|(other, _)| *other == name)?;
    Some(Scheduling {
        policy: *policy,
        priority: priority.parse().ok()?,
        reset_on_fork: bare.is_some(),
    })
}

/// The threads of a process that are not among the known ones and have a value which they can only have from a thread
/// that the experiment changed.
pub(crate) fn heirs(
    process: &Process,
    property: Property,
    value: &str,
    mut is_known: impl FnMut(&Thread) -> bool,
) -> Vec<Thread> {
    let threads = process.threads().unwrap_or_default().into_iter();
    let new = threads.filter(|thread| !is_known(thread));
    new.filter(|it| it.read(property).is_ok_and(|now| now.as_deref() == Some(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that ends when it is dropped.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Self(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
        }

        fn number(&self) -> i32 {
            i32::try_from(self.0.id()).unwrap()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_thread_has_what_it_was_given() {
        let sleeper = Sleeper::start();
        let process = Process::of(sleeper.number()).unwrap();
        let threads = process.threads().unwrap();
        let [thread] = threads.as_slice() else { panic!("{threads:?}") };
        let first = thread.read(Property::Affinity).unwrap().unwrap();
        let first = cpu_list::parse(first.as_bytes()).unwrap()[0].to_string();
        for (property, value) in
            [(Property::Nice, "7"), (Property::Policy, "batch"), (Property::Affinity, &first)]
        {
            thread.write(property, value).unwrap();
            assert_eq!(thread.read(property).unwrap().unwrap(), value);
        }
        assert!(thread.write(Property::Nice, "x").is_err());
        assert!(thread.write(Property::Policy, "policy-6").is_err());
        drop(sleeper);
        assert_eq!(thread.read(Property::Nice).unwrap(), None);
        assert!(thread.write(Property::Nice, "8").is_err());
    }

    #[test]
    fn who_got_the_number_later_is_not_touched() {
        let sleeper = Sleeper::start();
        let mut other = Process::of(sleeper.number()).unwrap();
        let real = other.threads().unwrap()[0];
        let before = real.read(Property::Nice).unwrap().unwrap();
        other.start_ticks -= 1;
        assert!(other.stat().is_err() && other.threads().is_err() && other.handle().is_err());
        other.go_on().unwrap();
        let thread = Thread { pid: other.pid, tid: other.pid, start_ticks: other.start_ticks };
        assert_eq!(thread.read(Property::Nice).unwrap(), None);
        assert!(thread.write(Property::Nice, "5").is_err());
        assert_eq!(real.read(Property::Nice).unwrap().unwrap(), before);
    }

    #[test]
    fn a_policy_reads_back_as_it_was_written() {
        for text in ["other", "batch+reset", "idle", "fifo:3", "rr:99+reset"] {
            assert_eq!(policy_text(policy_of(text).unwrap()), text);
        }
        for text in ["", "fifo", "fifo:0", "deadline", "+reset", "policy-6"] {
            assert_eq!(policy_of(text), None, "{text}");
        }
    }
}
