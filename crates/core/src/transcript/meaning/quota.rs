// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/PID/cgroup` with `/proc/PID/mountinfo`: which directory holds the CPU limit of the process?

use super::Case;
use crate::procfs::mountinfo::Mount;
use crate::procfs::pid_cgroup::Membership;
use crate::recording::CgroupVersion;
use crate::text::Unit;
use crate::text::name::decode;
use crate::text::ticked;
use crate::transcript::document::{Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::Parsed;
use crate::transcript::layouts::cgroup::Memberships;

/// The membership that a CPU limit belongs to: v1's `cpu` controller, else v2.
fn of_cpu(all: &[(u64, Membership)]) -> Option<&(u64, Membership)> {
    let v1 = all.iter().find(|(_, own)| own.controllers.iter().any(|name| name == "cpu"));
    v1.or_else(|| all.iter().find(|(_, own)| own.version() == CgroupVersion::V2))
}

fn is_of(mount: &Mount, version: CgroupVersion) -> bool {
    match version {
        CgroupVersion::V1 => mount.fs_type == "cgroup" && mount.has_option("cpu"),
        CgroupVersion::V2 => mount.fs_type == "cgroup2",
    }
}

/// What is left of `path` below `root`; `None` if it is not at or below it.
fn below<'p>(root: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

pub(super) fn statement(case: &Case<'_>, section: &Section, of: &Memberships) -> Option<Statement> {
    let (line, own) = of_cpu(&of.all)?;
    let source = section.source_of((*line, *line));
    let path = decode(&own.path);
    let mounts: Vec<(&Section, u64, &Mount)> = case
        .sections
        .iter()
        .filter_map(|section| match &section.parsed {
            Parsed::Mounts(it) => {
                Some(it.all.iter().map(move |(line, mount)| (section, *line, mount)))
            }
            _ => None,
        })
        .flatten()
        .filter(|(.., mount)| is_of(mount, own.version()))
        .collect();
    let outside = own.path.split(|&byte| byte == b'/').any(|name| name == b"..");
    let found = mounts.iter().filter_map(|mount| Some((mount, below(&mount.2.root, &own.path)?)));
    // The mount that shows most of the tree.
    let found = found.filter(|_| !outside).min_by_key(|((.., mount), _)| mount.root.len());
    let Some(((table, at, mount), rest)) = found else {
        let why = match (outside, mounts.is_empty()) {
            (true, _) => "it is outside of the cgroup namespace in which the file was read",
            (_, true) => "the text holds no mount of that cgroup tree",
            _ => "no mount of that cgroup tree shows it",
        };
        let title = format!(
            "the cgroup with the CPU limit is {}, in no directory that the text shows: {why}",
            ticked(&path)
        );
        return Some(
            Statement::new("cgroup-directory", Weight::Open, title)
                .number("cgroup of the process", f64::from(own.hierarchy), Unit::Text, &source)
                .note(ticked(&path))
                .settled_by("deburr limits PID, on the host"),
        );
    };
    let point = decode(&mount.mount_point);
    let rest = decode(rest);
    let dir = match rest.as_str() {
        "" | "/" => point.clone(),
        rest => format!("{}{rest}", point.trim_end_matches('/')),
    };
    let files = match own.version() {
        CgroupVersion::V1 => "`cpu.cfs_quota_us` by `cpu.cfs_period_us`",
        CgroupVersion::V2 => "the first by the second number in `cpu.max`",
    };
    let title = format!("the CPU limit is in {}: {files} there", ticked(&dir));
    let mut statement = Statement::new("cgroup-directory", Weight::Fact, title)
        .number("cgroup of the process", f64::from(own.hierarchy), Unit::Text, &source)
        .note(ticked(&path))
        .number("root of the mount", mount.id as f64, Unit::Text, &table.source_of((*at, *at)))
        .note(ticked(&decode(&mount.root)))
        .cannot("the limit itself: the files in that directory are not in the text");
    if mount.root != b"/" {
        statement = statement
            .cannot("limits above it: the mount shows a part of the tree only, and a level above may be tighter");
    }
    if own.deleted {
        statement = statement
            .cannot("whether the directory is still there: the kernel says it was removed");
    }
    Some(statement.settled_by(format!("deburr limits PID, or `cat` of the files in {dir}")))
}
