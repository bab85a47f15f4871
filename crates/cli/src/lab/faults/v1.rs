// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of cgroup v1 whose controller is in another tree than the CPU controller.

use crate::host::undo::write_setting;
use crate::lab::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use std::path::Path;

/// Moves the processes that one of the lab's cgroups contains now into a new cgroup of `tree` with these settings.
pub(super) fn move_members(
    stage: &mut Stage,
    tree: &Path,
    cgroup: &str,
    settings: &[(&str, String)],
) -> Result<()> {
    let name =
        format!("{}-{}", stage.cgroup_path().trim_start_matches('/'), cgroup.replace('/', "-"));
    let dir = tree.join(name);
    stage.make_foreign_cgroup(&dir)?;
    for (file, value) in settings {
        write_setting(&dir.join(file), value)?;
    }
    let members = stage.cgroup(cgroup)?.join("cgroup.procs");
    let pids = std::fs::read_to_string(&members)
        .with_context(|| format!("cannot read `{}`", members.display()))?;
    ensure!(!pids.trim().is_empty(), "cgroup `{cgroup}` has no processes");
    for pid in pids.lines() {
        write_setting(&dir.join("cgroup.procs"), pid)?;
    }
    Ok(())
}
