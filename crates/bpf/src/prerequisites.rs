// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every probe stands on: privileges, the kernel's type information (BTF), and the fields that it reads.

use libbpf_rs::btf::types::{FuncProto, Struct};
use libbpf_rs::btf::{Btf, BtfType};
use std::collections::BTreeSet;

/// Linux capability numbers, `include/uapi/linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// A kernel structure and fields of it.
pub(crate) type Fields = (&'static str, &'static [&'static str]);

/// What stands in the way of a probe, if anything does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prerequisites {
    /// Effective capabilities allow BPF tracing programs: `CAP_SYS_ADMIN`, or `CAP_BPF` and `CAP_PERFMON`.
    pub privileged: bool,
    /// Why the kernel's type information could not be read, if so.
    pub btf_error: Option<String>,
    /// What this kernel lacks and the probe needs, mostly as `struct.field`.
    pub missing: Vec<String>,
}

impl Prerequisites {
    /// Looks at this process and at the running kernel. Without privileges its types are there all the same.
    pub(crate) fn look() -> (Self, Option<Btf<'static>>) {
        let ground = Self { privileged: may_load_bpf(), ..Self::default() };
        match Btf::from_vmlinux() {
            Ok(btf) => (ground, Some(btf)),
            Err(error) => {
                let btf_error = Some(format!("/sys/kernel/btf/vmlinux: {error}"));
                (Self { btf_error, ..ground }, None)
            }
        }
    }

    /// Why nothing can be loaded, as a part of a sentence; `None` = nothing stands in the way.
    pub(crate) fn obstacle(&self) -> Option<String> {
        if !self.privileged {
            return Some("BPF programs need root, or CAP_BPF and CAP_PERFMON".into());
        }
        if let Some(error) = &self.btf_error {
            return Some(format!("no kernel type information (CONFIG_DEBUG_INFO_BTF): {error}"));
        }
        let missing = self.missing.join(", ");
        (!missing.is_empty()).then(|| format!("this kernel lacks {missing}"))
    }
}

/// The names of a structure's fields; none if there is no such structure.
pub(crate) fn fields_of(btf: &Btf<'_>, name: &str) -> BTreeSet<String> {
    btf.type_by_name::<Struct<'_>>(name).map(names_of).unwrap_or_default()
}

/// The names of a structure's fields.
pub(crate) fn names_of(found: Struct<'_>) -> BTreeSet<String> {
    found.iter().filter_map(|member| Some(member.name?.to_string_lossy().into_owned())).collect()
}

/// Those of the wanted fields that are not there, as `struct.field`.
pub(crate) fn missing(
    wanted: &[Fields],
    fields_of: impl Fn(&str) -> BTreeSet<String>,
) -> Vec<String> {
    let missing = wanted.iter().flat_map(|(name, wanted)| {
        let there = fields_of(name);
        let lacking = wanted.iter().filter(move |field| !there.contains(**field));
        lacking.map(move |field| format!("{name}.{field}"))
    });
    missing.collect()
}

/// Arguments of a tracepoint, of `typedef void (*btf_trace_NAME)(void *, ...)`: all but the first.
pub(crate) fn arguments(hook: BtfType<'_>) -> Option<u32> {
    let pointer: BtfType<'_> = hook.skip_mods_and_typedefs();
    let function = FuncProto::try_from(pointer.next_type()?).ok()?;
    u32::try_from(function.len()).ok()?.checked_sub(1)
}

fn may_load_bpf() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let has = |capability: u32| effective >> capability & 1 == 1;
    has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_obstacle_is_named() {
        let good = Prerequisites { privileged: true, ..Prerequisites::default() };
        assert_eq!(good.obstacle(), None);
        let why = |ground: Prerequisites| ground.obstacle().unwrap();
        assert!(why(Prerequisites::default()).contains("CAP_BPF"));
        assert!(
            why(Prerequisites { btf_error: Some("gone".into()), ..good.clone() }).contains("gone")
        );
        let lacking = Prerequisites { missing: vec!["rq.clock".into(), "rq.cpu".into()], ..good };
        assert!(why(lacking).contains("rq.clock, rq.cpu"));
    }

    #[test]
    fn what_is_missing_is_named_with_its_structure() {
        let fields = |name: &str| match name {
            "rq" => BTreeSet::from(["clock".to_owned()]),
            _ => BTreeSet::new(),
        };
        let wanted: [Fields; 2] = [("rq", &["clock", "cpu"]), ("bio", &["bi_next"])];
        assert_eq!(missing(&wanted, fields), ["rq.cpu", "bio.bi_next"]);
    }
}
