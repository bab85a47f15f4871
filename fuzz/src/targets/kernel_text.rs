// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's text files in which others may have put names: mounts, cgroups, processes.

use crate::judged::visible;
use deburr_core::procfs::{
    cgroup_cpu, container, cpu_list, diskstats, fdinfo, maps, memory, modules, mountinfo,
    net_counters, net_sockets, net_tcp, perf_map, pid, pid_cgroup, pressure, schedstat, stat,
};
use deburr_core::render;
use deburr_core::text::name;

/// A CPU list may name many CPUs in few bytes.
const MOST_CPUS: usize = 1 << 16;

fn lines(data: &[u8]) -> usize {
    data.split(|&byte| byte == b'\n').count()
}

/// `/proc/PID/mountinfo`.
pub(crate) fn mountinfo(data: &[u8]) -> bool {
    let Ok(mounts) = mountinfo::parse(data) else { return false };
    assert!(mounts.len() <= lines(data), "{} mounts", mounts.len());
    for mount in &mounts {
        visible(&render::message(&format!("{mount:?}")));
        let _ = mount.has_option("cpu");
    }
    !mounts.is_empty()
}

/// The files of a cgroup, and those that say in which cgroups a process is.
pub(crate) fn cgroup(data: &[u8]) -> bool {
    let _ = cgroup_cpu::cpu_max(data);
    let _ = cgroup_cpu::cfs_quota_us(data);
    let _ = cgroup_cpu::cpu_stat(data);
    let _ = cgroup_cpu::single("cpu.weight", data);
    let pressure = pressure::parse(data);
    assert!(pid_cgroup::procs(data).len() <= lines(data));
    let memberships = pid_cgroup::parse(data).unwrap_or_default();
    assert!(memberships.len() <= lines(data));
    for membership in &memberships {
        let _ = membership.version();
        if let Some(container) = container::of_path(&name::decode(&membership.path)) {
            visible(&render::message(&format!("{container:?}")));
            assert!(container.id.len() <= membership.path.len() * 4, "{container:?}");
        }
    }
    pressure.is_ok() || !memberships.is_empty()
}

/// What the kernel says of a process: its name is anything.
pub(crate) fn process(data: &[u8]) -> bool {
    let stat = pid::stat(data);
    if let Ok(stat) = &stat {
        assert!(stat.comm.len() <= data.len() * 4, "each byte becomes four at most");
    }
    let status = pid::status(data);
    assert!(status.cpus_allowed.is_none_or(|cpus| cpus.len() <= MOST_CPUS));
    let _ = schedstat::parse(data);
    assert!(net_tcp::listening(data).len() <= lines(data));
    assert!(net_sockets::sockets(data).count() <= lines(data));
    let _ = net_counters::counter(data, "TcpExt:", "ListenDrops");
    let _ = fdinfo::mount_id(data);
    let _ = memory::counter(data, "low");
    let _ = memory::low_watermark_pages(data);
    for line in data.split(|&byte| byte == b'\n') {
        if let Some(mapping) = maps::parse(line) {
            assert!(mapping.path.starts_with(b"/"), "{mapping:?}");
        }
        if let Some(function) = perf_map::parse(line) {
            assert!(function.start < function.end && !function.name.is_empty(), "{function:?}");
        }
    }
    stat.is_ok()
}

/// Files about the whole host.
pub(crate) fn host(data: &[u8]) -> bool {
    let stat = stat::parse(data, 100);
    assert!(diskstats::parse(data).map_or(0, |disks| disks.len()) <= lines(data));
    if let Ok(cpus) = cpu_list::parse(data) {
        assert!(cpus.len() <= MOST_CPUS, "{} CPUs", cpus.len());
        assert!(cpus.is_sorted(), "{cpus:?}");
        let again = cpu_list::parse(cpu_list::format(&cpus).as_bytes());
        assert!(cpus.is_empty() || again.as_ref() == Ok(&cpus), "{cpus:?} became {again:?}");
    }
    assert!(modules::parse(data).map_or(0, |all| all.len()) <= lines(data));
    if let Some(file) = modules::file_of(data, "ext4") {
        let name = file.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        assert!(name.starts_with(b"ext4.ko") && !name.contains(&b'\n'), "{file:?}");
    }
    if let Some(value) = modules::parameter(data) {
        assert!(!value.contains(['"', '\n', '\0']), "{value:?}");
    }
    stat.is_ok()
}
