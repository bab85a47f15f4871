// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/PID/cgroup`: which cgroup of each hierarchy a process is in.

use super::{ParseError, Position, lines, number};
use crate::recording::CgroupVersion;

/// Suffix that the kernel appends to the path of a removed directory.
pub const DELETED: &[u8] = b" (deleted)";

/// The cgroup of a process in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Hierarchy number; 0 is cgroup v2.
    pub hierarchy: u32,
    /// v1 controllers of the hierarchy (`cpu`, `cpuacct`, `name=systemd`); empty for v2.
    pub controllers: Vec<String>,
    /// Path from the root of the *reader's* cgroup namespace; starts with `/..` if it is outside of that namespace.
    pub path: Vec<u8>,
    /// Whether [`DELETED`] was stripped from the path: the directory was removed, or its name has the same suffix.
    pub deleted: bool,
}

impl Membership {
    /// Version of the interface of this hierarchy.
    #[must_use]
    pub fn version(&self) -> CgroupVersion {
        if self.hierarchy == 0 { CgroupVersion::V2 } else { CgroupVersion::V1 }
    }
}

/// Parses the file.
///
/// # Errors
/// If a line is not `number:controllers:/path`.
pub fn parse(text: &[u8]) -> Result<Vec<Membership>, ParseError> {
    let mut memberships = Vec::new();
    for (line, bytes) in lines(text).filter(|(_, bytes)| !bytes.is_empty()) {
        let at = Position { file: "/proc/PID/cgroup", line };
        let mut parts = bytes.splitn(3, |&b| b == b':');
        let hierarchy = at.number("hierarchy", parts.next())?;
        let controllers = parts.next().ok_or_else(|| at.error("controllers", "a list"))?;
        let path = parts.next().filter(|path| path.starts_with(b"/"));
        let path = path.ok_or_else(|| at.error("path", "a path from `/`"))?;
        let alive = path.strip_suffix(DELETED);
        memberships.push(Membership {
            hierarchy,
            controllers: String::from_utf8_lossy(controllers)
                .split(',')
                .filter(|controller| !controller.is_empty())
                .map(str::to_owned)
                .collect(),
            path: alive.unwrap_or(path).to_vec(),
            deleted: alive.is_some(),
        });
    }
    Ok(memberships)
}

/// The pids in `cgroup.procs`. Lines that are not a number are skipped.
#[must_use]
pub fn procs(text: &[u8]) -> Vec<u32> {
    lines(text).filter_map(|(_, line)| number(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::{parse, procs};
    use crate::recording::CgroupVersion;

    const MIXED: &[u8] =
        b"4:memory:/a\n3:cpuset:/set\n2:cpu,cpuacct:/docker/x:y (deleted)\n1:name=systemd:/\n0::/u\n";

    #[test]
    fn each_hierarchy_is_a_membership() {
        let all = parse(MIXED).unwrap();
        let of = |name: &str| all.iter().find(|it| it.controllers.iter().any(|own| own == name));
        let cpu = of("cpu").unwrap();
        assert_eq!(cpu.version(), CgroupVersion::V1);
        assert_eq!((cpu.path.as_slice(), cpu.deleted), (b"/docker/x:y".as_slice(), true));
        assert_eq!(of("cpuset").unwrap().path, b"/set");
        assert_eq!(
            (all[4].version(), all[4].path.as_slice()),
            (CgroupVersion::V2, b"/u".as_slice())
        );
    }

    #[test]
    fn a_damaged_line_is_named() {
        assert_eq!(parse(b"0::/\nx::/\n").unwrap_err().line, 2);
        assert_eq!(parse(b"1:cpu\n").unwrap_err().item, "path");
    }

    #[test]
    fn procs_are_numbers() {
        assert_eq!(procs(b"1\n22\nx\n"), [1, 22]);
    }
}
