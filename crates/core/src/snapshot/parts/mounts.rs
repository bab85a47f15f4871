// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/proc/self/mountinfo`: which filesystems, with which options. What comes and goes with containers, sessions and tests
//! is left out.

use crate::procfs::mountinfo::{self, Mount};
use crate::snapshot::{Class, FILTERED, Value, filter};
use crate::text::name::decode;
use std::collections::{BTreeMap, BTreeSet};

/// Filesystems that are of interest though they are on no device.
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
/// Those whose source is a name in the network.
const IN_NETWORK: [&str; 9] =
    ["ceph", "cifs", "nfs", "nfs4", "smb3", "glusterfs", "lustre", "beegfs", "fuse"];
/// Places that are used for memory instead of files.
const TMPFS_AT: [&str; 4] = ["/", "/tmp", "/dev/shm", "/var/tmp"];
/// Below these, mounts come and go.
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

/// Mount point -> type and options; and, as `MOUNT POINT source`, what is mounted there.
pub(super) fn mounts(content: &[u8]) -> Result<Vec<(String, Class, Value)>, Value> {
    // Of mounts at one place the last one covers those before it.
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
        values.push((format!("{place} source"), Class::Identity, Value::Text(source)));
        values.push((place, Class::Configuration, Value::Set(options)));
    }
    Ok(values)
}

/// Mount point -> `cgroup2` or `cgroup`, and controllers or options.
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

/// `fuse` is `fuse.sshfs` too.
fn is_kind(fs_type: &str, kind: &str) -> bool {
    fs_type.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn is_passing(place: &str) -> bool {
    PASSING.iter().any(|dir| place.starts_with(dir))
}

fn is_kept(place: &str, mount: &Mount) -> bool {
    // A part of a filesystem mounted elsewhere is a bind mount; a subvolume of btrfs is not told from it by its root.
    let whole = mount.root == b"/" || matches!(mount.fs_type.as_str(), "btrfs" | "bcachefs");
    let source = mount.source.as_slice();
    let device = source.starts_with(b"/dev/") && !source.starts_with(b"/dev/loop");
    let known = device || KINDS.iter().any(|kind| is_kind(&mount.fs_type, kind));
    let memory = mount.fs_type == "tmpfs" && TMPFS_AT.contains(&place);
    whole && !is_passing(place) && (known || memory || (place == "/" && mount.fs_type == "overlay"))
}
