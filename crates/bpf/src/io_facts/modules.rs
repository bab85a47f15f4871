// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracepoints of filesystems that are modules: each module has its own type information, on top of the kernel's.

use super::HOOKS;
use libbpf_rs::libbpf_sys as sys;
use std::ffi::CString;
use std::ptr;

/// Modules that have tracepoints of use.
const MODULES: [&str; 4] = ["jbd2", "ext4", "xfs", "btrfs"];

/// Those that are there, with the number of their arguments.
pub(super) fn hooks() -> Vec<(&'static str, u32)> {
    let loaded =
        |module: &&&str| std::fs::exists(format!("/sys/kernel/btf/{module}")).unwrap_or(false);
    let modules: Vec<_> = MODULES.iter().filter(loaded).collect();
    if modules.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    // SAFETY: no preconditions; the result is ours, or NULL.
    let kernel = unsafe { sys::btf__load_vmlinux_btf() };
    if kernel.is_null() {
        return found;
    }
    for module in modules {
        let Ok(name) = CString::new(*module) else { continue };
        // SAFETY: a name that ends with 0; the kernel's types live until the module's are freed below.
        let types = unsafe { sys::btf__load_module_btf(name.as_ptr(), kernel) };
        if types.is_null() {
            continue;
        }
        let there = HOOKS.iter().filter_map(|hook| {
            // SAFETY: `types` is valid here.
            Some((*hook, unsafe { arguments(types, hook) }?))
        });
        found.extend(there);
        // SAFETY: ours, and not used any more.
        unsafe { sys::btf__free(types) };
    }
    // SAFETY: as above.
    unsafe { sys::btf__free(kernel) };
    found
}

/// Of `typedef void (*btf_trace_NAME)(void *, ...)`: all but the first.
///
/// # Safety
/// `types` must be valid.
unsafe fn arguments(types: *const sys::btf, hook: &str) -> Option<u32> {
    let name = CString::new(format!("btf_trace_{hook}")).ok()?;
    // SAFETY: valid by the caller's word, and a name that ends with 0.
    let id = unsafe { sys::btf__find_by_name_kind(types, name.as_ptr(), sys::BTF_KIND_TYPEDEF) };
    let mut id = u32::try_from(id).ok()?;
    // The name, the pointer, the function.
    for _ in 0..2 {
        // SAFETY: an identifier of these types, or NULL is returned.
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
