// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A BPF object in the kernel: opened, configured, its programs chosen by name, loaded, attached, iterated and counted.
//! Every probe is one.

use crate::{TimedRuns, iterate, stats, verdict};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore as _, MapType, Object, ProgramMut};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, IntoRawFd as _, OwnedFd};

/// A loaded object. Dropping it detaches its programs.
pub(crate) struct LoadedObject<S> {
    links: Vec<(&'static str, Link)>,
    /// The loaded programs. The others of the object do not exist in the kernel.
    programs: Vec<(&'static str, OwnedFd)>,
    map_bytes: u64,
    pub(crate) skel: S,
}

impl<S: Skel<'static>> LoadedObject<S> {
    /// Opens an object, which lives as long as this process, lets `configure` set its constants and the sizes of its
    /// maps, and loads the programs of these names.
    pub(crate) fn load<B>(
        builder: B,
        names: &[&'static str],
        configure: impl FnOnce(&mut B::Output) -> libbpf_rs::Result<()>,
    ) -> Result<Self, String>
    where
        B: SkelBuilder<'static>,
        B::Output: OpenSkel<'static, Output = S>,
    {
        verdict::listen();
        // One small allocation for each probe: the skeleton borrows it.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open =
            builder.open(storage).map_err(|error| format!("open BPF object: {error}"))?;
        configure(&mut open).map_err(|error| format!("configure BPF: {error}"))?;
        for mut program in open.open_object_mut().progs_mut() {
            let wanted = program.name().to_str().is_some_and(|name| names.contains(&name));
            program.set_autoload(wanted);
        }
        let skel = open
            .load()
            .map_err(|error| format!("load BPF programs: {error}{}", verdict::suffix()))?;
        let descriptor = |name: &&'static str| {
            let descriptor = program(skel.object(), name)?.as_fd().try_clone_to_owned();
            Ok((*name, descriptor.map_err(|error| format!("BPF program {name}: {error}"))?))
        };
        let programs = names.iter().map(descriptor).collect::<Result<_, String>>()?;
        let map_bytes = skel.object().maps().map(|map| bytes_of(&map)).sum();
        Ok(Self { links: Vec::new(), programs, map_bytes, skel })
    }

    /// Attaches all loaded programs, in the order in which they were named.
    pub(crate) fn attach_all(&mut self) -> Result<(), String> {
        let names: Vec<_> = self.programs.iter().map(|(name, _)| *name).collect();
        names.into_iter().try_for_each(|name| self.attach(name))
    }

    /// Attaches a loaded program.
    pub(crate) fn attach(&mut self, name: &'static str) -> Result<(), String> {
        let attached = program(self.skel.object(), name)?.attach();
        let link = attached.map_err(|error| format!("attach BPF program {name}: {error}"))?;
        self.links.push((name, link));
        Ok(())
    }

    /// Has a loaded program run at each event of perf that this descriptor stands for. A program may be attached to many.
    pub(crate) fn attach_to_event(
        &mut self,
        name: &'static str,
        event: OwnedFd,
    ) -> Result<(), String> {
        let attached = program(self.skel.object(), name)?.attach_perf_event(event.as_raw_fd());
        let link = attached.map_err(|error| format!("attach BPF program {name}: {error}"))?;
        // libbpf closes the descriptor with the link.
        let _ = event.into_raw_fd();
        self.links.push((name, link));
        Ok(())
    }

    /// Detaches a program.
    pub(crate) fn detach(&mut self, name: &str) {
        self.links.retain(|(attached, _)| *attached != name);
    }

    /// Runs an attached iterator once over everything that it iterates over, and returns what it wrote.
    pub(crate) fn iterate(&self, name: &str) -> Result<Vec<u8>, String> {
        let failed = |error: &dyn std::fmt::Display| format!("BPF iterator {name}: {error}");
        let link = self.links.iter().find(|(attached, _)| *attached == name);
        let (_, link) = link.ok_or_else(|| failed(&"not attached"))?;
        let mut written = Vec::new();
        let mut iterator = Iter::new(link).map_err(|error| failed(&error))?;
        iterator.read_to_end(&mut written).map_err(|error| failed(&error))?;
        Ok(written)
    }

    /// Runs a loaded iterator once over what belongs to a process, or to all for pid 0, and returns what it wrote.
    pub(crate) fn iterate_process(&self, name: &str, pid: u32) -> Result<Vec<u8>, String> {
        let failed = |error: &dyn std::fmt::Display| format!("BPF iterator {name}: {error}");
        let program = self.each().find(|(loaded, _)| *loaded == name);
        let (_, program) = program.ok_or_else(|| failed(&"not loaded"))?;
        iterate::over_process(program, pid).map_err(|error| failed(&error))
    }

    /// Kernel memory of the maps, in bytes.
    pub(crate) fn map_bytes(&self) -> u64 {
        self.map_bytes
    }

    /// The timed runs of all programs so far, timed while [`crate::RunStats`] lived; `None` where the kernel does not
    /// report them.
    pub(crate) fn timed_runs(&self) -> Option<TimedRuns> {
        let timed = self.each().filter_map(|(_, program)| stats::timed_runs(program));
        timed.reduce(std::ops::Add::add)
    }

    /// The same for one program.
    pub(crate) fn timed_runs_of(&self, name: &str) -> Option<TimedRuns> {
        let (_, program) = self.each().find(|(loaded, _)| *loaded == name)?;
        stats::timed_runs(program)
    }

    /// Instructions that the kernel's verifier looked at to admit each program.
    pub(crate) fn verified_instructions(&self) -> BTreeMap<&'static str, u64> {
        let counted = |(name, program)| Some((name, stats::verified_instructions(program)?));
        self.each().filter_map(counted).collect()
    }

    /// Events for which a program was not run, because it was already running on that CPU.
    pub(crate) fn missed(&self) -> u64 {
        self.each().filter_map(|(_, program)| stats::missed(program)).sum()
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        self.programs.iter().map(|(name, program)| (*name, program.as_fd()))
    }
}

fn program<'o>(object: &'o Object, name: &str) -> Result<ProgramMut<'o>, String> {
    let mut programs = object.progs_mut();
    programs.find(|it| it.name() == name).ok_or_else(|| format!("no BPF program {name}"))
}

/// Kernel memory of a map, in bytes.
fn bytes_of(map: &libbpf_rs::Map<'_>) -> u64 {
    let entry = match map.map_type() {
        MapType::RingBuf => 1,
        MapType::Hash => u64::from(map.key_size()) + u64::from(map.value_size()),
        _ => u64::from(map.value_size()),
    };
    entry * u64::from(map.max_entries())
}
