// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What to do about a device that cannot keep up.

use super::fullness::How;
use super::knobs;
use crate::finding::Fix;
use crate::recording::DevId;
use crate::view::View;

/// For a device that is slow by itself.
fn slow_fixes(view: &View, device: DevId) -> Vec<Fix> {
    let name = view.block().device_name(device);
    vec![
        Fix {
            action: "look at the device itself and at what is below it: a failing disk, a rebuild of an array, a volume of the \
                     cloud that is out of credits, the network to a remote one"
                .into(),
            command: Some(format!("smartctl -a {}", crate::finding::shell_quote(&format!("/dev/{name}")))),
            risk: Some("virtual and stacked devices tell nothing of what is below them".into()),
        },
        Fix {
            action: "until then, ask it for less: bigger requests, fewer syncs, more in memory".into(),
            command: None,
            risk: Some("what is not synced is lost when the power fails".into()),
        },
    ]
}

pub(super) fn fixes(view: &View, device: DevId, how: How) -> Vec<Fix> {
    if let How::Slow(_) = how {
        return slow_fixes(view, device);
    }
    let mut fixes: Vec<Fix> = super::before::fix(view, device).into_iter().collect();
    fixes.extend([
        Fix {
            action: "take away what need not be: see the table for what the requests are for".into(),
            command: None,
            risk: None,
        },
        Fix {
            action: "let requests of the one who waits go first: an IO weight or a limit on the others (`io.weight`, `io.max`), or \
                     their `ionice`"
                .into(),
            command: None,
            risk: Some("weights need the scheduler `bfq` or the controller `io.cost`; a limit stands in the way when the device \
                        is idle too"
                .into()),
        },
    ]);
    if knobs::queue(view, device, "scheduler").is_some_and(|line| line.contains("[none]")) {
        let path = knobs::queue_path(view, device, "scheduler");
        fixes.push(Fix {
            action: "on a slow device, let a scheduler put reads before writes".into(),
            command: Some(format!("echo mq-deadline > {}", crate::finding::shell_quote(&path))),
            risk: Some("costs CPU time at high rates; it was `none`".into()),
        });
    }
    fixes
}
