// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which threads are watched, and what other probes need in order to look at them, too.

use super::SchedProbe;
use super::sleep::QUANTUM_NS;
use crate::mapped::{Plain, from_bytes, set};
use crate::skel::sched::types::{sched_thread, sched_watch};
use libbpf_rs::{MapCore as _, MapFlags};
use std::mem::offset_of;
use std::os::fd::{AsFd as _, OwnedFd};

// SAFETY: generated from a C struct of integers.
unsafe impl Plain for sched_watch {}

/// The table of the watched threads, and what the probe has found out about the kernel's memory.
#[derive(Debug)]
pub struct Watched {
    pub(crate) watches: OwnedFd,
    pub(crate) slots: u32,
    pub(crate) preempt_minus_rq: i64,
    pub(crate) regs_offset: u64,
}

impl SchedProbe {
    /// The table of the watched threads, for other probes; `None` = none are watched, or it cannot be shared.
    #[must_use]
    pub fn watched(&self) -> Option<Watched> {
        let maps = &self.object.skel.maps;
        let learned = maps.bss_data.as_deref().filter(|_| self.can_watch())?;
        Some(Watched {
            watches: maps.watches.as_fd().try_clone_to_owned().ok()?,
            slots: self.watch.mask + 1,
            preempt_minus_rq: self.preempt_minus_rq,
            regs_offset: learned.regs_offset,
        })
    }

    /// Begins to watch: nobody at first. Does nothing if the plan has no watch, or if it has begun. While there are more than
    /// `most_records` of sleeps in a second, each stands for more of them.
    ///
    /// # Errors
    /// The error of libbpf or the kernel, with the operation that failed.
    pub fn begin_watch(&mut self, most_records: u64) -> Result<(), String> {
        if self.names.waking.is_empty() || self.watches() {
            return Ok(());
        }
        self.learn_registers()?;
        for name in self.names.waking.clone() {
            self.object.attach(name)?;
        }
        self.watch.heads = vec![0; self.areas.len()];
        self.watch.most_records = most_records;
        let maps = &mut self.object.skel.maps;
        let data = maps.data_data.as_deref_mut().expect("the object has a data section");
        set(&mut data.sleep_quantum_ns, QUANTUM_NS);
        Ok(())
    }

    /// Learns where the kernel saves the registers of a system call, from one of this thread.
    fn learn_registers(&mut self) -> Result<(), String> {
        const NAME: &str = "on_own_call";
        // SAFETY: gettid has no arguments.
        let own_tid = || unsafe { libc::syscall(libc::SYS_gettid) };
        let tid = u32::try_from(own_tid()).unwrap_or_default();
        let maps = &mut self.object.skel.maps;
        set(&mut maps.bss_data.as_deref_mut().expect("the object has variables").own_tid, tid);
        self.object.attach(NAME)?;
        own_tid();
        self.object.detach(NAME);
        let maps = &mut self.object.skel.maps;
        let data = maps.bss_data.as_deref_mut().expect("the object has variables");
        // The registers are at the top of the stack, which has 64 kB at most.
        let offset = data.own_regs.wrapping_sub(data.own_stack);
        if data.own_regs != 0 && (1..1 << 16).contains(&offset) {
            set(&mut data.regs_offset, offset);
        }
        Ok(())
    }

    /// Whether sleeps of threads are recorded.
    pub(super) fn watches(&self) -> bool {
        !self.watch.heads.is_empty()
    }

    /// Whether sleeps of threads can be recorded.
    #[must_use]
    pub fn can_watch(&self) -> bool {
        !self.names.waking.is_empty()
    }

    /// Watches the threads of a process: those named, and all that it starts from now on. Of their sleeps in progress, what
    /// was before `now_ns`, on the run queues' clock, is not told.
    pub fn watch(&mut self, tgid: u32, tids: impl IntoIterator<Item = u32>, now_ns: u64) {
        let processes = &self.object.skel.maps.watched_processes;
        // Nothing is left of its ended threads. If there is no room, the threads that it has now are watched.
        let _ = processes.update(&tgid.to_ne_bytes(), &0i64.to_ne_bytes(), MapFlags::NO_EXIST);
        for tid in tids {
            let (places, found) = self.watches_at(tid);
            if found.iter().any(|it| it.tid == tid && it.ended == 0) {
                continue;
            }
            let free = found.iter().position(|it| it.tid == 0 || it.ended != 0);
            let Some(place) = free.map(|at| places[at]) else {
                self.watch.collisions += 1;
                continue;
            };
            let slot = self.slot_of(tid);
            let asleep_since = slot
                .map(|slot| self.threads.u64(slot as usize, offset_of!(sched_thread, since_ns)));
            let fresh = watch_on(tid, false, asleep_since.map(|since_ns| (since_ns, now_ns)));
            let _ = self.object.skel.maps.watches.update(&place, &fresh, MapFlags::ANY);
            self.set_watched(tid, true);
        }
    }

    /// The places that a thread's watch may have, and what is there.
    fn watches_at(&self, tid: u32) -> ([[u8; 4]; 2], [sched_watch; 2]) {
        let watches = &self.object.skel.maps.watches;
        let places = [tid, second_place(tid)].map(|it| (it & self.watch.mask).to_ne_bytes());
        let found = places.map(|place| {
            let read = watches.lookup(&place, MapFlags::ANY).ok().flatten();
            read.as_deref().and_then(from_bytes::<sched_watch>).unwrap_or_default()
        });
        (places, found)
    }

    /// A thread that has no slot yet looks for its watch when it gets one.
    fn set_watched(&self, tid: u32, watched: bool) {
        if let Some(slot) = self.slot_of(tid) {
            let watched = u8::from(watched);
            self.threads.set_u8(slot as usize, offset_of!(sched_thread, watched), watched);
        }
    }

    /// Whether processes that a watched one starts are watched from their beginning.
    pub fn watch_children(&mut self, children: bool) {
        let maps = &mut self.object.skel.maps;
        let data = maps.bss_data.as_deref_mut().expect("the object has variables");
        set(&mut data.watch_children, u32::from(children));
    }

    /// Watches a process no more: neither those of its threads that are named nor what it starts.
    pub fn watch_no_more(&mut self, tgid: u32, tids: impl IntoIterator<Item = u32>) {
        let _ = self.object.skel.maps.watched_processes.delete(&tgid.to_ne_bytes());
        for tid in tids {
            let (places, found) = self.watches_at(tid);
            let of_it = found.iter().position(|it| it.tid == tid && it.ended == 0);
            if let Some(place) = of_it.map(|at| places[at]) {
                // Not empty: a place that was never taken ends the search for those that have their second place.
                let ended = watch_on(tid, true, None);
                let _ = self.object.skel.maps.watches.update(&place, &ended, MapFlags::ANY);
            }
            self.set_watched(tid, false);
        }
    }
}

/// Where a watched thread is, if another one is at its first place; as in `sched_watch.bpf.h`.
fn second_place(tid: u32) -> u32 {
    tid.wrapping_mul(0x9e37_79b1) >> 7
}

/// The bytes of a watch on a thread, of which nothing is known yet. `told` = of a sleep that began then, the part until then
/// is accounted for.
fn watch_on(tid: u32, ended: bool, told: Option<(u64, u64)>) -> [u8; size_of::<sched_watch>()] {
    let mut watch = [0; size_of::<sched_watch>()];
    watch[offset_of!(sched_watch, tid)..][..4].copy_from_slice(&tid.to_ne_bytes());
    watch[offset_of!(sched_watch, ended)] = u8::from(ended);
    if let Some((since_ns, now_ns)) = told {
        let told_ns = now_ns.saturating_sub(since_ns);
        watch[offset_of!(sched_watch, told_since_ns)..][..8]
            .copy_from_slice(&since_ns.to_ne_bytes());
        watch[offset_of!(sched_watch, told_ns)..][..8].copy_from_slice(&told_ns.to_ne_bytes());
    }
    watch
}
