// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remedies for a device that cannot keep up.

use super::knobs;
use super::overload::{DeviceLoss, Overload};
use crate::finding::Fix;
use crate::recording::{DevId, IoOp, StallKind};
use crate::text::Target;
use crate::view::block::RowsBy;
use crate::view::block::stalls::stall_ns;
use crate::view::{Groups, View};

/// Whether a victim mostly waits for reads while others write, so that a scheduler that prefers reads may help.
pub(in crate::rules::block) fn reads_behind_writes(
    view: &View,
    groups: &Groups<'_>,
    hit: &DeviceLoss<'_>,
    device: DevId,
) -> bool {
    let in_stalls = |kind| {
        let of_kind: Vec<_> = hit.stalls.iter().filter(|it| it.kind == kind).copied().collect();
        stall_ns(&of_kind)
    };
    if in_stalls(StallKind::Sync) > in_stalls(StallKind::Request) {
        return false;
    }
    let (mut own_reads_ns, mut own_writes_ns, mut others_write) = (0u64, 0u64, false);
    let rows = view.block().tally(RowsBy::Device, |key| view.block().disk_of(key.device) == device);
    for (key, sum) in rows.iter().flat_map(|row| &row.parts) {
        let is_own = key.submitter.and_then(|id| groups.index_of(id)) == Some(hit.victim.at);
        match (key.op, is_own) {
            (IoOp::Read, true) => own_reads_ns = own_reads_ns.saturating_add(sum.total_ns),
            (IoOp::Write, true) => own_writes_ns = own_writes_ns.saturating_add(sum.total_ns),
            (IoOp::Write, false) => others_write |= sum.ios > 0,
            _ => {}
        }
    }
    others_write && own_reads_ns > own_writes_ns
}

/// Remedies for a device that is slow by itself.
fn slow_fixes(view: &View, device: DevId) -> Vec<Fix> {
    let name = view.block().device_name(device);
    vec![
        Fix {
            action: "look at the device itself and at what is below it: a failing disk, a rebuild of an array, a volume of the \
                     cloud that is out of credits, the network to a remote one"
                .into(),
            command: Target::plain("/dev/", &name).map(|disk| format!("smartctl -a {disk}")),
            risk: Some("virtual and stacked devices tell nothing of what is below them".into()), expect: None,
        },
        Fix {
            action: "until then, ask it for less: bigger requests, fewer syncs, more in memory".into(),
            command: None,
            risk: Some("what is not synced is lost when the power fails".into()), expect: None,
        },
    ]
}

/// The remedies. `reads_wait`: whether reads wait behind the writes of others ([`reads_behind_writes`]).
pub(in crate::rules::block) fn fixes(
    view: &View,
    device: DevId,
    how: Overload,
    reads_wait: bool,
) -> Vec<Fix> {
    if let Overload::Slow(_) = how {
        return slow_fixes(view, device);
    }
    let mut fixes: Vec<Fix> = super::time_parts::fix(view, device).into_iter().collect();
    fixes.extend([
        Fix {
            action: "take away what need not be: see the table for what the requests are for".into(),
            command: None,
            risk: None, expect: None,
        },
        Fix {
            action: "let requests of the one who waits go first: an IO weight or a limit on the others (`io.weight`, `io.max`), or \
                     their `ionice`"
                .into(),
            command: None,
            risk: Some("weights need the scheduler `bfq` or the controller `io.cost`; a limit stands in the way when the device \
                        is idle too"
                .into()), expect: None,
        },
    ]);
    let none = knobs::queue(view, device, "scheduler").is_some_and(|line| line.contains("[none]"));
    if reads_wait && none {
        let file = knobs::queue_file(view, device, "scheduler");
        fixes.push(Fix {
            action: "on a slow device, let a scheduler put reads before writes".into(),
            command: file.map(|file| format!("echo mq-deadline > {file}")),
            risk: Some("costs CPU time at high rates; it was `none`".into()),
            expect: None,
        });
    }
    fixes
}
