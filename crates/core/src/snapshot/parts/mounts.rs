// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounted filesystems and their options from `/proc/self/mountinfo`. Transient mounts of containers, sessions and
//! tests are left out.

use super::EntryValue;
use crate::procfs::mountinfo::{self, Mount};
use crate::snapshot::{Class, FILTERED, Value, filter};
use crate::text::name::decode;
use std::collections::{BTreeMap, BTreeSet};

/// Types of filesystems that are kept even if their source is not a device.
const KINDS: [&str; 15] = [
    "9p",
    "bcachefs",
    "btrfs",
    "ceph",
    "cifs",
    "fuse",
    "glusterfs",
    "hugetlbfs",
    "lustre",
    "nfs",
    "nfs4",
    "smb3",
    "virtiofs",
    "zfs",
    "beegfs",
];
/// Types whose source is a network name.
const IN_NETWORK: [&str; 9] =
    ["ceph", "cifs", "nfs", "nfs4", "smb3", "glusterfs", "lustre", "beegfs", "fuse"];
/// Mount points at which a tmpfs is kept.
const TMPFS_AT: [&str; 4] = ["/", "/tmp", "/dev/shm", "/var/tmp"];
/// Directories with transient mounts.
const PASSING: [&str; 14] = [
    "/tmp/",
    "/var/tmp/",
    "/run/",
    "/var/run/",
    "/snap/",
    "/media/",
    "/var/lib/docker/",
    "/var/lib/containerd/",
    "/var/lib/containers/",
    "/var/lib/kubelet/",
    "/var/lib/lxc/",
    "/var/lib/lxd/",
    "/var/lib/machines/",
    "/proc/",
];

/// Type and options by mount point, and the source of the mount under the name `MOUNT POINT source`.
pub(super) fn mounts(content: &[u8]) -> Result<Vec<EntryValue>, Value> {
    // The last mount at a mount point hides the earlier ones.
    let mut by_place: BTreeMap<String, Mount> = BTreeMap::new();
    for mount in parse(content)? {
        by_place.insert(decode(&mount.mount_point), mount);
    }
    let mut values = Vec::new();
    for (place, mount) in by_place {
        if !is_kept(&place, &mount) {
            continue;
        }
        let all = mount.options.iter().chain(&mount.super_options);
        let mut options: BTreeSet<String> =
            all.filter(|option| !filter::is_secret_option(option)).cloned().collect();
        options.insert(format!("type={}", mount.fs_type));
        let in_network = IN_NETWORK.iter().any(|kind| is_kind(&mount.fs_type, kind));
        let source = if in_network { FILTERED.into() } else { decode(&mount.source) };
        values.push(EntryValue::of(
            format!("{place} source"),
            Class::Identity,
            Value::Text(source),
        ));
        values.push(EntryValue::of(place, Class::Configuration, Value::Set(options)));
    }
    Ok(values)
}

/// Type (`cgroup2` or `cgroup`) with controllers or options, by mount point.
pub(super) fn cgroups(content: &[u8]) -> Result<Value, Value> {
    let is_cgroup = |mount: &Mount| mount.fs_type == "cgroup" || mount.fs_type == "cgroup2";
    let row = |mount: Mount| {
        let kind = format!("{} {}", mount.fs_type, mount.super_options.join(","));
        (decode(&mount.mount_point), kind)
    };
    let mounts = parse(content)?.into_iter().filter(is_cgroup);
    Ok(Value::Table(mounts.map(row).filter(|(place, _)| !is_passing(place)).collect()))
}

fn parse(content: &[u8]) -> Result<Vec<Mount>, Value> {
    mountinfo::parse(content).map_err(|error| Value::Unreadable(error.to_string()))
}

/// Whether a filesystem is of a type or of a subtype of it: `fuse` includes `fuse.sshfs`.
fn is_kind(fs_type: &str, kind: &str) -> bool {
    fs_type.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn is_passing(place: &str) -> bool {
    PASSING.iter().any(|dir| place.starts_with(dir))
}

fn is_kept(place: &str, mount: &Mount) -> bool {
    // A mount of a part of a filesystem is a bind mount, except on btrfs and bcachefs, where it may be a subvolume.
    let whole = mount.root == b"/" || matches!(mount.fs_type.as_str(), "btrfs" | "bcachefs");
    let source = mount.source.as_slice();
    let device = source.starts_with(b"/dev/") && !source.starts_with(b"/dev/loop");
    let known = device || KINDS.iter().any(|kind| is_kind(&mount.fs_type, kind));
    let memory = mount.fs_type == "tmpfs" && TMPFS_AT.contains(&place);
    whole && !is_passing(place) && (known || memory || (place == "/" && mount.fs_type == "overlay"))
}
