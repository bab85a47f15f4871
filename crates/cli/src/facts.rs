// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about this host that decide what can be seen.

use crate::collect::Roots;
use deburr_core::procfs::mountinfo::{self, Mount};
use std::fs;

/// Whether `/proc` does not show this user the processes of others.
pub(crate) fn others_are_hidden(roots: &Roots) -> bool {
    if rustix::process::geteuid().is_root() {
        return false;
    }
    let text = fs::read(roots.proc.join("self/mountinfo")).unwrap_or_default();
    hides_others(&mountinfo::parse(&text).unwrap_or_default())
}

/// Whether the mount that is seen at `/proc` hides processes. The last mount at a place covers those before.
fn hides_others(mounts: &[Mount]) -> bool {
    let proc = mounts.iter().rfind(|mount| mount.mount_point == b"/proc");
    let modes = proc.into_iter().flat_map(|mount| &mount.super_options);
    modes
        .filter_map(|option| option.strip_prefix("hidepid="))
        .any(|mode| mode != "0" && mode != "off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_processes_are_told_by_the_mount_option() {
        let hides = |options: &str| {
            let line = format!("22 1 0:21 / /proc rw,nosuid - proc proc rw{options}\n");
            hides_others(&mountinfo::parse(line.as_bytes()).unwrap())
        };
        assert!(hides(",hidepid=2") && hides(",gid=4,hidepid=invisible"));
        assert!(!hides("") && !hides(",hidepid=off") && !hides(",hidepid=0"));
        assert!(!hides_others(&[]));
    }
}
