// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings that control when and how the kernel writes: as numbers for the rules, as evidence lines for the
//! reader.

use crate::finding::{Cause, Entity, EntityKind, Evidence, Share, Unit};
use crate::recording::{DevId, Source};
use crate::rules::words::{evidence, ticked};
use crate::text::{Target, chosen};
use crate::view::View;

/// Directory of the `vm.*` sysctls.
const VM: &str = "/proc/sys/vm/";

/// A numeric setting of `/proc/sys/vm`; `None` if it was not recorded.
pub(in crate::rules::block) fn vm(view: &View, name: &str) -> Option<u64> {
    view.block().setting(&format!("{VM}{name}"))?.trim().parse().ok()
}

/// How long the flusher sleeps between two passes, in nanoseconds; `None` if it is not known or the flusher never wakes
/// by itself.
pub(in crate::rules::block) fn interval_ns(view: &View) -> Option<u64> {
    vm(view, "dirty_writeback_centisecs")
        .filter(|&cs| cs > 0)
        .map(|cs| cs.saturating_mul(10_000_000))
}

/// How long an inode may stay dirty, in nanoseconds; `None` if it is not known.
pub(in crate::rules::block) fn expire_ns(view: &View) -> Option<u64> {
    vm(view, "dirty_expire_centisecs").map(|cs| cs.saturating_mul(10_000_000))
}

/// A setting of a device's queue; `None` if it was not recorded.
pub(in crate::rules::block) fn queue<'v>(
    view: &'v View,
    device: DevId,
    name: &str,
) -> Option<&'v str> {
    let disk = view.block().device_name(device);
    view.block().setting(&format!("/sys/block/{disk}/queue/{name}"))
}

/// The file of a setting of a device's queue, for commands; `None` if the device's name cannot be one.
pub(in crate::rules::block) fn queue_file(
    view: &View,
    device: DevId,
    name: &str,
) -> Option<Target> {
    Target::plain("/sys/block/", &format!("{}/queue/{name}", view.block().device_name(device)))
}

/// Evidence lines with the settings that affect a device, one per group: flusher, queue, mounts, cgroup limits.
pub(in crate::rules::block) fn lines(view: &View, device: Option<DevId>) -> Vec<Evidence> {
    let label = Source::Settings.label();
    let mut lines = Vec::new();
    let mut add = |name: &str, parts: Vec<String>| {
        if !parts.is_empty() {
            lines.push(evidence(view, name, 0.0, Unit::Text, label, parts.join(", ")));
        }
    };
    let of_vm = [
        "dirty_writeback_centisecs",
        "dirty_expire_centisecs",
        "dirty_background_ratio",
        "dirty_background_bytes",
        "dirty_ratio",
        "dirty_bytes",
    ];
    add(
        "vm settings",
        of_vm.iter().filter_map(|name| Some(format!("{name} {}", vm(view, name)?))).collect(),
    );
    if let Some(device) = device {
        let of_queue = [
            "scheduler",
            "nr_requests",
            "wbt_lat_usec",
            "write_cache",
            "rotational",
            "read_ahead_kb",
        ];
        let part = |name: &&str| {
            let value = queue(view, device, name)?;
            Some(format!(
                "{name} {}",
                ticked(if *name == "scheduler" { chosen(value) } else { value.trim() })
            ))
        };
        add("queue of the device", of_queue.iter().filter_map(part).collect());
        let block = view.block();
        let mounts = block.mounts().values().filter(|mount| block.disk_of(mount.fs) == device);
        add(
            "mounted from it",
            mounts
                .take(3)
                .map(|mount| {
                    format!(
                        "{} at {} with {}",
                        mount.fstype,
                        ticked(&mount.point),
                        ticked(&mount.options)
                    )
                })
                .collect(),
        );
    }
    add(
        "limits of IO",
        limits(view)
            .into_iter()
            .take(5)
            .map(|(path, value)| format!("{} {}", ticked(path), ticked(value)))
            .collect(),
    );
    lines
}

/// The background limit that is set now, to note it before a change.
pub(in crate::rules::block) fn background_limit(view: &View) -> String {
    match (vm(view, "dirty_background_bytes"), vm(view, "dirty_background_ratio")) {
        (Some(bytes), _) if bytes > 0 => format!("`vm.dirty_background_bytes` is {bytes}"),
        (_, Some(ratio)) => {
            format!("`vm.dirty_background_ratio` is {ratio}, and setting the one clears the other")
        }
        _ => "note what it is before".into(),
    }
}

/// Limits of cgroups on IO that are in force, as path and content. They hold a thread back before any request exists,
/// where no probe of requests sees it.
pub(in crate::rules::block) fn limits(view: &View) -> Vec<(&str, &str)> {
    let is_limit = |path: &str| {
        path.ends_with("/io.max") || path.contains("/blkio.throttle.") && path.ends_with("_device")
    };
    view.block()
        .settings()
        .iter()
        .filter(|(path, _)| is_limit(path))
        .filter_map(|(path, value)| Some((path.as_str(), value.as_deref()?.trim())))
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// A setting as the cause of a share of a loss.
pub(in crate::rules::block) fn cause(view: &View, path: &str, share: Share, note: &str) -> Cause {
    let mut entity = Entity::new(EntityKind::Setting);
    entity.key = Some(match path.strip_prefix("/proc/sys/") {
        Some(sysctl) => sysctl.replace('/', "."),
        None => path.to_owned(),
    });
    entity.value = view.block().setting(path).map(|value| value.trim().to_owned());
    entity.note = Some(note.to_owned());
    Cause { entity, share }
}
