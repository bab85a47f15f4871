// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A BPF object on its way into the kernel: opened, its programs chosen by name, loaded, attached, counted.

use crate::{TimedRuns, stats, verdict};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore as _, MapType, Object, ProgramMut};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Opens an object, which lives as long as this process.
pub(crate) fn open<B: SkelBuilder<'static>>(builder: B) -> Result<B::Output, String> {
    verdict::listen();
    // One small allocation for each probe: the skeleton borrows it.
    let storage = Box::leak(Box::new(MaybeUninit::uninit()));
    builder.open(storage).map_err(|error| format!("open BPF object: {error}"))
}

/// Lets the programs of these names be loaded, and no others.
pub(crate) fn choose<'obj>(open: &mut impl OpenSkel<'obj>, names: &[&str]) {
    for mut program in open.open_object_mut().progs_mut() {
        let wanted = program.name().to_str().is_some_and(|name| names.contains(&name));
        program.set_autoload(wanted);
    }
}

/// Loads the chosen programs.
pub(crate) fn load<'obj, O: OpenSkel<'obj>>(open: O) -> Result<O::Output, String> {
    open.load().map_err(|error| format!("load BPF programs: {error}{}", verdict::suffix()))
}

/// Attaches a loaded program.
pub(crate) fn attach<'obj>(skel: &impl Skel<'obj>, name: &str) -> Result<Link, String> {
    let attached = program(skel.object(), name)?.attach();
    attached.map_err(|error| format!("attach BPF program {name}: {error}"))
}

/// A descriptor of a loaded program.
pub(crate) fn descriptor<'obj>(skel: &impl Skel<'obj>, name: &str) -> Result<OwnedFd, String> {
    let descriptor = program(skel.object(), name)?.as_fd().try_clone_to_owned();
    descriptor.map_err(|error| format!("BPF program {name}: {error}"))
}

fn program<'o>(object: &'o Object, name: &str) -> Result<ProgramMut<'o>, String> {
    let mut programs = object.progs_mut();
    programs.find(|it| it.name() == name).ok_or_else(|| format!("no BPF program {name}"))
}

/// Kernel memory of an object's maps, in bytes.
pub(crate) fn map_bytes<'obj>(skel: &impl Skel<'obj>) -> u64 {
    let bytes = |map: libbpf_rs::Map<'_>| {
        let entry = match map.map_type() {
            MapType::RingBuf => 1,
            MapType::Hash => u64::from(map.key_size()) + u64::from(map.value_size()),
            _ => u64::from(map.value_size()),
        };
        entry * u64::from(map.max_entries())
    };
    skel.object().maps().map(bytes).sum()
}

/// Attached programs of an object. Dropping it detaches them.
pub(crate) struct Programs {
    _links: Vec<Link>,
    descriptors: Vec<(&'static str, OwnedFd)>,
}

impl Programs {
    /// Attaches the programs of these names, in this order. They must have been chosen.
    pub(crate) fn attach<'obj>(
        skel: &impl Skel<'obj>,
        names: &[&'static str],
    ) -> Result<Self, String> {
        let links = names.iter().map(|name| attach(skel, name)).collect::<Result<_, _>>()?;
        let descriptors = names.iter().map(|name| Ok((*name, descriptor(skel, name)?)));
        Ok(Self { _links: links, descriptors: descriptors.collect::<Result<_, String>>()? })
    }

    /// The timed runs of all of them so far, timed while [`crate::RunStats`] lived; `None` where the kernel does not
    /// report them.
    pub(crate) fn timed_runs(&self) -> Option<TimedRuns> {
        let timed = self.each().filter_map(|(_, program)| stats::timed_runs(program));
        timed.reduce(std::ops::Add::add)
    }

    /// Instructions that the kernel's verifier looked at to admit each of them.
    pub(crate) fn verified_instructions(&self) -> BTreeMap<&'static str, u64> {
        let counted = |(name, program)| Some((name, stats::verified_instructions(program)?));
        self.each().filter_map(counted).collect()
    }

    /// Events for which one of them was not run, because it was already running on that CPU.
    pub(crate) fn missed(&self) -> u64 {
        self.each().filter_map(|(_, program)| stats::missed(program)).sum()
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        self.descriptors.iter().map(|(name, program)| (*name, program.as_fd()))
    }
}
