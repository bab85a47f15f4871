// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of cgroups, in whichever tree has the file.

use super::{Step, file};
use crate::failure::Failure;
use crate::host::cgroup::mounts_with;
use crate::host::place::{DEFAULT, Place};
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
            return Ok(vec![one_line(knob, file::step(knob, &mount, &file)?)?]);
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

/// Of files with a line for each disk only one line is changed: that of a disk, or the one for all that have none.
fn one_line(knob: &Knob, step: Step) -> Result<Step> {
    let Step::Write { place: Place::File { file }, value } = step else { return Ok(step) };
    let place = |device: &str| Place::Line { file: file.clone(), device: device.into() };
    Ok(match knob.lever().values {
        Values::IoMax | Values::DiskLimit => {
            let (device, value) = value.split_once(' ').context("a disk and its limit")?;
            Step::Write { place: place(device), value: value.into() }
        }
        _ if knob.lever().name == "io.weight" => Step::Write { place: place(DEFAULT), value },
        _ => Step::Write { place: Place::File { file }, value },
    })
}
