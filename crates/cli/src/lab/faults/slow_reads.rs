// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file whose reads take long, as with a driver that queries firmware or a filesystem over a network.

use super::Fault;
use crate::lab::stage::Stage;
use anyhow::{Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlowReads {
    /// Time of each read of the file that the victim reads, in milliseconds.
    read_ms: u64,
}

impl Fault for SlowReads {
    fn validate(&self) -> Result<()> {
        ensure!((1..=2000).contains(&self.read_ms), "`fault.read_ms` must be 1 to 2000");
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!("each read of the victim's file takes {} ms", self.read_ms)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        stage.slow_file_mut()?.set_base_us(self.read_ms * 1000)
    }
}
