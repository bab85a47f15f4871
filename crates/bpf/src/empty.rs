// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that do nothing, attached to the hooks of the probes: the baseline of overhead measurements.

use crate::io_facts::io_facts;
use crate::skel::empty::EmptySkelBuilder;
use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use std::mem::MaybeUninit;

/// The attached programs. Dropping it detaches them.
pub struct Empty {
    _skel: crate::skel::empty::EmptySkel<'static>,
    _links: Vec<Link>,
}

impl Empty {
    /// Attaches one program to `sched_switch`.
    ///
    /// # Errors
    /// The error of libbpf or the kernel.
    pub fn on_switch() -> Result<Self, libbpf_rs::Error> {
        Self::attach([true, false, false, false, false, false])
    }

    /// Attaches one program to each step of a block request that the block probe observes: queueing, creation (or
    /// insertion, where the kernel lacks a hook for creation), issue and completion.
    ///
    /// # Errors
    /// The error of libbpf or the kernel.
    pub fn on_block() -> Result<Self, libbpf_rs::Error> {
        let created = io_facts().hooks.contains_key("block_io_start");
        Self::attach([false, true, created, !created, true, true])
    }

    /// Loads and attaches the selected programs; `wanted` is in the order of the object's programs.
    fn attach(wanted: [bool; 6]) -> Result<Self, libbpf_rs::Error> {
        // One small allocation for the life of the process: the skeleton borrows it.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = EmptySkelBuilder::default().open(storage)?;
        let progs = &mut open.progs;
        for (program, wanted) in [
            &mut progs.on_switch,
            &mut progs.on_queue,
            &mut progs.on_start,
            &mut progs.on_insert,
            &mut progs.on_issue,
            &mut progs.on_complete,
        ]
        .into_iter()
        .zip(wanted)
        {
            program.set_autoload(wanted);
        }
        let mut skel = open.load()?;
        let progs = &mut skel.progs;
        let programs = [
            &mut progs.on_switch,
            &mut progs.on_queue,
            &mut progs.on_start,
            &mut progs.on_insert,
            &mut progs.on_issue,
            &mut progs.on_complete,
        ];
        let links = programs
            .into_iter()
            .zip(wanted)
            .filter(|(_, wanted)| *wanted)
            .map(|(program, _)| program.attach())
            .collect::<Result<_, _>>()?;
        Ok(Self { _skel: skel, _links: links })
    }
}
