// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of `/proc/PID/cgroup` and `/proc/PID/mountinfo`: together they say which directory holds the limits.

use super::{Described, Parsed, Parser, Taken};
use crate::procfs::mountinfo::{self, Mount};
use crate::procfs::pid_cgroup::{self, Membership};
use crate::transcript::engine::Context;
use crate::transcript::line::{Line, whole};

/// A container has some dozen mounts, a host some hundred.
const MAX: usize = 10_000;

/// The lines of `/proc/PID/cgroup`.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Memberships {
    /// Line and membership.
    pub(in crate::transcript) all: Vec<(u64, Membership)>,
}

/// The lines of `/proc/PID/mountinfo`.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Mounts {
    /// Line and mount.
    pub(in crate::transcript) all: Vec<(u64, Mount)>,
}

fn membership(line: &Line<'_>) -> Option<Membership> {
    let (hierarchy, rest) = line.text.split_once(':')?;
    whole::<u32>(hierarchy)?;
    let looks_right = rest.split_once(':').is_some_and(|(_, path)| path.starts_with('/'));
    let parsed = looks_right.then(|| pid_cgroup::parse(line.text.as_bytes()).ok()).flatten();
    parsed?.pop()
}

fn mount(line: &Line<'_>) -> Option<Mount> {
    let numbers =
        line.words.len() >= 9 && whole::<u64>(line.words[0]).is_some() && line.words.contains(&"-");
    let parsed = numbers.then(|| mountinfo::parse(line.text.as_bytes()).ok()).flatten();
    parsed?.pop()
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    membership(line).map(|_| Box::new(Memberships::default()) as Box<dyn Parser>)
}

pub(super) fn mounts_begin(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    mount(line).map(|_| Box::new(Mounts::default()) as Box<dyn Parser>)
}

impl Parser for Memberships {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        let Some(membership) = membership(line) else { return Taken::No };
        // The same hierarchy again: the file of another process.
        if self.all.iter().any(|(_, own)| own.hierarchy == membership.hierarchy) {
            return Taken::No;
        }
        if self.all.len() >= MAX {
            return Taken::Unread("more lines than a process has cgroups");
        }
        self.all.push((line.number, membership));
        Taken::Yes
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Cgroup(*self)
    }
}

impl Parser for Mounts {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        let Some(mount) = mount(line) else { return Taken::No };
        if self.all.len() >= MAX {
            return Taken::Unread("more than 10000 mounts");
        }
        self.all.push((line.number, mount));
        Taken::Yes
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Mounts(*self)
    }
}

impl Memberships {
    pub(super) fn describe(&self) -> Described {
        let v2 = self.all.iter().any(|(_, own)| own.hierarchy == 0);
        let v1 = self.all.iter().any(|(_, own)| own.hierarchy != 0);
        let layout = match (v1, v2) {
            (true, true) => "cgroup v1 and v2",
            (true, false) => "cgroup v1",
            _ => "cgroup v2",
        };
        Described::new("/proc/PID/cgroup", layout, self.all.len(), ["hierarchy", "hierarchies"])
    }
}

impl Mounts {
    pub(super) fn describe(&self) -> Described {
        let cgroups =
            self.all.iter().filter(|(_, mount)| mount.fs_type.starts_with("cgroup")).count();
        let layout = format!("{cgroups} of them cgroup trees");
        Described::new("/proc/PID/mountinfo", layout, self.all.len(), ["mount", "mounts"])
    }
}
