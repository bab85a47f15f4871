// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracepoints of filesystems that are modules. Each module has its own type information, based on the kernel's.

use super::HOOKS;
use libbpf_rs::libbpf_sys as sys;
use std::ffi::CString;
use std::ptr;

/// Modules whose tracepoints the block IO probes can use.
const MODULES: [&str; 4] = ["jbd2", "ext4", "xfs", "btrfs"];

/// The tracepoints that exist in loaded modules, and how many arguments each has.
pub(super) fn hooks() -> Vec<(&'static str, u32)> {
    let loaded =
        |module: &&&str| std::fs::exists(format!("/sys/kernel/btf/{module}")).unwrap_or(false);
    let modules: Vec<_> = MODULES.iter().filter(loaded).collect();
    if modules.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    // SAFETY: no preconditions; returns an object that we own, or NULL.
    let kernel = unsafe { sys::btf__load_vmlinux_btf() };
    if kernel.is_null() {
        return found;
    }
    for module in modules {
        let Ok(name) = CString::new(*module) else { continue };
        // SAFETY: the name is NUL-terminated; the kernel's types live until the module's are freed below.
        let types = unsafe { sys::btf__load_module_btf(name.as_ptr(), kernel) };
        if types.is_null() {
            continue;
        }
        let there = HOOKS.iter().filter_map(|hook| {
            // SAFETY: `types` is valid here.
            Some((*hook, unsafe { arguments(types, hook) }?))
        });
        found.extend(there);
        // SAFETY: we own it, and it is not used any more.
        unsafe { sys::btf__free(types) };
    }
    // SAFETY: as above.
    unsafe { sys::btf__free(kernel) };
    found
}

/// Number of arguments of `typedef void (*btf_trace_NAME)(void *, ...)`, without the first.
///
/// # Safety
/// `types` must be valid.
unsafe fn arguments(types: *const sys::btf, hook: &str) -> Option<u32> {
    let name = CString::new(format!("btf_trace_{hook}")).ok()?;
    // SAFETY: `types` is valid by this function's contract, and the name is NUL-terminated.
    let id = unsafe { sys::btf__find_by_name_kind(types, name.as_ptr(), sys::BTF_KIND_TYPEDEF) };
    let mut id = u32::try_from(id).ok()?;
    // From the typedef to the pointer, and from there to the function.
    for _ in 0..2 {
        // SAFETY: `types` is valid; for an unknown identifier NULL is returned.
        let found = unsafe { sys::btf__type_by_id(types, id) };
        // SAFETY: typedefs and pointers hold the type that they refer to.
        id = unsafe { ptr::read(found.as_ref()?).__bindgen_anon_1.type_ };
    }
    // SAFETY: as above.
    let function = unsafe { sys::btf__type_by_id(types, id).as_ref()? };
    (function.info >> 24 & 0x1f == sys::BTF_KIND_FUNC_PROTO)
        .then_some(function.info & 0xffff)?
        .checked_sub(1)
}
