// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file of a [`super::server`]: mounted in the stage, and made slow or fast while it is in use.

use super::{FILE, WritesByMark};
use crate::host::guard::SERVERS;
use crate::host::undo::Undo;
use crate::lab::stage::{Job, Stage, Worker};
use crate::lab::victim::Window;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// A file in a mounted FUSE filesystem. The stage's janitor removes it.
#[derive(Debug)]
pub(crate) struct Served {
    server: Worker,
    file: PathBuf,
}

/// How a file is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServeOptions<'a> {
    /// Comm of its server, and name of the directory among the stage's scratch files.
    pub(crate) comm: &'a str,
    /// Its size, in MiB.
    pub(crate) size_mib: u64,
    /// Throughput, in million bytes per second.
    pub(crate) megabytes_per_s: u64,
}

impl Served {
    /// Creates the file, as fast as memory: see [`Self::set_base_us`].
    pub(crate) fn make(stage: &mut Stage, serving: ServeOptions<'_>) -> Result<Self> {
        let at = stage.scratch(serving.comm);
        fs::create_dir(&at).with_context(|| format!("cannot make `{}`", at.display()))?;
        stage.will_undo(&Undo::Mount { at: at.clone() })?;
        let what = [
            "disk".into(),
            format!("--at={}", at.display()),
            format!("--size-mib={}", serving.size_mib),
            format!("--bytes-per-us={}", serving.megabytes_per_s),
        ];
        let server = stage.start_one(&Job {
            comm: serving.comm,
            cgroup: SERVERS,
            cpus: None,
            nice: None,
            realtime: false,
            what: &what,
        })?;
        Ok(Self { server, file: at.join(FILE) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// Sets the fixed time of each request, in microseconds, to which the transfer of its bytes is added. 0 = as fast
    /// as memory.
    pub(crate) fn set_base_us(&mut self, base_us: u64) -> Result<()> {
        match self.server.ask(&format!("base_us {base_us}"))?.as_str() {
            "ok\n" => Ok(()),
            _ => bail!("the server of the lab's disk or file has ended early"),
        }
    }

    /// What was written to it in a window, by mark.
    pub(crate) fn written(&mut self, window: Window) -> Result<WritesByMark> {
        let answer = self.server.ask(&format!("written {window}"))?;
        serde_json::from_str(&answer).context("the server of the lab's disk has ended early")
    }

    /// Makes it as fast as memory, for good.
    pub(crate) fn close(&mut self) {
        self.server.close();
    }
}
