// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a snapshot reads, and how they are parsed: one table for each area. No other files are read.
//!
//! A line of a table is `CLASS FORM PATH`. In a path
//!
//! - `*` stands for a CPU, node, disk, ...: one fact for all of them. Next to letters it matches digits only (`cpu*`);
//! - `{}` stands for names with a meaning of their own: one fact for each. Next to letters it matches digits only;
//! - `$release` stands for the release of the running kernel;
//! - the text after a `#` names a part of the file; `{}` there stands for all parts.
//!
//! A form is `[memory:][SOURCE:]KIND`. `memory:` means that the kernel or an installer derives the number from the
//! amount of memory, so it may differ slightly between identical hosts. A source ([`Source`]) splits a file into parts.
//! Some sources define the type of their parts themselves and have no kind.

use super::form::Kind;
use super::{Area, Class, Unit};
use std::sync::OnceLock;

/// The tables, by area.
const TABLES: [(Area, &str); 15] = [
    (Area::Kernel, include_str!("kernel.txt")),
    (Area::Modules, include_str!("modules.txt")),
    (Area::Cpu, include_str!("cpu.txt")),
    (Area::Frequency, include_str!("frequency.txt")),
    (Area::Idle, include_str!("idle.txt")),
    (Area::Clock, include_str!("clock.txt")),
    (Area::Memory, include_str!("memory.txt")),
    (Area::Block, include_str!("block.txt")),
    (Area::Filesystem, include_str!("filesystem.txt")),
    (Area::Network, include_str!("network.txt")),
    (Area::Irq, include_str!("irq.txt")),
    (Area::Cgroup, include_str!("cgroup.txt")),
    (Area::Firmware, include_str!("firmware.txt")),
    (Area::Hypervisor, include_str!("hypervisor.txt")),
    (Area::Packages, include_str!("packages.txt")),
];

/// A fact that a snapshot reads: one line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What a difference in the value means.
    pub class: Class,
    /// Subject.
    pub area: Area,
    /// How the file is split into parts.
    pub source: Source,
    /// How the file or the part is parsed.
    pub kind: Kind,
    /// Whether the number is derived from the amount of memory, so it may differ slightly between identical hosts.
    pub scales_with_memory: bool,
    /// Path of the file, with `*` and `{}`.
    pub path: &'static str,
    /// Part of the file; `{}` stands for all parts.
    pub part: Option<&'static str>,
}

/// How a file is split into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Not at all: the file is one fact.
    Whole,
    /// Lines `Key: value`.
    Colon,
    /// Lines `Node N Key: value`.
    Node,
    /// Lines `KEY=value` with the quoting rules of a shell.
    Shell,
    /// `/proc/cpuinfo`: a block of lines `key : value` for each CPU.
    Cpuinfo,
    /// Parameters of the kernel's command line, one part each.
    Params,
    /// Entries of a boot loader (a directory), one part for each version of the kernel.
    Loader,
    /// `/proc/modules`: name and size, one part each.
    Modules,
    /// Configuration of modprobe, from all of its directories.
    Modprobe,
    /// Mounts of filesystems that hold user data, one part each.
    Mounts,
    /// Mounts of cgroup filesystems.
    CgroupMounts,
    /// `/proc/cgroups`: controllers, enabled or not.
    Cgroups,
    /// `/proc/swaps`.
    Swaps,
    /// dpkg's list of packages: kernel, firmware, and packages that tune a host, one part each.
    Dpkg,
    /// The same packages from rpm's SQLite database.
    Rpm,
    /// Settings of a network card, read over a netlink socket (`crate::snapshot::ethtool`) instead of a file.
    Ethtool,
    /// A list of packages in an unsupported format.
    Foreign,
}

impl Entry {
    /// Key of a fact of this entry: replaces the `{}` of the path by names, and appends the part. A `{}` without a name
    /// stays.
    #[must_use]
    pub fn key(&self, names: &[String], part: Option<&str>) -> String {
        let mut key = fill(self.path, names);
        if let Some(part) = part {
            key.push('#');
            key.push_str(part);
        }
        key
    }
}

/// Replaces the `{}` of a path by names, in order. A `{}` without a name stays.
#[must_use]
pub fn fill(path: &str, names: &[String]) -> String {
    let mut pieces = path.split("{}");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for (index, piece) in pieces.enumerate() {
        filled.push_str(names.get(index).map_or("{}", String::as_str));
        filled.push_str(piece);
    }
    filled
}

/// All entries, by area.
#[must_use]
pub fn entries() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        // Skips malformed lines; a test of this module finds them.
        tables().filter_map(|(area, line)| entry(area, line).ok()).collect()
    })
}

/// The entry of the fact with this key; `None` if this version does not read it.
#[must_use]
pub fn find(key: &str) -> Option<&'static Entry> {
    entries().iter().find(|entry| matches(entry, key))
}

/// Whether a fact with this key belongs to an entry.
fn matches(entry: &Entry, key: &str) -> bool {
    // Fast test that most entries fail.
    let fixed = entry.path.split("{}").next().unwrap_or_default();
    if !key.starts_with(fixed) {
        return false;
    }
    let Some(part) = entry.part else { return alike(entry.path, key) };
    // A path in the tables has no `#`, but a name in place of its `{}` may have one.
    let mut places = key.match_indices('#').map(|(at, _)| at);
    places.any(|at| alike(entry.path, &key[..at]) && (part == "{}" || part == &key[at + 1..]))
}

/// Whether a path matches a pattern, with a name in place of each `{}`.
fn alike(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) => {
                let fits = match pattern.split_once("{}") {
                    None => pattern == name,
                    Some((before, after)) => {
                        name.len() > before.len() + after.len()
                            && name.starts_with(before)
                            && name.ends_with(after)
                    }
                };
                if !fits {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

/// Lines of all tables, without comments and empty lines.
fn tables() -> impl Iterator<Item = (Area, &'static str)> {
    TABLES.into_iter().flat_map(|(area, table)| {
        let lines = table.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(move |line| (area, line))
    })
}

/// Parses a line of a table.
fn entry(area: Area, line: &'static str) -> Result<Entry, String> {
    let wrong = |what: &str| format!("{}: {what}: {line}", area.name());
    let (class, rest) = line.split_once(' ').ok_or_else(|| wrong("no class"))?;
    let (form, place) = rest.trim().split_once(' ').ok_or_else(|| wrong("no path"))?;
    let class = Class::ALL.into_iter().find(|known| known.name() == class);
    let place = place.trim();
    let (path, part) =
        place.split_once('#').map_or((place, None), |(path, part)| (path, Some(part)));
    let (memory, form) = form.strip_prefix("memory:").map_or((false, form), |form| (true, form));
    let (source, kind) = match form.split_once(':') {
        Some((source, kind)) => (Some(source), Some(kind)),
        None if source(form).is_some() => (Some(form), None),
        None => (None, Some(form)),
    };
    Ok(Entry {
        class: class.ok_or_else(|| wrong("unknown class"))?,
        area,
        source: match source {
            Some(name) => self::source(name).ok_or_else(|| wrong("unknown source"))?,
            None => Source::Whole,
        },
        kind: match kind {
            Some(name) => self::kind(name).ok_or_else(|| wrong("unknown kind"))?,
            None => Kind::Text,
        },
        scales_with_memory: memory,
        path,
        part,
    })
}

fn source(name: &str) -> Option<Source> {
    Some(match name {
        "colon" => Source::Colon,
        "node" => Source::Node,
        "shell" => Source::Shell,
        "cpuinfo" => Source::Cpuinfo,
        "params" => Source::Params,
        "loader" => Source::Loader,
        "modules" => Source::Modules,
        "modprobe" => Source::Modprobe,
        "mounts" => Source::Mounts,
        "cgroupmounts" => Source::CgroupMounts,
        "cgroups" => Source::Cgroups,
        "swaps" => Source::Swaps,
        "dpkg" => Source::Dpkg,
        "rpm" => Source::Rpm,
        "ethtool" => Source::Ethtool,
        "foreign" => Source::Foreign,
        _ => return None,
    })
}

fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "text" => Kind::Text,
        "auto" => Kind::Auto,
        "switch" => Kind::Switch,
        "list" => Kind::List,
        "list," => Kind::Commas,
        "lines" => Kind::Lines,
        "set" => Kind::Set,
        "words" => Kind::Words,
        "choice" => Kind::Choice,
        "flag" => Kind::Flag,
        "hash" => Kind::Hash,
        "acpi" => Kind::Acpi,
        "link" => Kind::Link,
        "exists" => Kind::Exists,
        "names" => Kind::Names,
        "number" => Kind::Number(None),
        _ => Kind::Number(Some(unit(name)?)),
    })
}

fn unit(name: &str) -> Option<Unit> {
    Some(match name {
        "bytes" => Unit::Bytes,
        "kib" => Unit::Kib,
        "pages" => Unit::Pages,
        "sectors" => Unit::Sectors,
        "khz" => Unit::Khz,
        "mhz" => Unit::Mhz,
        "ns" => Unit::Ns,
        "us" => Unit::Us,
        "ms" => Unit::Ms,
        "centiseconds" => Unit::Centiseconds,
        "seconds" => Unit::Seconds,
        "percent" => Unit::Percent,
        "mbit" => Unit::MbitPerS,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_line_of_every_table_is_understood() {
        for (area, line) in tables() {
            entry(area, line).unwrap();
        }
        assert!(entries().len() > 1000, "{}", entries().len());
        assert!(TABLES.iter().all(|(area, _)| entries().iter().any(|e| e.area == *area)));
    }

    #[test]
    fn no_fact_is_there_twice() {
        let mut seen = BTreeSet::new();
        for entry in entries() {
            assert!(seen.insert((entry.path, entry.part)), "{} {:?}", entry.path, entry.part);
        }
    }

    #[test]
    fn nothing_dangerous_slow_or_secret_is_read() {
        let forbidden = [
            "/sys/kernel/debug",
            "/sys/kernel/tracing",
            "/proc/kmsg",
            "/proc/kcore",
            "/proc/kallsyms",
            "clear_refs",
            "stat_refresh",
            "drop_caches",
            "compact_memory",
            "sysrq-trigger",
            "/config#",
            "/resource",
            "/rom",
            "/vpd",
            "/sections",
            "/refcnt",
            "serial",
            "uuid",
            "/environ",
            "secret",
            "rss_key",
            "fastopen_key",
            "hostname",
            "domainname",
            "/address",
            "ifalias",
            "wwid",
            "machine-id",
            "/etc/shadow",
            "/root",
            "/home",
            "current_link_speed",
        ];
        for entry in entries() {
            let exists = entry.kind == Kind::Exists;
            for word in forbidden {
                assert!(exists || !entry.path.contains(word), "{}: {word}", entry.path);
            }
            assert!(
                !entry.path.ends_with("/config") && !entry.path.contains("**"),
                "{}",
                entry.path
            );
            assert!(
                entry.path.starts_with('/') && entry.path.matches('*').count() <= 1,
                "{}",
                entry.path
            );
        }
    }

    #[test]
    fn a_fact_leads_back_to_its_entry() {
        for (key, class, memory) in [
            ("/proc/sys/vm/min_free_kbytes", Class::Configuration, true),
            ("/proc/cmdline#mitigations", Class::Configuration, false),
            ("/sys/devices/system/cpu/cpu*/cpuidle/state2/latency", Class::Capability, false),
            ("/proc/cpuinfo#model", Class::Capability, false),
            ("/sys/module/kvm/parameters/halt_poll_ns", Class::Configuration, false),
            ("/proc/self/mountinfo#/srv/a#b", Class::Configuration, false),
        ] {
            let entry = find(key).unwrap_or_else(|| panic!("{key}"));
            assert_eq!((entry.class, entry.scales_with_memory), (class, memory), "{key}");
        }
        assert_eq!(find("/proc/sys/vm/no_such"), None);
        assert_eq!(find("/sys/devices/system/cpu/cpu*/cpuidle/state/latency"), None);
        let entry = find("/sys/devices/system/cpu/cpu*/cpuidle/state2/latency").unwrap();
        assert!(entry.key(&["2".into()], None).ends_with("cpu*/cpuidle/state2/latency"));
    }
}
