// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracepoints of filesystems that are modules. Each module has its own type information, which continues the kernel's.

use super::{HOOK, Hooks};
use libbpf_rs::AsRawLibbpf as _;
use libbpf_rs::btf::Btf;
use libbpf_rs::libbpf_sys as sys;
use std::ffi::{CStr, CString};

/// Modules whose tracepoints the probes can use.
const MODULES: [&str; 4] = ["jbd2", "ext4", "xfs", "btrfs"];

/// Those of them that are loaded.
pub(super) fn loaded() -> Vec<&'static str> {
    let is_loaded =
        |module: &&str| std::fs::exists(format!("/sys/kernel/btf/{module}")).unwrap_or(false);
    MODULES.into_iter().filter(is_loaded).collect()
}

/// The tracepoints of a loaded module.
pub(super) fn hooks(kernel: &Btf<'_>, module: &str) -> Hooks {
    let Ok(name) = CString::new(module) else { return Hooks::new() };
    let base = kernel.as_libbpf_object().as_ptr();
    // SAFETY: the name is NUL-terminated, and `base` lives until the module's types are freed below.
    let types = unsafe { sys::btf__load_module_btf(name.as_ptr(), base) };
    if types.is_null() {
        return Hooks::new();
    }
    // SAFETY: `types` is valid here.
    let found = unsafe { hooks_from(types, kernel.len()) };
    // SAFETY: we own it, and nothing refers to it any more.
    unsafe { sys::btf__free(types) };
    found
}

/// The tracepoints among the types from number `first` on.
///
/// # Safety
/// `types` must be valid.
unsafe fn hooks_from(types: *const sys::btf, first: usize) -> Hooks {
    // SAFETY: `types` is valid by this function's contract.
    let end = unsafe { sys::btf__type_cnt(types) };
    let first = u32::try_from(first).unwrap_or(u32::MAX);
    // SAFETY: as above.
    (first..end).filter_map(|id| unsafe { hook(types, id) }).collect()
}

/// The tracepoint of which that type is `typedef void (*btf_trace_NAME)(void *, ...)`, and the number of its arguments
/// without the first.
///
/// # Safety
/// `types` must be valid.
unsafe fn hook(types: *const sys::btf, id: u32) -> Option<(String, u32)> {
    let of_kind = |id, kind| {
        // SAFETY: `types` is valid by this function's contract; for an unknown number NULL is returned.
        let found = unsafe { sys::btf__type_by_id(types, id).as_ref()? };
        (found.info >> 24 & 0x1f == kind).then_some(found)
    };
    // SAFETY: typedefs and pointers hold the number of the type that they refer to.
    let referred = |found: &sys::btf_type| unsafe { found.__bindgen_anon_1.type_ };
    let named = of_kind(id, sys::BTF_KIND_TYPEDEF)?;
    // SAFETY: as above; for an invalid offset NULL is returned.
    let name = unsafe { sys::btf__name_by_offset(types, named.name_off) };
    if name.is_null() {
        return None;
    }
    // SAFETY: the strings of the type information are NUL-terminated.
    let hook = unsafe { CStr::from_ptr(name) }.to_str().ok()?.strip_prefix(HOOK)?;
    let pointer = of_kind(referred(named), sys::BTF_KIND_PTR)?;
    let function = of_kind(referred(pointer), sys::BTF_KIND_FUNC_PROTO)?;
    Some((hook.to_owned(), (function.info & 0xffff).checked_sub(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_a_module_are_read_as_those_of_the_kernel() {
        let Ok(kernel) = Btf::from_vmlinux() else { return };
        // SAFETY: `kernel` lives until the end of this function.
        let raw = unsafe { hooks_from(kernel.as_libbpf_object().as_ptr(), 1) };
        let facts = crate::facts::facts();
        assert!(raw.len() > 100);
        for (hook, count) in raw {
            assert_eq!(facts.arguments(&hook), Some(count), "{hook}");
        }
    }
}
