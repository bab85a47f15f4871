// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk of the speed that a scenario wants, whatever the host's own disks are: a file of a [`server`], a loop
//! device on it, and a filesystem on that.

mod served;
mod server;
mod write_log;

pub(crate) use served::{ServeOptions, Served};
use server::FILE;
pub(crate) use server::{DiskArgs, serve};
#[cfg(test)]
pub(crate) use write_log::MarkedWrites;
pub(crate) use write_log::WritesByMark;

use super::stage::Stage;
use crate::host::guard::SERVERS;
use crate::host::undo::Undo;
use anyhow::{Context as _, Result, ensure};
use rustix::mount::{MountFlags, mount};
use serde::Deserialize;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

/// CPU time that its server may use per second with real-time priority, in microseconds: more than it ever needs.
const SERVER_US_PER_S: u32 = 300_000;

/// A scenario's parameters of its disk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskSpec {
    /// Its size, in MiB.
    size_mib: u64,
    /// Fixed time of every request, in microseconds, to which the transfer of its bytes is added.
    pub(crate) base_us: u64,
    /// Throughput, in million bytes per second.
    megabytes_per_s: u64,
    #[serde(default = "default_scheduler")]
    scheduler: String,
}

fn default_scheduler() -> String {
    "mq-deadline".into()
}

impl DiskSpec {
    /// Refuses parameters that cannot work.
    pub(crate) fn validate(&self) -> Result<()> {
        // The disk is in memory.
        ensure!((64..=2048).contains(&self.size_mib), "`disk.size_mib` must be 64 to 2048");
        check_base_us("disk.base_us", self.base_us)?;
        ensure!(
            (1..=10_000).contains(&self.megabytes_per_s),
            "`disk.megabytes_per_s` must be 1 to 10000"
        );
        let is_name = |b: u8| b.is_ascii_lowercase() || b == b'-';
        ensure!(
            !self.scheduler.is_empty() && self.scheduler.bytes().all(is_name),
            "`disk.scheduler` must be the name of one"
        );
        Ok(())
    }

    /// A description in words.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{} MiB in memory, ext4 on a loop device over FUSE; a request takes {} us and {} MB/s",
            self.size_mib, self.base_us, self.megabytes_per_s
        )
    }
}

/// Rejects a time outside of 1 us to 1 s.
pub(crate) fn check_base_us(key: &str, base_us: u64) -> Result<()> {
    ensure!((1..=1_000_000).contains(&base_us), "`{key}` must be 1 to 1000000");
    Ok(())
}

/// A mounted disk. The stage's janitor removes it.
#[derive(Debug)]
pub(crate) struct Disk {
    backing: Served,
    mount: PathBuf,
    device: String,
}

impl Disk {
    /// Creates the disk, as fast as memory: see [`Self::served`].
    pub(crate) fn make(stage: &mut Stage, spec: &DiskSpec) -> Result<Self> {
        let at = stage.scratch("mnt");
        fs::create_dir(&at).with_context(|| format!("cannot make `{}`", at.display()))?;
        // Where real-time priority is not available, the host's other work slows the disk down.
        let _ = stage.allow_realtime(&stage.cgroup(SERVERS)?, SERVER_US_PER_S);
        let serving = ServeOptions {
            comm: "lab-disk",
            size_mib: spec.size_mib,
            megabytes_per_s: spec.megabytes_per_s,
        };
        let backing = Served::make(stage, serving)?;
        stage.will_undo(&Undo::Loop { backing: backing.path().to_owned() })?;
        let find = ["--find".as_ref(), "--show".as_ref(), backing.path()];
        let device = stage.tool("losetup", &find)?;
        let device = device.trim();
        let name = device.strip_prefix("/dev/").context("`losetup` names no device")?.to_owned();
        let queue = Path::new("/sys/block").join(&name).join("queue");
        change(stage, &queue.join("scheduler"), &spec.scheduler)?;
        change(stage, &queue.join("wbt_lat_usec"), "0")?;
        let options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner=0:0";
        let arguments = ["-q", "-F", "-m0", "-N16384", "-E", options, device];
        stage.tool("mkfs.ext4", &arguments.map(Path::new))?;
        stage.will_undo(&Undo::Mount { at: at.clone() })?;
        let data = CString::new("errors=continue")?;
        let flags = MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
        mount(device, &at, "ext4", flags, Some(data.as_c_str()))
            .with_context(|| format!("cannot mount `{device}`"))?;
        Ok(Self { backing, mount: at, device: name })
    }

    pub(crate) fn mount(&self) -> &Path {
        &self.mount
    }

    /// Directory in sysfs with the settings of its page cache (`/sys/class/bdi/MAJOR:MINOR`).
    pub(crate) fn bdi(&self) -> Result<PathBuf> {
        let file = Path::new("/sys/block").join(&self.device).join("dev");
        let number = fs::read_to_string(&file)
            .with_context(|| format!("cannot read `{}`", file.display()))?;
        Ok(Path::new("/sys/class/bdi").join(number.trim()))
    }

    /// The file that it is on, which makes it slow or fast and knows what was written.
    pub(crate) fn served(&mut self) -> &mut Served {
        &mut self.backing
    }
}

/// Changes a setting until the run ends. Settings that this kernel does not have are skipped.
pub(crate) fn change(stage: &mut Stage, file: &Path, value: &str) -> Result<()> {
    let Some(undo) = Undo::setting(file)? else { return Ok(()) };
    stage.change(&undo, file, value)
}
