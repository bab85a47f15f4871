// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long an idle CPU may take to wake up: `/dev/cpu_dma_latency`. The wish holds while the file is open, so the kernel
//! itself takes it back when this process ends.

use super::Step;
use crate::failure::{Exit, Failure};
use anyhow::{Context as _, Result};
use deburr_core::prove::knob::Knob;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};

/// The name of the setting.
pub(super) const NAME: &str = "dma_latency_us";
const FILE: &str = "/dev/cpu_dma_latency";

pub(super) fn resolve(knob: &Knob) -> Result<Vec<Step>> {
    match OpenOptions::new().write(true).open(FILE) {
        Ok(_) => Ok(vec![Step::Latency { us: knob.value().parse()? }]),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::bad_input(format!(
            "`{knob}`: this host has no such setting (there is no `{FILE}`)"
        ))),
        Err(error) => {
            let way = "run it on the host, with `sudo`";
            Err(Failure::error(Exit::Missing, format!("`{knob}`: `{FILE}`: {error}: {way}")))
        }
    }
}

/// The wish in effect until this is dropped.
#[derive(Debug)]
pub(in crate::prove) struct Latency {
    _file: File,
}

impl Latency {
    /// Wishes for `us` microseconds at most.
    pub(in crate::prove) fn begin(us: i32) -> Result<Self> {
        let mut file = OpenOptions::new().write(true).open(FILE).context(FILE)?;
        file.write_all(&us.to_ne_bytes()).with_context(|| format!("cannot write `{FILE}`"))?;
        Ok(Self { _file: file })
    }
}
