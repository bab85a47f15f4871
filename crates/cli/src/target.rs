// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the target that the user named. If it does not exist, the error lists what does.

use crate::args::Target;
use crate::collect::{Cgroups, Roots, has_ended, read_stat, walk_cgroups};
use crate::facts;
use deburr_core::procfs::pid;
use deburr_core::recording::{CgroupId, Container, TargetSpec};
use deburr_core::text::name;
use rustix::process::{Pid, test_kill_process};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Maximum number of existing candidates that an error lists.
const MAX_NEAR: usize = 5;
/// Entries of a directory among which they are looked for.
const MAX_ENTRIES: usize = 4096;
/// Minimum similarity of a suggested name (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.75;
/// Length to which the kernel cuts a comm, in bytes.
const COMM_BYTES: usize = 15;
/// Number of hex digits of a container id that are shown; 12 is customary.
const ID_DIGITS: usize = 12;

/// Why a target cannot be observed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("no process has the pid {pid}{}", list("; the nearest", near))]
    NoProcess { pid: u32, near: Vec<String> },
    #[error("`/proc` does not show process {pid} to this user (`hidepid`): run as root")]
    Hidden { pid: u32 },
    #[error("{tid} is a thread of process {pid} (`{comm}`): use `-p {pid}`")]
    Thread { tid: u32, pid: u32, comm: String },
    #[error("process {pid} (`{comm}`) has ended; its parent has not yet noticed")]
    Ended { pid: u32, comm: String },
    #[error("no process is named `{comm}`{}", list("; running and alike", near))]
    NoComm { comm: String, near: Vec<String> },
    #[error("no cgroup tree is mounted here, so there is no `{wanted}`")]
    NoTree { wanted: String },
    #[error(
        "there is no cgroup `{path}` in the tree at `{}`{}",
        tree.display(),
        list(&format!("; in `{above}`"), near)
    )]
    NoCgroup { path: String, tree: PathBuf, above: String, near: Vec<String> },
    #[error("there is no process in the cgroup `{path}` and below it")]
    Empty { path: String },
    #[error("no container has the name or id `{wanted}`{}", list("; on this host", near))]
    NoContainer { wanted: String, near: Vec<String> },
    #[error("`{wanted}` is more than one container{}", list("; give the id", matches))]
    Ambiguous { wanted: String, matches: Vec<String> },
}

/// `introduction: a, b, and 3 more`; empty if there are no items.
fn list(introduction: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let shown = items.iter().take(MAX_NEAR).cloned().collect::<Vec<_>>().join(", ");
    let more = match items.len().saturating_sub(MAX_NEAR) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{introduction}: {shown}{more}")
}

/// Finds the named target; `None` if no target was named.
pub(crate) fn resolve(named: &Target, roots: &Roots) -> Result<Option<TargetSpec>, TargetError> {
    let found = match named {
        Target { pid: Some(pid), .. } => process(roots, *pid)?,
        Target { comm: Some(comm), .. } => self::comm(roots, comm)?,
        Target { cgroup: Some(path), .. } => cgroup(roots, path)?,
        Target { container: Some(wanted), .. } => container(roots, wanted)?,
        _ => return Ok(None),
    };
    Ok(Some(found))
}

fn process(roots: &Roots, pid: u32) -> Result<TargetSpec, TargetError> {
    let Some(stat) = read_stat(roots, pid) else {
        let lives = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH));
        if lives && facts::others_are_hidden(roots) {
            return Err(TargetError::Hidden { pid });
        }
        return Err(TargetError::NoProcess { pid, near: nearest(roots, pid) });
    };
    // `/proc` also has an entry for every thread's id, which a listing does not show.
    let status = fs::read(roots.proc.join(pid.to_string()).join("status")).unwrap_or_default();
    match pid::status(&status).tgid {
        Some(tgid) if tgid != pid => {
            let comm = read_stat(roots, tgid).map_or(stat.comm, |stat| stat.comm);
            Err(TargetError::Thread { tid: pid, pid: tgid, comm })
        }
        _ if has_ended(&stat) => Err(TargetError::Ended { pid, comm: stat.comm }),
        _ => Ok(TargetSpec::Process { pid, comm: stat.comm }),
    }
}

/// The processes with the nearest pids, ascending.
fn nearest(roots: &Roots, wanted: u32) -> Vec<String> {
    let mut all = pids(roots);
    all.sort_by_key(|pid| (pid.abs_diff(wanted), *pid));
    all.truncate(3);
    all.sort_unstable();
    let described = |pid| Some(format!("{pid} (`{}`)", read_stat(roots, pid)?.comm));
    all.into_iter().filter_map(described).collect()
}

fn pids(roots: &Roots) -> Vec<u32> {
    let entries = fs::read_dir(&roots.proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Pids of the processes with that name, except this process.
pub(crate) fn pids_named(roots: &Roots, comm: &str) -> Vec<u32> {
    let own = std::process::id();
    let all = pids(roots).into_iter().filter(|pid| *pid != own);
    all.filter(|pid| read_stat(roots, *pid).is_some_and(|stat| stat.comm == comm)).collect()
}

fn comm(roots: &Roots, wanted: &str) -> Result<TargetSpec, TargetError> {
    let own = std::process::id();
    let others = pids(roots).into_iter().filter(|pid| *pid != own);
    let running: BTreeSet<String> =
        others.filter_map(|pid| Some(read_stat(roots, pid)?.comm)).collect();
    // The kernel keeps only the beginning of a longer name.
    let kept = name::decode(&wanted.as_bytes()[..wanted.len().min(COMM_BYTES)]);
    for comm in [wanted, &kept] {
        if running.contains(comm) {
            return Ok(TargetSpec::Comm { comm: comm.into() });
        }
    }
    let near = alike(wanted, running).into_iter().map(|comm| format!("`{comm}`")).collect();
    Err(TargetError::NoComm { comm: wanted.into(), near })
}

/// The names that contain the wanted name or resemble it, the most similar first.
fn alike(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let mut scored: Vec<(f64, String)> = names
        .into_iter()
        .map(|name| {
            let lower = name.to_lowercase();
            let contained = lower.contains(&wanted) || !lower.is_empty() && wanted.contains(&lower);
            (if contained { 1.0 } else { strsim::jaro_winkler(&lower, &wanted) }, name)
        })
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.into_iter().map(|(_, name)| name).collect()
}

/// The path of a cgroup from the root of its tree, as users give it: also as a directory of a mounted tree.
pub(crate) fn cgroup_path(roots: &Roots, given: &str) -> String {
    let path = Cgroups::open(roots).path_from_user(Path::new(given));
    path.map_or_else(|| given.to_owned(), |path| name::decode(&path))
}

fn cgroup(roots: &Roots, given: &str) -> Result<TargetSpec, TargetError> {
    let mut cgroups = Cgroups::open(roots);
    let (Some(path), Some(tree)) =
        (cgroups.path_from_user(Path::new(given)), cgroups.mount_point().map(Path::to_owned))
    else {
        return Err(TargetError::NoTree { wanted: given.into() });
    };
    if let Some(id) = cgroups.by_path(&path) {
        let path = cgroups.path_of(id).unwrap_or(given).to_owned();
        must_have_members(&cgroups, id, &path)?;
        return Ok(TargetSpec::Cgroup { path });
    }
    // Splits the path into its existing part and the rest.
    let mut above = path.as_slice();
    let mut missing: &[u8] = b"";
    let parent = loop {
        let Some(slash) = above.iter().rposition(|&b| b == b'/') else { break None };
        missing = &above[slash + 1..];
        above = &above[..slash];
        if let Some(id) = cgroups.by_path(if above.is_empty() { b"/" } else { above }) {
            break Some(id);
        }
    };
    let dir = parent.and_then(|id| cgroups.dir_of(id));
    let mut there: Vec<String> = dir.into_iter().flat_map(subdirs).collect();
    there.sort_unstable();
    let mut near = alike(&name::decode(missing), there.clone());
    if near.is_empty() {
        near = there;
    }
    Err(TargetError::NoCgroup {
        path: name::decode(&path),
        tree,
        above: parent.and_then(|id| cgroups.path_of(id)).unwrap_or("/").into(),
        near: near.into_iter().map(|name| format!("`{name}`")).collect(),
    })
}

fn subdirs(dir: &Path) -> Vec<String> {
    use std::os::unix::ffi::OsStrExt as _;
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| name::decode(entry.file_name().as_bytes())).collect()
}

fn must_have_members(cgroups: &Cgroups, id: CgroupId, path: &str) -> Result<(), TargetError> {
    match cgroups.dir_of(id).is_some_and(has_members) {
        true => Ok(()),
        false => Err(TargetError::Empty { path: path.into() }),
    }
}

/// Whether there is a process in the cgroup or below it. Also true if there are too many below it to tell.
fn has_members(dir: &Path) -> bool {
    // A threaded cgroup of v2 lists threads only.
    let listed = ["cgroup.procs", "cgroup.threads"];
    let mut found = false;
    let extent = walk_cgroups(dir, |visited| {
        found = listed.iter().any(|file| has_text(&visited.dir.join(file)));
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found || extent.cut
}

fn has_text(file: &Path) -> bool {
    let mut byte = [0];
    fs::File::open(file).and_then(|mut file| file.read(&mut byte)).is_ok_and(|read| read > 0)
}

fn container(roots: &Roots, wanted: &str) -> Result<TargetSpec, TargetError> {
    let mut cgroups = Cgroups::open(roots);
    if cgroups.mount_point().is_none() {
        return Err(TargetError::NoTree { wanted: wanted.into() });
    }
    cgroups.walk();
    let all = cgroups.containers();
    let is_it = |it: &Container| it.name.as_deref() == Some(wanted) || it.id == wanted;
    let mut found: Vec<&(Container, String)> = all.iter().filter(|(it, _)| is_it(it)).collect();
    if found.is_empty() && !wanted.is_empty() {
        found = all.iter().filter(|(it, _)| it.id.starts_with(wanted)).collect();
    }
    match found[..] {
        [] => {
            let called = |it: &Container| it.name.clone().unwrap_or_else(|| it.id.clone());
            let similar = alike(wanted, all.iter().map(|(it, _)| called(it)));
            let mut near: Vec<&Container> = all.iter().map(|(it, _)| it).collect();
            near.sort_by_key(|it| (!similar.contains(&called(it)), called(it)));
            let near = near.into_iter().map(|it| ContainerName(it).to_string()).collect();
            Err(TargetError::NoContainer { wanted: wanted.into(), near })
        }
        [(container, path)] => {
            if let Some(id) = cgroups.by_path(path.as_bytes()) {
                must_have_members(&cgroups, id, path)?;
            }
            Ok(TargetSpec::Container { container: container.clone(), path: path.clone() })
        }
        _ => Err(TargetError::Ambiguous {
            wanted: wanted.into(),
            matches: found.into_iter().map(|(it, _)| ContainerName(it).to_string()).collect(),
        }),
    }
}

/// Shows a container by its name, or by its id if it has none.
struct ContainerName<'a>(&'a Container);

impl fmt::Display for ContainerName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Container { runtime, id, name, pod, .. } = self.0;
        let id = id.get(..ID_DIGITS).unwrap_or(id);
        match (name, pod) {
            (Some(name), Some(pod)) => write!(f, "`{name}` of pod `{pod}` ({runtime} `{id}`)"),
            (Some(name), None) => write!(f, "`{name}` ({runtime} `{id}`)"),
            (None, _) => write!(f, "`{id}` ({runtime})"),
        }
    }
}

pub(crate) mod entries;
#[cfg(test)]
mod tests;
