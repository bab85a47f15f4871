// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of processes, disks and files in a trace, and the tracks of the former. Hidden characters are written out: the
//! names are made to be shown.

use super::tracks::{Trace, Track};
use deburr_core::recording::{DevId, Device, File, FileId, ProcId, Process};
use deburr_core::text::escape;
use std::collections::HashMap;
use std::io::{self, Write};

/// What is known by name so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    processes: HashMap<ProcId, (u32, String)>,
    process_tracks: HashMap<ProcId, Track>,
    devices: HashMap<DevId, String>,
    files: HashMap<FileId, String>,
}

/// A text with its hidden characters written out.
pub(super) fn shown(text: &str) -> String {
    escape::visible(text)
}

impl Names {
    pub(super) fn is_called(&mut self, process: &Process) {
        let comm = shown(&process.comm);
        let comm = if process.many { format!("{comm} (short-lived processes)") } else { comm };
        self.processes.insert(process.id, (process.pid, comm));
    }

    pub(super) fn device(&mut self, device: &Device) {
        self.devices.insert(device.dev, shown(&device.name));
    }

    pub(super) fn file(&mut self, file: &File) {
        self.files.insert(file.id, shown(&file.path));
    }

    /// Comm and process id.
    pub(super) fn of(&self, process: ProcId) -> String {
        match self.processes.get(&process) {
            Some((pid, comm)) => format!("{comm} [{pid}]"),
            None if process == ProcId::OTHERS => "many small processes".into(),
            None => format!("unknown process {}", process.0),
        }
    }

    /// Comm alone.
    pub(super) fn comm(&self, process: ProcId) -> String {
        self.processes.get(&process).map_or_else(|| self.of(process), |(_, comm)| comm.clone())
    }

    pub(super) fn device_name(&self, device: DevId) -> String {
        self.devices.get(&device).cloned().unwrap_or_else(|| device.to_string())
    }

    /// The path of a file, if one is known.
    pub(super) fn path(&self, file: FileId) -> String {
        let path = self.files.get(&file).filter(|path| !path.is_empty()).cloned();
        path.unwrap_or_else(|| "(no name is known)".into())
    }

    /// The track of a process.
    pub(super) fn process<W: Write>(
        &mut self,
        id: ProcId,
        trace: &mut Trace<W>,
    ) -> io::Result<Track> {
        if let Some(track) = self.process_tracks.get(&id) {
            return Ok(*track);
        }
        let track = match self.processes.get(&id) {
            Some((pid, comm)) => trace.process(*pid, comm)?,
            None => trace.track(None, &self.of(id))?,
        };
        self.process_tracks.insert(id, track);
        Ok(track)
    }

    /// The track of a disk.
    pub(super) fn disk<W: Write>(&self, device: DevId, trace: &mut Trace<W>) -> io::Result<Track> {
        let all = trace.track(None, "disks")?;
        trace.track(Some(all), &self.device_name(device))
    }
}
