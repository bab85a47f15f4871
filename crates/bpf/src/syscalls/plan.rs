// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the system call probe can be used on this kernel.

use crate::facts::{fields_of, may_load_bpf};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;

const HOOKS: [&str; 6] = [
    "sys_enter",
    "sys_exit",
    "sched_switch",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
];

/// Fields without which the probe cannot work.
const NEEDED: [(&str, &[&str]); 8] = [
    ("task_struct", &["pid", "tgid", "files", "fs"]),
    ("files_struct", &["fdt"]),
    ("fdtable", &["max_fds", "fd"]),
    ("fs_struct", &["pwd"]),
    ("inode", &["i_sb", "i_ino"]),
    ("super_block", &["s_dev", "s_magic"]),
    ("vfsmount", &["mnt_root"]),
    ("mount", &["mnt_parent", "mnt_mountpoint", "mnt"]),
];

/// That the probe can be used on this kernel, and what it can measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallPlan {
    /// It is known how much of the time off the CPU was spent in a run queue.
    pub run_delay: bool,
}

/// What this kernel offers, and what the privileges allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    privileged: bool,
    btf_error: Option<String>,
    missing: Vec<String>,
    run_delay: bool,
}

impl SyscallPlan {
    /// Inspects the running kernel and this process.
    ///
    /// # Errors
    /// Why the probe cannot be used, as a clause: the kernel or the privileges do not suffice.
    pub fn new() -> Result<Self, String> {
        Self::of(offer())
    }

    pub(super) fn of(offer: Offer) -> Result<Self, String> {
        if !offer.privileged {
            return Err("BPF programs need root, or CAP_BPF and CAP_PERFMON".into());
        }
        if let Some(error) = offer.btf_error {
            return Err(format!("no kernel type information (CONFIG_DEBUG_INFO_BTF): {error}"));
        }
        if !offer.missing.is_empty() {
            return Err(format!("this kernel lacks {}", offer.missing.join(", ")));
        }
        Ok(Self { run_delay: offer.run_delay })
    }
}

fn offer() -> Offer {
    let mut offer = Offer { privileged: may_load_bpf(), ..Offer::default() };
    let btf = match Btf::from_vmlinux() {
        Ok(btf) => btf,
        Err(error) => {
            offer.btf_error = Some(format!("/sys/kernel/btf/vmlinux: {error}"));
            return offer;
        }
    };
    for hook in HOOKS {
        if btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{hook}")).is_none() {
            offer.missing.push(format!("the tracepoint `{hook}`"));
        }
    }
    for (name, wanted) in NEEDED {
        let there = fields_of(&btf, name);
        let lacking = wanted.iter().filter(|field| !there.contains(**field));
        offer.missing.extend(lacking.map(|field| format!("{name}.{field}")));
    }
    offer.run_delay = fields_of(&btf, "sched_info").contains("run_delay");
    offer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_obstacle_is_named() {
        let good = || Offer { privileged: true, run_delay: true, ..Offer::default() };
        assert_eq!(SyscallPlan::of(good()), Ok(SyscallPlan { run_delay: true }));
        let why = |offer| SyscallPlan::of(offer).unwrap_err();
        assert!(why(Offer { privileged: false, ..good() }).contains("CAP_BPF"));
        assert!(why(Offer { btf_error: Some("gone".into()), ..good() }).contains("gone"));
        assert!(why(Offer { missing: vec!["inode.i_sb".into()], ..good() }).contains("inode.i_sb"));
    }

    #[test]
    fn this_kernel_has_what_it_takes() {
        let offer = offer();
        assert!(offer.btf_error.is_some() || offer.missing.is_empty(), "{offer:?}");
    }
}
