// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this kernel offers to the probes, and what the privileges of this process allow: one table, from which the plan
//! of each probe is made.
//!
//! Everything is found in one pass over the kernel's type information (BTF): a tracepoint, a field or a function exists
//! or it does not. Version numbers decide nothing.

mod modules;

use crate::{block, irq, net, profile, reclaim, sched, syscalls, writeback};
use libbpf_rs::btf::types::{DataSec, Enum, FuncProto, Struct};
use libbpf_rs::btf::{Btf, BtfKind, BtfType, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A kernel structure and fields of it.
pub type Fields = (&'static str, &'static [&'static str]);

/// A tracepoint, and the numbers of arguments with which it is known; empty = any.
pub(crate) type Hook = (&'static str, &'static [u32]);

/// Tracepoints, and how many arguments each has.
type Hooks = BTreeMap<String, u32>;

/// Prefix of the type that declares a tracepoint.
const HOOK: &str = "btf_trace_";

/// The fields that plans ask for. No others are looked up.
const FIELDS: [&[Fields]; 13] = [
    sched::plan::NEEDED,
    sched::plan::OF_SLEEPS,
    sched::plan::DIFFERING,
    block::NEEDED,
    block::OF_LIMITS,
    irq::NEEDED,
    net::NEEDED,
    net::OF_SENDING,
    net::OF_UNREAD,
    syscalls::NEEDED,
    profile::NEEDED,
    reclaim::NEEDED,
    reclaim::OF_BOUNDS,
];

/// The functions that plans ask for.
const FUNCTIONS: [&[&str]; 3] =
    [&[sched::plan::TASK_ITERATOR], &[net::FILE_ITERATOR], &writeback::RETURN_CALLS];

/// Enumerations whose values differ between kernels.
const ENUMS: [&str; 4] = ["wb_reason", "req_flag_bits", "req_op", "req_opf"];
/// An anonymous enumeration, identified by the prefix of its values' names.
pub(crate) const BIO_FLAGS: &str = "BIO_";

/// The section of per-CPU variables. Their distances are the same in the memory of each CPU.
const PER_CPU: &str = ".data..percpu";

/// Inode number of the initial pid namespace, `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Linux capability numbers, `include/uapi/linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Effective capabilities allow BPF tracing programs: `CAP_SYS_ADMIN`, or `CAP_BPF` and `CAP_PERFMON`.
    pub privileged: bool,
    /// This process sees the pids that the kernel sees: it is in the initial pid namespace.
    pub initial_pid_namespace: bool,
    /// Why the kernel's type information could not be read, if so.
    pub btf_error: Option<String>,
    /// Loaded modules that have tracepoints.
    pub(crate) modules: Vec<&'static str>,
    /// The tracepoints of the kernel and of those modules.
    pub(crate) hooks: Hooks,
    /// Those of the fields asked for that exist.
    pub(crate) fields: BTreeSet<(&'static str, &'static str)>,
    /// Those of the functions asked for that exist.
    pub(crate) functions: BTreeSet<&'static str>,
    /// The decoded enumerations, by name: the names of their values, and the values.
    pub(crate) enums: BTreeMap<&'static str, BTreeMap<String, i64>>,
    /// Positions of per-CPU variables that plans ask for, in bytes from the start of their section.
    pub(crate) per_cpu: BTreeMap<&'static str, i64>,
}

/// What the running kernel offers to this process. Read once, and again after a module with tracepoints was loaded.
#[must_use]
pub fn facts() -> Arc<Facts> {
    static READ: Mutex<Option<Arc<Facts>>> = Mutex::new(None);
    let modules = modules::loaded();
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    match read.as_ref().filter(|facts| facts.modules == modules) {
        Some(facts) => Arc::clone(facts),
        None => Arc::clone(read.insert(Arc::new(Facts::read(modules)))),
    }
}

impl Facts {
    fn read(modules: Vec<&'static str>) -> Self {
        let mut facts = Self {
            privileged: may_load_bpf(),
            initial_pid_namespace: std::fs::read_link("/proc/self/ns/pid")
                .is_ok_and(|link| link == Path::new(INITIAL_PID_NAMESPACE)),
            modules,
            ..Self::default()
        };
        match Btf::from_vmlinux() {
            Ok(btf) => facts.read_btf(&btf),
            Err(error) => facts.btf_error = Some(format!("/sys/kernel/btf/vmlinux: {error}")),
        }
        facts
    }

    fn read_btf(&mut self, btf: &Btf<'_>) {
        let mut variables = BTreeMap::new();
        let mut per_cpu = None;
        for id in 1..u32::try_from(btf.len()).unwrap_or(u32::MAX) {
            let id = TypeId::from(id);
            let Some(found) = btf.type_by_id::<BtfType<'_>>(id) else { continue };
            let name = found.name().and_then(|name| name.to_str()).unwrap_or_default();
            match found.kind() {
                BtfKind::Typedef => {
                    if let Some(hook) = name.strip_prefix(HOOK)
                        && let Some(count) = arguments(found)
                    {
                        self.hooks.insert(hook.to_owned(), count);
                    }
                }
                BtfKind::Func => {
                    self.functions
                        .extend(FUNCTIONS.iter().copied().flatten().find(|it| **it == name));
                }
                BtfKind::Enum => self.read_enum(found, name),
                BtfKind::Struct => self.read_fields(found, name),
                BtfKind::Var => {
                    let asked = sched::plan::VARIABLES.into_iter().find(|asked| *asked == name);
                    variables.extend(asked.map(|name| (id, name)));
                }
                BtfKind::DataSec if name == PER_CPU => per_cpu = DataSec::try_from(found).ok(),
                _ => {}
            }
        }
        let infos = per_cpu.iter().flat_map(DataSec::iter);
        let places = infos.filter_map(|info| Some((*variables.get(&info.ty)?, info.offset.into())));
        self.per_cpu = places.collect();
        for module in &self.modules {
            self.hooks.extend(modules::hooks(btf, module));
        }
    }

    /// Stores which of the fields asked for this structure has.
    fn read_fields(&mut self, found: BtfType<'_>, name: &str) {
        let mut asked = asked_fields(name).peekable();
        if asked.peek().is_none() {
            return;
        }
        let Ok(found) = Struct::try_from(found) else { return };
        let there: BTreeSet<_> = found.iter().filter_map(|member| member.name?.to_str()).collect();
        self.fields.extend(asked.filter(|(_, field)| there.contains(field)));
    }

    /// Stores the values of an enumeration, if it is one of those that are decoded.
    fn read_enum(&mut self, found: BtfType<'_>, name: &str) {
        let known = ENUMS.into_iter().find(|known| *known == name);
        if known.is_none() && !name.is_empty() {
            return;
        }
        let Ok(found) = Enum::try_from(found) else { return };
        let first = found.get(0).and_then(|first| first.name?.to_str()).unwrap_or_default();
        let nameless = first.starts_with(BIO_FLAGS).then_some(BIO_FLAGS);
        let Some(known) = known.or(nameless) else { return };
        let values =
            found.iter().filter_map(|it| Some((it.name?.to_string_lossy().into_owned(), it.value)));
        self.enums.entry(known).or_default().extend(values);
    }

    /// How many arguments a tracepoint has; `None` = it does not exist.
    #[must_use]
    pub fn arguments(&self, hook: &str) -> Option<u32> {
        self.hooks.get(hook).copied()
    }

    /// Those of the wanted fields that do not exist, as `struct.field`.
    #[must_use]
    pub fn missing(&self, wanted: &[Fields]) -> Vec<String> {
        let each =
            wanted.iter().flat_map(|(name, fields)| fields.iter().map(move |it| (*name, *it)));
        each.filter(|(name, field)| !self.has_field(name, field))
            .map(|(name, field)| format!("{name}.{field}"))
            .collect()
    }

    /// Whether a structure has a field, which must be among [`FIELDS`].
    pub(crate) fn has_field(&self, name: &'static str, field: &'static str) -> bool {
        debug_assert!(asked_fields(name).any(|(_, asked)| asked == field), "{name}.{field}");
        self.fields.contains(&(name, field))
    }

    /// Whether there is a kernel function of that name, which must be among [`FUNCTIONS`].
    pub(crate) fn has_function(&self, name: &str) -> bool {
        debug_assert!(FUNCTIONS.iter().copied().flatten().any(|asked| *asked == name), "{name}");
        self.functions.contains(name)
    }

    /// The value of `name` in a kernel enumeration; `None` = this kernel does not have it.
    #[must_use]
    pub fn value(&self, enumeration: &str, name: &str) -> Option<i64> {
        self.enums.get(enumeration)?.get(name).copied()
    }

    /// The writeback reasons by number: their names in lower case, without `WB_REASON_`.
    #[must_use]
    pub fn reasons(&self) -> BTreeMap<i64, String> {
        let values = self.enums.get("wb_reason").into_iter().flatten();
        let word = |(name, value): (&String, &i64)| {
            let word = name.strip_prefix("WB_REASON_")?;
            (word != "MAX").then(|| (*value, word.to_ascii_lowercase()))
        };
        values.filter_map(word).collect()
    }

    /// Why a probe that needs these fields and tracepoints cannot be attached, as a part of a sentence; `None` = nothing
    /// stands in the way.
    pub(crate) fn obstacle(&self, fields: &[Fields], hooks: &[Hook]) -> Option<String> {
        if !self.privileged {
            return Some("BPF programs need root, or CAP_BPF and CAP_PERFMON".into());
        }
        if let Some(error) = &self.btf_error {
            return Some(format!("no kernel type information (CONFIG_DEBUG_INFO_BTF): {error}"));
        }
        let mut missing = self.missing(fields);
        for (hook, known) in hooks {
            match self.arguments(hook) {
                None => missing.push(format!("the tracepoint `{hook}`")),
                Some(count) if !known.is_empty() && !known.contains(&count) => {
                    return Some(format!("`{hook}` has {count} arguments: not a known kernel"));
                }
                Some(_) => {}
            }
        }
        (!missing.is_empty()).then(|| format!("this kernel lacks {}", missing.join(", ")))
    }
}

/// The fields that plans ask for of a structure, with its name.
fn asked_fields(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_name = FIELDS.into_iter().flatten().filter(move |(asked, _)| *asked == name);
    of_name.flat_map(|(name, fields)| fields.iter().map(move |field| (*name, *field)))
}

/// Arguments of a tracepoint, of `typedef void (*btf_trace_NAME)(void *, ...)`: all but the first.
fn arguments(hook: BtfType<'_>) -> Option<u32> {
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
pub(crate) mod tests {
    use super::*;

    /// A kernel with all fields that are asked for, with these tracepoints, and nothing else.
    pub(crate) fn kernel_with(hooks: &[(&str, u32)]) -> Facts {
        Facts {
            privileged: true,
            initial_pid_namespace: true,
            hooks: hooks.iter().map(|(hook, count)| ((*hook).to_owned(), *count)).collect(),
            fields: FIELDS.into_iter().flatten().flat_map(|(name, _)| asked_fields(name)).collect(),
            ..Facts::default()
        }
    }

    #[test]
    fn the_table_is_read_once() {
        let first = facts();
        assert!(Arc::ptr_eq(&first, &facts()));
        assert_ne!(first.btf_error.is_some(), !first.hooks.is_empty(), "{first:?}");
    }

    #[test]
    fn this_kernel_has_what_the_probes_need() {
        let facts = facts();
        if facts.btf_error.is_some() {
            return;
        }
        assert!(matches!(facts.arguments("sched_switch"), Some(3 | 4)), "{facts:?}");
        assert_eq!(facts.arguments("block_rq_complete"), Some(3), "{facts:?}");
        for needed in
            [sched::plan::NEEDED, block::NEEDED, irq::NEEDED, net::NEEDED, syscalls::NEEDED]
        {
            assert_eq!(facts.missing(needed), [""; 0]);
        }
        let accounts_pressure = Path::new("/proc/pressure").exists();
        assert_eq!(sched::plan::pressure_minus_rq(&facts).is_some(), accounts_pressure);
        assert!(facts.reasons().values().any(|reason| reason == "periodic"));
        assert!(facts.value("req_flag_bits", "__REQ_META").is_some());
        assert!(facts.enums.contains_key(BIO_FLAGS));
    }

    #[test]
    fn every_obstacle_is_named() {
        const FIELDS: [Fields; 2] = [("rq", &["clock", "cpu"]), ("inode", &["i_sb"])];
        const HOOKS: [Hook; 2] = [("sched_switch", &[3, 4]), ("sys_enter", &[])];
        let good = kernel_with(&[("sched_switch", 4), ("sys_enter", 2)]);
        assert_eq!(good.obstacle(&FIELDS, &HOOKS), None);
        let why = |facts: Facts| facts.obstacle(&FIELDS, &HOOKS).unwrap();
        assert!(why(Facts::default()).contains("CAP_BPF"));
        let unreadable = Facts { btf_error: Some("gone".into()), ..good.clone() };
        assert!(why(unreadable).contains("gone"));
        let mut lacking = Facts { hooks: kernel_with(&[("sys_enter", 2)]).hooks, ..good };
        lacking.fields.remove(&("rq", "cpu"));
        assert_eq!(why(lacking), "this kernel lacks rq.cpu, the tracepoint `sched_switch`");
        let strange = kernel_with(&[("sched_switch", 7), ("sys_enter", 9)]);
        assert_eq!(why(strange), "`sched_switch` has 7 arguments: not a known kernel");
    }
}
