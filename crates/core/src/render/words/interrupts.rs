// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What took a part of the time on CPUs by interrupting.

use super::portion;
use crate::finding::{InterruptPart, Ledger};
use crate::text::escape::identifier;
use crate::text::units::share;

/// Sources that are named.
const NAMED: usize = 4;
/// What took less than that, of all the time, is not named.
const LEAST: f64 = 0.001;
/// Width of a source's name.
const NAME_COLUMNS: usize = 32;

/// Which interrupts took how much of all the time, to follow the sum of it; empty if that is next to nothing, or not known.
pub(super) fn parts(ledger: &Ledger) -> String {
    let of_all = |ns| portion(ns, ledger.wall_ns);
    let is_named = |part: &&InterruptPart| part.sources.is_none() && of_all(part.ns) >= LEAST;
    let named: Vec<&InterruptPart> =
        ledger.interrupted_by.iter().filter(is_named).take(NAMED).collect();
    if named.is_empty() {
        return String::new();
    }
    let sum = |parts: &mut dyn Iterator<Item = u64>| parts.fold(0, u64::saturating_add);
    let named_ns = sum(&mut named.iter().map(|part| part.ns));
    let others_ns = sum(&mut ledger.interrupted_by.iter().map(|part| part.ns)) - named_ns;
    let not_known_ns = sum(&mut ledger.interrupted_by.iter().map(|part| part.not_known_ns));
    let mut told: Vec<String> =
        named.iter().map(|part| format!("{} {}", source(part), share(of_all(part.ns)))).collect();
    if others_ns > 0 {
        told.push(format!("others {}", share(of_all(others_ns))));
    }
    let mut text = format!(": {}", told.join(", "));
    if of_all(not_known_ns) >= LEAST {
        let part = share(of_all(not_known_ns));
        text += &format!("; whether its own calls asked for {part} of that is not known");
    }
    text
}

fn source(part: &InterruptPart) -> String {
    let name = part.name.as_deref().map(|name| identifier(name, NAME_COLUMNS));
    part.kind.in_words(part.irq, name)
}
