// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes a snapshot of a host: reads the files that [`deburr_core::snapshot::whitelist`] names, and nothing else.

mod ethtool;
mod expand;
mod facts;
mod files;
mod limits;
mod slow;
mod special;
#[cfg(test)]
mod tests;
mod tree;
mod watch;

pub(crate) use limits::Limits;
pub(crate) use tree::Tree;

use deburr_core::snapshot::{Class, Fact, Host, Reading, SCHEMA, Snapshot, Tool, Value, filter};
use deburr_core::text::name;
use files::{SharedState, Timing};
use rustix::process::geteuid;
use rustix::system::uname;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The results of one job of the whitelist.
struct Output {
    facts: Vec<Fact>,
    timings: Vec<Timing>,
    asked: u64,
    notes: BTreeSet<String>,
}

/// Takes a snapshot of that tree; `redact` leaves out the host's name.
pub(crate) fn take(tree: Tree, limits: Limits, redact: bool) -> Snapshot {
    let this_host = tree.is_this_host();
    let host = host(&tree);
    let shared = Arc::new(SharedState::new(tree, limits));
    let jobs = facts::jobs();
    let (count, release) = (jobs.len(), host.kernel.clone());
    let outputs = watch::each(&shared, count, move |index, files| {
        let facts =
            jobs.get(index).map(|job| facts::look(job, files, &release)).unwrap_or_default();
        let (timings, notes) =
            (std::mem::take(&mut files.timings), std::mem::take(&mut files.notes));
        Output { facts, timings, asked: files.asked, notes }
    });
    let (mut facts, mut timings, mut reading) = (Vec::new(), Vec::new(), Reading::default());
    let mut notes = BTreeSet::new();
    for output in outputs {
        let Some(output) = output else {
            notes.insert(
                "a part of the snapshot is missing: its reader failed, which is a fault of deburr"
                    .into(),
            );
            continue;
        };
        facts.extend(output.facts);
        timings.extend(output.timings);
        notes.extend(output.notes);
        reading.files += output.asked;
    }
    reading.median_ns = slow::median_ns(&timings);
    reading.slow = slow::find(&shared, &timings, reading.median_ns);
    reading.took_ns = shared.elapsed_ns();
    reading.as_root = geteuid().is_root();
    if !this_host {
        notes.insert("read from a captured tree, not from a running host".into());
    }
    reading.notes = notes.into_iter().collect();
    for slow in &mut reading.slow {
        mark(&mut facts, slow);
    }
    adapt(&mut facts);
    Snapshot::put_in_order(&mut facts);
    let mut snapshot = Snapshot {
        schema: SCHEMA.into(),
        tool: Tool { version: env!("CARGO_PKG_VERSION").into() },
        taken: now(),
        host,
        reading,
        facts,
    };
    if redact {
        filter::redact(&mut snapshot);
    }
    snapshot
}

/// Where irqbalance runs, it moves interrupts between CPUs: their affinities are then not settings.
fn adapt(facts: &mut [Fact]) {
    let is_on = |fact: &Fact| fact.key == "/run/irqbalance" && fact.value == Value::Boolean(true);
    if facts.iter().any(is_on) {
        for fact in facts.iter_mut().filter(|fact| fact.key == "/proc/irq/*/smp_affinity_list") {
            fact.class = Class::Counter;
        }
    }
}

/// Sets the read time of facts that come from a slow file.
fn mark(facts: &mut [Fact], slow: &mut deburr_core::snapshot::SlowRead) {
    let is_from = |fact: &Fact, key: &str| {
        fact.key.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
    };
    for fact in facts.iter_mut().filter(|fact| is_from(fact, &slow.key)) {
        fact.read_ns = fact.read_ns.max(Some(slow.wall_ns));
    }
}

fn host(tree: &Tree) -> Host {
    if tree.is_this_host() {
        let this = uname();
        let text = |bytes: &std::ffi::CStr| name::decode(bytes.to_bytes());
        let (host, kernel, arch) =
            (text(this.nodename()), text(this.release()), text(this.machine()));
        return Host { name: Some(host), kernel, arch };
    }
    let text = |path: &str| {
        let content = tree.content(path, 4096).unwrap_or_default();
        name::decode(content.trim_ascii())
    };
    Host {
        name: Some(text("/proc/sys/kernel/hostname")).filter(|name| !name.is_empty()),
        kernel: text("/proc/sys/kernel/osrelease"),
        arch: text("/proc/sys/kernel/arch"),
    }
}

/// The present time as RFC 3339, to the second.
fn now() -> String {
    let now = jiff::Timestamp::now().as_second();
    jiff::Timestamp::from_second(now).unwrap_or_default().to_string()
}

/// Remarks about how reading went, as sentences.
pub(crate) fn remarks(snapshot: &Snapshot) -> Vec<String> {
    let reading = &snapshot.reading;
    let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
    let mut remarks = Vec::new();
    for slow in &reading.slow {
        remarks.push(match slow.cpu_ns {
            None => format!("reading `{}` did not end within {}", slow.path, ms(slow.wall_ns)),
            Some(cpu_ns) => {
                let how = if cpu_ns * 2 > slow.wall_ns { "busy in the kernel" } else { "asleep" };
                format!("reading `{}` takes {}, most of it {how}", slow.path, ms(slow.wall_ns))
            }
        });
    }
    let refused =
        snapshot.facts.iter().filter(|fact| matches!(fact.value, Value::Unreadable(_))).count();
    if refused > 0 && !reading.as_root {
        remarks.push(format!(
            "{refused} facts could not be read, some of them because this is not root"
        ));
    }
    remarks.extend(reading.notes.iter().cloned());
    remarks
}
