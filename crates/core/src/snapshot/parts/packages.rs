// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packages that can change latency: kernels, firmware, microcode, and packages that tune a host.

use super::EntryValue;
use crate::snapshot::{Class, Value};
use crate::text::name::decode;
use std::collections::BTreeMap;

/// Prefixes of the names of packages that are kept.
const PREFIXES: [&str; 22] = [
    "linux-image",
    "linux-modules",
    "linux-binary",
    "linux-firmware",
    "linux-generic",
    "linux-virtual",
    "linux-aws",
    "linux-azure",
    "linux-gcp",
    "linux-oracle",
    "firmware-",
    "kernel",
    "amd64-microcode",
    "intel-microcode",
    "microcode_ctl",
    "ucode-",
    "amd-ucode",
    "intel-ucode",
    "nvidia-driver",
    "nvidia-kernel",
    "zfs-dkms",
    "kmod-",
];
/// Names of further packages that are kept.
const NAMES: [&str; 24] = [
    "cpufrequtils",
    "cpupower",
    "dkms",
    "ethtool",
    "glibc",
    "irqbalance",
    "kexec-tools",
    "kernel-rt",
    "libc6",
    "linux-cpupower",
    "linux-tools-common",
    "mcelog",
    "numad",
    "openssl",
    "power-profiles-daemon",
    "qemu-guest-agent",
    "rasdaemon",
    "rtkit",
    "systemd",
    "thermald",
    "tlp",
    "tuned",
    "open-vm-tools",
    "multipath-tools",
];
/// A package with one of these in its name is left out, because it contains nothing that is executed.
const NOT: [&str; 5] = ["-headers", "-devel", "-doc", "-debug", "-dbg"];

/// Whether a package is kept.
#[must_use]
pub fn is_kept(name: &str) -> bool {
    let prefixed = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    (prefixed || NAMES.contains(&name)) && !NOT.iter().any(|word| name.contains(word))
}

/// Versions by package, as values; several versions of one package are sorted and joined by commas.
#[must_use]
pub fn values(packages: Vec<(String, String)>) -> Vec<EntryValue> {
    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, version) in packages {
        by_name.entry(name).or_default().push(version);
    }
    let value = |mut versions: Vec<String>| {
        versions.sort();
        versions.dedup();
        Value::Text(versions.join(", "))
    };
    by_name
        .into_iter()
        .map(|(name, versions)| EntryValue::of(name, Class::Configuration, value(versions)))
        .collect()
}

/// Installed packages from dpkg's file `status`.
pub(super) fn dpkg(content: &[u8]) -> Vec<EntryValue> {
    let mut packages = Vec::new();
    let (mut name, mut version, mut installed) = (None, None, false);
    // An empty line ends a package, and so does the end of the file.
    for line in content.split(|&byte| byte == b'\n').chain([&b""[..]]) {
        if line.is_empty() {
            if let (Some(name), Some(version), true) = (name.take(), version.take(), installed) {
                packages.push((name, version));
            }
            (name, version, installed) = (None, None, false);
        } else if let Some(value) = line.strip_prefix(b"Package: ") {
            name = Some(decode(value)).filter(|name| is_kept(name));
        } else if let Some(value) = line.strip_prefix(b"Version: ") {
            version = Some(decode(value));
        } else if let Some(value) = line.strip_prefix(b"Status: ") {
            installed = value.ends_with(b" installed");
        }
    }
    values(packages)
}
