// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of cgroups, in whichever tree has the file.

use super::{Step, file};
use crate::failure::Failure;
use crate::host::cgroup::mounts_with;
use crate::host::place::Place;
use anyhow::{Context as _, Result};
use deburr_core::prove::knob::{Knob, Values};

pub(super) fn resolve(knob: &Knob) -> Result<Vec<Step>> {
    let (name, path) = (knob.lever().name, knob.subject());
    let controller = name.split('.').next().unwrap_or_default();
    let below = path.trim_start_matches('/');
    let mut is_there = false;
    for mount in mounts_with(controller)? {
        let directory = mount.join(below);
        is_there |= directory.is_dir();
        let file = directory.join(name);
        if file.is_file() {
            return Ok(vec![about_one_disk(knob, file::step(knob, &mount, &file)?)?]);
        }
    }
    Err(Failure::bad_input(if is_there {
        format!(
            "`{knob}`: the cgroup has no `{name}`: the file is of the other version of cgroups, or the controller \
             `{controller}` is not enabled for it"
        )
    } else {
        format!("`{knob}`: there is no such cgroup")
    }))
}

/// Files with a line for each disk: only the line of this disk is changed.
fn about_one_disk(knob: &Knob, step: Step) -> Result<Step> {
    let Step::Write { place: Place::File { file }, value } = step else { return Ok(step) };
    if !matches!(knob.lever().values, Values::IoMax | Values::DiskLimit) {
        return Ok(Step::Write { place: Place::File { file }, value });
    }
    let (device, value) = value.split_once(' ').context("a disk and its limit")?;
    Ok(Step::Write { place: Place::Line { file, device: device.into() }, value: value.into() })
}
