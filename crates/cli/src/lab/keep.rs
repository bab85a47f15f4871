// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording to pass on or to test with: the lab's own processes as they were, everything else without its
//! names. Amounts stay as they are.

use crate::store::{Reader, Writer};
use anyhow::{Context as _, Result};
use deburr_core::recording::{CgroupId, Record};
use std::collections::BTreeSet;
use std::path::Path;

/// Copies a recording; what is not in the cgroup `lab` loses its names.
pub(super) fn copy(from: &Path, to: &Path, lab: &str) -> Result<()> {
    let reader = Reader::open(from)?;
    let mut records = Vec::new();
    reader.for_each(|record| records.push(record.clone()))?;
    let mut writer = Writer::create(to, true).map_err(|error| anyhow::anyhow!("{error}"))?;
    let keep = || -> rusqlite::Result<()> {
        for record in without_foreign_names(records, lab) {
            writer.push(&record)?;
        }
        writer.finish()
    };
    keep().with_context(|| format!("cannot keep the recording as `{}`", to.display()))
}

fn without_foreign_names(mut records: Vec<Record>, lab: &str) -> Vec<Record> {
    let own: BTreeSet<CgroupId> = records
        .iter()
        .filter_map(|record| match record {
            Record::Cgroup(cgroup) if Path::new(&cgroup.path).starts_with(lab) => Some(cgroup.id),
            _ => None,
        })
        .collect();
    for record in &mut records {
        match record {
            Record::Meta(meta) => meta.host_name = "lab".into(),
            Record::Cgroup(cgroup) if cgroup.parent.is_some() && !own.contains(&cgroup.id) => {
                cgroup.path = format!("/other-{}", cgroup.id.0);
                cgroup.container = None;
            }
            Record::Process(process) => {
                // How the lab starts its processes is of no interest, and tells where it is installed.
                process.cmdline.clear();
                let is_own = process.cgroup.is_some_and(|cgroup| own.contains(&cgroup));
                if !is_own && process.kernel_thread != Some(true) {
                    process.comm = "other".into();
                }
            }
            _ => {}
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_core::recording::{Cgroup, CgroupVersion, Meta, ProcId, Process};

    fn cgroup(id: u64, parent: Option<u64>, path: &str) -> Record {
        Record::Cgroup(Box::new(Cgroup {
            id: CgroupId(id),
            parent: parent.map(CgroupId),
            path: path.into(),
            version: CgroupVersion::V2,
            quota_us: None,
            period_us: None,
            burst_us: None,
            weight: None,
            container: None,
        }))
    }

    fn process(comm: &str, cgroup: Option<u64>, kernel_thread: Option<bool>) -> Record {
        Record::Process(Box::new(Process {
            id: ProcId(1),
            pid: 1,
            start_ns: 0,
            comm: comm.into(),
            cmdline: "secret".into(),
            kernel_thread,
            cgroup: cgroup.map(CgroupId),
            cpus_allowed: None,
            cpuset_cpus: None,
            nice: None,
            in_target: false,
            observer: false,
        }))
    }

    #[test]
    fn only_the_lab_and_the_kernel_keep_their_names() {
        let records = vec![
            Record::Meta(Box::new(Meta { host_name: "secret".into(), ..Meta::default() })),
            process("victim", Some(3), Some(false)),
            process("kswapd0", Some(1), Some(true)),
            process("secret", Some(1), Some(false)),
            process("secret", Some(4), None),
            process("secret", None, None),
            cgroup(1, None, "/"),
            cgroup(2, Some(1), "/lab"),
            cgroup(3, Some(2), "/lab/victim"),
            cgroup(4, Some(1), "/labs-secret"),
        ];
        let kept = without_foreign_names(records, "/lab");
        let text = format!("{kept:?}");
        assert!(!text.contains("secret"), "{text}");
        for name in ["\"victim\"", "kswapd0", "/lab/victim", "\"/\"", "/other-4"] {
            assert!(text.contains(name), "{name} is not in {text}");
        }
    }
}
