// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flusher's work as passes. It comes in pieces of some 100 ms, which belong to one pass while the pauses between
//! them are short.

use super::inode::Inode;
use crate::collect::kept::Recent;
use deburr_core::recording::{DevId, ProcId, WritebackPass};
use std::collections::{BTreeMap, HashMap};

/// Pieces that are no further apart belong to one pass.
const PAUSE_NS: u64 = 1_000_000_000;
/// The requests of a pass end within this time after it.
const LAG_NS: u64 = 2_000_000_000;
/// The dirtier is known for this many of the latest dirtied inodes at least, if they became dirty within this time: the
/// kernel writes them after half a minute.
const DIRTIERS: usize = 65_536;
const DIRTY_FOR_NS: u64 = 300_000_000_000;
/// Number of processes that a pass names, of those that dirtied inodes and of those that asked for it.
const NAMED: usize = 16;

/// Device and reason: the flusher's work of one kind.
pub(super) type PassKind = (DevId, u8);

/// The amounts of a pass so far.
#[derive(Clone, Debug, Default)]
struct Pass {
    t0_ns: u64,
    t1_ns: u64,
    /// Pieces in progress.
    open: u32,
    inodes: u64,
    bytes: u64,
    ios: u64,
    ages: BTreeMap<u32, u32>,
    since_last: BTreeMap<u32, u32>,
    dirtied_by: BTreeMap<ProcId, u32>,
    asked_by: BTreeMap<ProcId, u32>,
}

/// The passes in progress, and which process dirtied which inode.
#[derive(Debug, Default)]
pub(super) struct Passes {
    passes: BTreeMap<PassKind, Pass>,
    /// Time and process of the last request for a pass that has not begun.
    asked: BTreeMap<PassKind, (u64, ProcId)>,
    /// What each worker thread works on, by thread id.
    workers: HashMap<u32, PassKind>,
    /// Inode's fingerprint -> the process that dirtied it last.
    dirtiers: Recent<u64, ProcId, DIRTIERS>,
    /// When dirtiers were last forgotten.
    dirtiers_since_ns: u64,
    ended: Vec<(PassKind, Pass)>,
}

impl Passes {
    /// A worker thread begins a piece.
    pub(super) fn began(&mut self, t_ns: u64, worker: u32, kind: PassKind) {
        // The end of the worker's last piece was not seen.
        if let Some(before) = self.workers.insert(worker, kind) {
            self.close(t_ns, before);
        }
        if let Some(pass) = self.passes.get(&kind)
            && pass.open == 0
            && t_ns.saturating_sub(pass.t1_ns) > PAUSE_NS
            && let Some(pass) = self.passes.remove(&kind)
        {
            self.ended.push((kind, pass));
        }
        let pass = self.passes.entry(kind).or_insert_with(|| Pass {
            t0_ns: t_ns,
            t1_ns: t_ns,
            ..Pass::default()
        });
        pass.open += 1;
        let asked = self.asked.remove(&kind);
        let asked = asked.filter(|(asked_ns, _)| t_ns.saturating_sub(*asked_ns) <= PAUSE_NS);
        if let Some((_, by)) = asked {
            *pass.asked_by.entry(by).or_default() += 1;
        }
    }

    /// A process asked for a pass of that kind: the one in progress (sync(2) wakes the flusher before it asks for the
    /// rest), or the next one.
    pub(super) fn asked(&mut self, t_ns: u64, kind: PassKind, by: ProcId) {
        match self.passes.get_mut(&kind).filter(|pass| pass.open > 0) {
            Some(pass) => *pass.asked_by.entry(by).or_default() += 1,
            None => drop(self.asked.insert(kind, (t_ns, by))),
        }
    }

    /// A worker thread ends its piece.
    pub(super) fn ended(&mut self, t_ns: u64, worker: u32) {
        if let Some(kind) = self.workers.remove(&worker) {
            self.close(t_ns, kind);
        }
    }

    fn close(&mut self, t_ns: u64, kind: PassKind) {
        if let Some(pass) = self.passes.get_mut(&kind) {
            pass.open = pass.open.saturating_sub(1);
            pass.t1_ns = pass.t1_ns.max(t_ns);
        }
    }

    /// A process made a clean inode dirty.
    pub(super) fn dirtied(&mut self, inode: Inode, by: ProcId) {
        self.dirtiers.insert(inode.fingerprint(), by);
    }

    /// The process that was last seen to dirty an inode, if it is still known.
    pub(super) fn dirtier(&self, inode: Inode) -> Option<ProcId> {
        let inode = inode.fingerprint();
        self.dirtiers.get(&inode).copied()
    }

    /// A worker thread wrote an inode. Times are `None` where the kernel does not report them, or the first time.
    pub(super) fn wrote(
        &mut self,
        worker: u32,
        inode: Inode,
        dirty_for_ns: Option<u64>,
        since_last_ns: Option<u64>,
    ) {
        let dirtier = self.dirtier(inode);
        let Some(pass) = self.workers.get(&worker).and_then(|kind| self.passes.get_mut(kind))
        else {
            return;
        };
        pass.inodes += 1;
        if let Some(ns) = dirty_for_ns {
            *pass.ages.entry(seconds(ns)).or_default() += 1;
        }
        if let Some(ns) = since_last_ns {
            *pass.since_last.entry(seconds(ns)).or_default() += 1;
        }
        if let Some(process) = dirtier {
            *pass.dirtied_by.entry(process).or_default() += 1;
        }
    }

    /// A transfer of the flusher that was created at `start_ns` is complete.
    pub(super) fn transferred(&mut self, kind: PassKind, start_ns: u64, ios: u64, bytes: u64) {
        let of_ended = self
            .ended
            .iter_mut()
            .rev()
            .find(|(of, pass)| *of == kind && (pass.t0_ns..=pass.t1_ns).contains(&start_ns));
        let pass = match of_ended {
            Some((_, pass)) => Some(pass),
            None => self.passes.get_mut(&kind).filter(|pass| pass.t0_ns <= start_ns),
        };
        if let Some(pass) = pass {
            pass.ios += ios;
            pass.bytes += bytes;
        }
    }

    /// Takes the passes that are over, including their requests; all passes at the end of the window.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        last: bool,
        reason: impl Fn(u8) -> String,
    ) -> Vec<WritebackPass> {
        if now_ns.saturating_sub(self.dirtiers_since_ns) >= DIRTY_FOR_NS {
            self.dirtiers.age();
            self.dirtiers_since_ns = now_ns;
        }
        let over =
            |pass: &Pass| last || (pass.open == 0 && now_ns.saturating_sub(pass.t1_ns) > LAG_NS);
        let kinds: Vec<PassKind> =
            self.passes.iter().filter(|(_, pass)| over(pass)).map(|(kind, _)| *kind).collect();
        for kind in kinds {
            if let Some(mut pass) = self.passes.remove(&kind) {
                if pass.open > 0 {
                    pass.t1_ns = now_ns;
                }
                self.ended.push((kind, pass));
            }
        }
        let (mut done, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.ended).into_iter().partition(|(_, pass)| over(pass));
        self.ended = wait;
        done.sort_by_key(|(kind, pass)| (pass.t0_ns, *kind));
        done.into_iter().map(|(kind, pass)| record(kind, pass, &reason)).collect()
    }
}

fn seconds(ns: u64) -> u32 {
    u32::try_from(ns / 1_000_000_000).unwrap_or(u32::MAX)
}

fn record((device, why): PassKind, pass: Pass, reason: &impl Fn(u8) -> String) -> WritebackPass {
    let most = |by: BTreeMap<ProcId, u32>| {
        let mut most: Vec<(ProcId, u32)> = by.into_iter().collect();
        most.sort_by_key(|&(process, number)| (std::cmp::Reverse(number), process));
        most.truncate(NAMED);
        most
    };
    WritebackPass {
        t0_ns: pass.t0_ns,
        t1_ns: pass.t1_ns.max(pass.t0_ns),
        device,
        reason: reason(why),
        inodes: pass.inodes,
        bytes: pass.bytes,
        ios: pass.ios,
        ages: pass.ages.into_iter().collect(),
        since_last: pass.since_last.into_iter().collect(),
        dirtied_by: most(pass.dirtied_by),
        asked_by: most(pass.asked_by),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const DISK: DevId = DevId { major: 7, minor: 0 };
    const PERIODIC: PassKind = (DISK, 4);

    fn take(passes: &mut Passes, now_ms: u64, last: bool) -> Vec<WritebackPass> {
        passes.take(now_ms * MS, last, |reason| format!("reason {reason}"))
    }

    #[test]
    fn pieces_with_short_pauses_are_one_pass() {
        let mut passes = Passes::default();
        for piece in 0..3 {
            passes.began((1000 + piece * 200) * MS, 50, PERIODIC);
            passes.wrote(
                50,
                Inode { fs: DISK, ino: piece, generation: 0, subvolume: 0 },
                Some(30_500 * MS),
                (piece > 0).then_some(31_000 * MS),
            );
            passes.ended((1100 + piece * 200) * MS, 50);
            passes.transferred(PERIODIC, (1050 + piece * 200) * MS, 2, 8192);
        }
        passes.began(6000 * MS, 50, PERIODIC);
        passes.ended(6010 * MS, 50);
        let ended = take(&mut passes, 6020, false);
        assert_eq!(ended.len(), 1);
        let pass = &ended[0];
        assert_eq!((pass.t0_ns, pass.t1_ns), (1000 * MS, 1500 * MS));
        assert_eq!((pass.inodes, pass.ios, pass.bytes), (3, 6, 3 * 8192));
        assert_eq!((&*pass.ages, &*pass.since_last), (&[(30, 3)][..], &[(31, 2)][..]));
        assert_eq!(pass.reason, "reason 4");
        assert_eq!(take(&mut passes, 6020, true).len(), 1);
    }

    #[test]
    fn a_pass_waits_for_its_requests() {
        let mut passes = Passes::default();
        passes.began(0, 50, PERIODIC);
        passes.ended(100 * MS, 50);
        assert_eq!(take(&mut passes, 1500, false), []);
        passes.transferred(PERIODIC, 50 * MS, 1, 4096);
        let ended = take(&mut passes, 2200, false);
        assert_eq!((ended.len(), ended[0].bytes), (1, 4096));
    }

    #[test]
    fn who_dirtied_is_told_most_first() {
        let mut passes = Passes::default();
        for inode in 0..5 {
            passes.dirtied(
                Inode { fs: DISK, ino: inode, generation: 0, subvolume: 0 },
                ProcId(if inode < 2 { 1 } else { 2 }),
            );
        }
        passes.began(0, 50, PERIODIC);
        for inode in 0..6 {
            passes.wrote(
                50,
                Inode { fs: DISK, ino: inode, generation: 0, subvolume: 0 },
                None,
                None,
            );
        }
        passes.ended(MS, 50);
        assert_eq!(take(&mut passes, 10, true)[0].dirtied_by, [(ProcId(2), 3), (ProcId(1), 2)]);
    }

    #[test]
    fn a_pass_is_asked_for_before_it_begins_or_while_it_is_under_way() {
        const SYNC: PassKind = (DISK, 3);
        let mut passes = Passes::default();
        passes.asked(0, SYNC, ProcId(7));
        passes.began(MS, 50, SYNC);
        passes.began(MS, 51, PERIODIC);
        passes.asked(2 * MS, SYNC, ProcId(8));
        passes.asked(3 * MS, SYNC, ProcId(8));
        passes.ended(9 * MS, 50);
        passes.ended(9 * MS, 51);
        // No pass followed for so long that the next one is not due to this request.
        passes.asked(10 * MS, SYNC, ProcId(9));
        passes.began(3000 * MS, 50, SYNC);
        passes.ended(3001 * MS, 50);
        let asked: Vec<_> =
            take(&mut passes, 9000, true).into_iter().map(|it| it.asked_by).collect();
        assert_eq!(asked, [vec![(ProcId(8), 2), (ProcId(7), 1)], vec![], vec![]]);
    }

    #[test]
    fn a_worker_whose_end_was_not_seen_does_not_keep_a_pass_open() {
        let mut passes = Passes::default();
        passes.began(0, 50, PERIODIC);
        passes.began(5000 * MS, 50, (DISK, 2));
        passes.ended(5100 * MS, 50);
        assert_eq!(take(&mut passes, 9000, false).len(), 2);
    }

    #[test]
    fn who_dirtied_an_inode_is_known_for_minutes_and_not_for_hours() {
        let mut passes = Passes::default();
        let inode = |ino| Inode { fs: DISK, ino, generation: 0, subvolume: 0 };
        for second in 0..7200 {
            for file in 0..10 {
                passes.dirtied(inode(10 * second + file), ProcId(1));
            }
            take(&mut passes, second * 1000, false);
            assert!(passes.dirtier(inode((10 * second).saturating_sub(600))).is_some());
            assert!(passes.dirtiers.len() <= 10 * 2 * (DIRTY_FOR_NS / 1_000_000_000 + 1) as usize);
        }
        assert_eq!(passes.dirtier(inode(0)), None);
    }
}
