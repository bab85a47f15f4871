// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which threads of the target serve requests, as the user says. A thread or a port that is not there is an error that
//! lists what is; a name may come later.

use super::{COMM_BYTES, alike, list, pids_named};
use crate::collect::{Cgroups, Roots, listening_in, walk_cgroups};
use deburr_core::recording::{ANY_END, Entry, TargetSpec};
use deburr_core::text::name::decode;
use deburr_core::text::ticked;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;

/// Threads of the target that are looked at.
const THREADS: usize = 20_000;

/// Why an entry cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EntryError {
    #[error(
        "`--entry` names threads of a target: give one, too (`-p`, `--comm`, `--cgroup`, `--container`)"
    )]
    NoTarget,
    #[error("`--entry {given}`: {expected}")]
    NotANumber { given: String, expected: &'static str },
    #[error("`--entry` without a name")]
    Empty,
    #[error("no thread of the target has the id {tid}{}", list("; its threads", there))]
    NoThread { tid: u32, there: Vec<String> },
    #[error(
        "nobody listens on port {port} where the target is{}",
        list("; ports on which somebody does", there)
    )]
    NoPort { port: u16, there: Vec<String> },
    #[error(
        "{given} is no thread of the target, and no port on which somebody listens there{}{}",
        list("; its threads", threads),
        list("; ports", ports)
    )]
    Neither { given: String, threads: Vec<String>, ports: Vec<String> },
    #[error("{given} is a thread of the target and a port: give `tid:{given}` or `port:{given}`")]
    Both { given: String },
}

/// What was found, and what the user should know of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) entries: Vec<Entry>,
    pub(crate) remarks: Vec<String>,
}

/// Finds the threads that `given` names. `target`: `None` = a command that has not started.
pub(crate) fn resolve(
    given: &[String],
    target: Option<&TargetSpec>,
    roots: &Roots,
) -> Result<Resolved, EntryError> {
    if given.is_empty() {
        return Ok(Resolved::default());
    }
    if target == Some(&TargetSpec::Host) {
        return Err(EntryError::NoTarget);
    }
    let there = target.map(|target| There::of(target, roots));
    let entries = given.iter().map(|text| one(text, there.as_ref()));
    let entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
    let remarks = entries.iter().filter_map(|it| there.as_ref()?.remark(it)).collect();
    Ok(Resolved { entries, remarks })
}

/// `there`: `None` = nothing yet, and anything may come.
fn one(given: &str, there: Option<&There>) -> Result<Entry, EntryError> {
    let wrong = |expected| EntryError::NotANumber { given: given.into(), expected };
    if let Some(tid) = given.strip_prefix("tid:") {
        let tid = tid.parse().map_err(|_| wrong("a thread's id is a number"))?;
        let threads = || there.map(There::threads).unwrap_or_default();
        return match there.is_some_and(|there| there.names.contains_key(&tid)) {
            true => Ok(Entry::Thread { tid }),
            false => Err(EntryError::NoThread { tid, there: threads() }),
        };
    }
    if let Some(port) = given.strip_prefix("port:") {
        let port = port.parse().ok().filter(|&port| port != 0);
        let port = port.ok_or_else(|| wrong("a port is a number from 1 to 65535"))?;
        return match there.is_none_or(|there| there.ports.contains(&port)) {
            true => Ok(Entry::Port { port }),
            false => {
                Err(EntryError::NoPort { port, there: there.map(There::ports).unwrap_or_default() })
            }
        };
    }
    if let Some(name) = given.strip_prefix("name:") {
        return named(name);
    }
    match (given.parse::<u32>(), there) {
        (Ok(number), Some(there)) => there.number(given, number),
        (Ok(number), None) => match u16::try_from(number).ok().filter(|&port| port != 0) {
            Some(port) => Ok(Entry::Port { port }),
            None => Err(EntryError::NoThread { tid: number, there: vec![] }),
        },
        (Err(_), _) => named(given),
    }
}

/// The kernel keeps only the beginning of a longer name.
fn named(name: &str) -> Result<Entry, EntryError> {
    let (name, end) = match name.strip_suffix(ANY_END) {
        Some(beginning) => (beginning, "*"),
        None => (name, ""),
    };
    let kept = decode(&name.as_bytes()[..name.len().min(COMM_BYTES)]);
    let name = kept + end;
    if name.is_empty() { Err(EntryError::Empty) } else { Ok(Entry::Name { name }) }
}

/// What of the target is there.
struct There {
    names: BTreeMap<u32, String>,
    ports: BTreeSet<u16>,
}

impl There {
    fn of(target: &TargetSpec, roots: &Roots) -> Self {
        let (mut names, mut ports) = (BTreeMap::new(), BTreeSet::new());
        let mut namespaces = BTreeSet::new();
        for pid in pids(target, roots) {
            let process = roots.proc.join(pid.to_string());
            let tasks = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
            for task in tasks.take(THREADS.saturating_sub(names.len())) {
                let tid = task.file_name().to_str().and_then(|name| name.parse().ok());
                let comm = fs::read(task.path().join("comm"));
                if let (Some(tid), Ok(comm)) = (tid, comm) {
                    names.insert(tid, decode(comm.trim_ascii_end()));
                }
            }
            if fs::read_link(process.join("ns/net")).is_ok_and(|it| namespaces.insert(it)) {
                for file in ["net/tcp", "net/tcp6"] {
                    ports.extend(listening_in(process.join(file)));
                }
            }
        }
        Self { names, ports }
    }

    fn number(&self, given: &str, number: u32) -> Result<Entry, EntryError> {
        let port = u16::try_from(number).ok().filter(|port| self.ports.contains(port));
        let given = given.to_owned();
        match (self.names.contains_key(&number), port) {
            (true, Some(_)) => Err(EntryError::Both { given }),
            (true, None) => Ok(Entry::Thread { tid: number }),
            (false, Some(port)) => Ok(Entry::Port { port }),
            (false, None) if self.names.values().any(|name| *name == given) => named(&given),
            (false, None) => {
                Err(EntryError::Neither { given, threads: self.threads(), ports: self.ports() })
            }
        }
    }

    fn threads(&self) -> Vec<String> {
        self.names.iter().map(|(tid, name)| format!("{tid} ({})", ticked(name))).collect()
    }

    fn ports(&self) -> Vec<String> {
        self.ports.iter().map(ToString::to_string).collect()
    }

    fn remark(&self, entry: &Entry) -> Option<String> {
        let Entry::Name { name } = entry else { return None };
        let names: BTreeSet<&String> = self.names.values().collect();
        if names.iter().any(|comm| entry.names(comm)) {
            return None;
        }
        let near = alike(name.trim_end_matches(ANY_END), names.iter().map(|&it| it.clone()));
        let near = if near.is_empty() { names.into_iter().cloned().collect() } else { near };
        let near: Vec<String> = near.iter().map(|name| ticked(name)).collect();
        let told = list("; its threads", &near);
        Some(format!("no thread of the target is named {} yet{told}", ticked(name)))
    }
}

/// The processes of the target.
fn pids(target: &TargetSpec, roots: &Roots) -> Vec<u32> {
    match target {
        TargetSpec::Host => vec![],
        TargetSpec::Process { pid, .. } | TargetSpec::Command { pid, .. } => vec![*pid],
        TargetSpec::Comm { comm } => pids_named(roots, comm),
        TargetSpec::Cgroup { path } | TargetSpec::Container { path, .. } => {
            let mut cgroups = Cgroups::open(roots);
            let dir = cgroups.by_path(path.as_bytes()).and_then(|id| cgroups.dir_of(id));
            let mut pids = Vec::new();
            if let Some(dir) = dir {
                walk_cgroups(dir, |visited| {
                    let text = fs::read_to_string(visited.dir.join("cgroup.procs"));
                    let text = text.unwrap_or_default();
                    pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
                    match pids.len() < THREADS {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                });
            }
            pids
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there() -> There {
        let names = [(40, "api"), (41, "worker-1"), (42, "worker-2"), (80, "flusher"), (90, "7")];
        let names = names.map(|(tid, name)| (tid, name.to_owned()));
        There { names: names.into(), ports: [80, 8080].into() }
    }

    #[test]
    fn what_is_there_decides_what_a_number_means() {
        let there = there();
        let of = |given| one(given, Some(&there));
        let named = |name: &str| Ok(Entry::Name { name: name.into() });
        assert_eq!(of("41"), Ok(Entry::Thread { tid: 41 }));
        assert_eq!(of("8080"), Ok(Entry::Port { port: 8080 }));
        assert_eq!(of("7"), named("7"));
        assert_eq!(of("80"), Err(EntryError::Both { given: "80".into() }));
        assert_eq!(of("tid:80"), Ok(Entry::Thread { tid: 80 }));
        assert_eq!(of("port:80"), Ok(Entry::Port { port: 80 }));
        assert_eq!(of("name:80"), named("80"));
        assert_eq!(of("worker-1"), named("worker-1"));
        assert_eq!(of("a-name-that-is-too-long*"), named("a-name-that-is-*"));
        // Of a command nothing is there yet.
        assert_eq!(one("80", None), Ok(Entry::Port { port: 80 }));
        assert_eq!(one("worker*", None), named("worker*"));
    }

    #[test]
    fn what_is_not_there_is_said_with_what_is() {
        let there = there();
        let said = |given, there| one(given, there).unwrap_err().to_string();
        let no_number = said("99", Some(&there));
        assert!(
            no_number.contains("41 (`worker-1`)") && no_number.contains("80, 8080"),
            "{no_number}"
        );
        let no_thread = said("tid:99", Some(&there));
        assert!(no_thread.contains("40 (`api`)") && !no_thread.contains("8080"), "{no_thread}");
        assert!(said("port:99", Some(&there)).ends_with(": 80, 8080"));
        assert!(said("port:70000", Some(&there)).contains("from 1 to 65535"));
        assert!(said("port:0", None).contains("from 1 to 65535"));
        assert!(said("tid:x", None).contains("a number"));
        for (given, no) in [("tid:1", "no thread"), ("70000", "no thread"), ("", "without a name")]
        {
            assert!(said(given, None).contains(no), "{given}");
        }
        let remark = |name: &str| there.remark(&Entry::Name { name: name.into() });
        assert_eq!((remark("worker*"), remark("api")), (None, None));
        let said = remark("work").unwrap();
        assert!(said.contains("`worker-1`, `worker-2`") && !said.contains("flusher"), "{said}");
        assert!(remark("zzz*").unwrap().contains("`flusher`"));
        let host = resolve(&["x".into()], Some(&TargetSpec::Host), &Roots::default());
        assert_eq!(host, Err(EntryError::NoTarget));
    }
}
