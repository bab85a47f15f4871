// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the page cache and of the disk itself. Those of the page cache apply to the whole host, so the janitor
//! keeps their previous values.

use super::Fault;
use crate::host::undo::Undo;
use crate::lab::disk::{change, check_base_us};
use crate::lab::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::path::Path;

/// How old dirty data may become, and how often the flusher wakes up.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WritebackKnobs {
    /// `vm.dirty_writeback_centisecs`, in both runs.
    writeback_centisecs: u32,
    /// `vm.dirty_expire_centisecs`.
    expire_centisecs: u32,
    /// The same without the fault: so long that no data expires.
    control_expire_centisecs: u32,
}

impl WritebackKnobs {
    fn set(&self, stage: &mut Stage, expire_centisecs: u32) -> Result<()> {
        let vm = Path::new("/proc/sys/vm");
        let writeback = self.writeback_centisecs.to_string();
        change(stage, &vm.join("dirty_writeback_centisecs"), &writeback)?;
        change(stage, &vm.join("dirty_expire_centisecs"), &expire_centisecs.to_string())
    }
}

impl Fault for WritebackKnobs {
    fn validate(&self) -> Result<()> {
        for (key, value) in [
            ("writeback_centisecs", self.writeback_centisecs),
            ("expire_centisecs", self.expire_centisecs),
            ("control_expire_centisecs", self.control_expire_centisecs),
        ] {
            ensure!((1..=360_000).contains(&value), "`fault.{key}` must be 1 to 360000");
        }
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "vm.dirty_writeback_centisecs {}, vm.dirty_expire_centisecs {} (else {})",
            self.writeback_centisecs, self.expire_centisecs, self.control_expire_centisecs
        )
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        self.set(stage, self.expire_centisecs)
    }

    fn leave_out(&self, stage: &mut Stage) -> Result<()> {
        self.set(stage, self.control_expire_centisecs)
    }
}

/// A limit on the dirty data of the disk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirtyLimit {
    /// The limit, in MiB.
    max_mib: u64,
}

impl Fault for DirtyLimit {
    fn validate(&self) -> Result<()> {
        ensure!((1..=1024).contains(&self.max_mib), "`fault.max_mib` must be 1 to 1024");
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!("at most {} MiB of dirty data for the disk (bdi max_bytes)", self.max_mib)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let bdi = stage.disk()?.bdi()?;
        // The kernel stores the limit as a share of memory. It refuses to be given the byte count that it shows for
        // 100 %.
        let share = Undo::setting(&bdi.join("max_ratio_fine"))?;
        let share = share.context("this kernel has no `max_ratio_fine`")?;
        stage.change(&share, &bdi.join("max_bytes"), &(self.max_mib << 20).to_string())?;
        change(stage, &bdi.join("strict_limit"), "1")
    }
}

/// A disk that needs more time for each request.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlowDisk {
    /// Fixed time of every request, in microseconds.
    base_us: u64,
}

impl Fault for SlowDisk {
    fn validate(&self) -> Result<()> {
        check_base_us("fault.base_us", self.base_us)
    }

    fn describe(&self, _cpus: usize) -> String {
        format!("the disk takes {} ms for every request", self.base_us as f64 / 1000.0)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        stage.disk()?.served().set_base_us(self.base_us)
    }
}
