// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For what the threads of a ledger waited when memory was short.

use super::portion;
use crate::finding::{Ledger, MemoryPart, MemoryWait};
use crate::text::units::share;

fn kind(kind: MemoryWait) -> &'static str {
    match kind {
        MemoryWait::LimitReclaim => "freeing memory at a cgroup's limit",
        MemoryWait::DirectReclaim => "freeing memory of the host",
        MemoryWait::Compaction => "moving pages for a large one",
        MemoryWait::RefaultFile => "reading back pages of files",
        MemoryWait::RefaultSwap => "reading back swapped pages",
        MemoryWait::AboveHigh => "a pause above `memory.high`",
        MemoryWait::BesideReclaim => "held up beside reclaim",
        MemoryWait::NotKnown => "not known",
    }
}

/// How the waiting for memory divides, as shares of all the time; `None` if there was none, or it was not recorded.
pub(in super::super) fn kinds(ledger: &Ledger) -> Option<String> {
    let told = |part: &MemoryPart| {
        let mut text = format!("{} {}", kind(part.kind), share(portion(part.ns, ledger.wall_ns)));
        if !part.may_be.is_empty() {
            let may_be: Vec<&str> = part.may_be.iter().map(|it| kind(*it)).collect();
            text += &format!(" (may be {})", may_be.join(" or "));
        }
        text
    };
    let each: Vec<String> = ledger.mem_stall_by.iter().map(told).collect();
    (!each.is_empty()).then(|| format!("waiting for memory: {}", each.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::super::golden::sample;
    use super::*;

    #[test]
    fn what_is_not_known_is_told_with_what_it_may_be() {
        let mut ledger = sample("neighbour").ledger.swap_remove(0);
        assert_eq!(kinds(&ledger), None);
        let part = |kind, may_be: &[MemoryWait], per_mille| MemoryPart {
            kind,
            may_be: may_be.to_vec(),
            ns: ledger.wall_ns / 1000 * per_mille,
        };
        let either = [MemoryWait::RefaultFile, MemoryWait::AboveHigh];
        ledger.mem_stall_by = vec![
            part(MemoryWait::LimitReclaim, &[], 40),
            part(MemoryWait::NotKnown, &either, 20),
            part(MemoryWait::NotKnown, &[], 10),
        ];
        let expected = "waiting for memory: freeing memory at a cgroup's limit 4.0 %, not known 2.0 % (may be reading \
                        back pages of files or a pause above `memory.high`), not known 1.0 %";
        assert_eq!(kinds(&ledger).as_deref(), Some(expected));
    }
}
