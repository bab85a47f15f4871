// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A setting of a cgroup as a command for its owner: systemd, a container runtime, or nobody (a plain write).

use crate::recording::{Cgroup, CgroupVersion};
use crate::text::{Target, shell_quote};

/// A setting of a cgroup.
#[derive(Clone, Copy, Debug)]
pub(super) enum Setting {
    /// CPU weight, in percent of the default.
    WeightPercent(u64),
    /// CPU quota, in CPUs.
    Cpus(f64),
    /// Quota that may be saved up for bursts, in microseconds.
    BurstUs(u64),
    /// Memory above which allocations fail, in bytes.
    MemoryMax(u64),
    /// Memory above which whoever allocates is slowed down, in bytes (v2 only).
    MemoryHigh(u64),
}

/// Who sets what a directory of the cgroup tree has, and would overwrite a plain write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner<'a> {
    /// The host's systemd: the unit that the directory is of.
    Systemd(&'a str),
    /// `docker` or `podman`: the container that the directory is of.
    Runtime(&'a str, &'a str),
    /// Nobody that a command could be given to.
    Nobody,
}

/// The owner of this very directory. A unit or container above it is none: its settings are for all that is in it. Below a
/// service or scope the directories belong to whom systemd delegated them to: a user's systemd, a container's, a
/// hypervisor.
fn owner(cgroup: &Cgroup) -> Owner<'_> {
    let names: Vec<&str> = cgroup.path.split('/').filter(|name| !name.is_empty()).collect();
    let Some((own, above)) = names.split_last() else { return Owner::Nobody };
    let is_unit = |name: &str| name.ends_with(".service") || name.ends_with(".scope");
    match &cgroup.container {
        Some(it) if it.runtime == "docker" || it.runtime == "podman" => {
            match own.contains(it.id.as_str()) {
                true => Owner::Runtime(&it.runtime, it.name.as_deref().unwrap_or(&it.id)),
                false => Owner::Nobody,
            }
        }
        Some(it) if !it.is_unit() => Owner::Nobody,
        _ if above.iter().any(|name| is_unit(name)) => Owner::Nobody,
        _ if is_unit(own) || own.ends_with(".slice") => Owner::Systemd(own),
        _ => Owner::Nobody,
    }
}

/// The owner to whom a command can be given about that setting. A container's runtime takes a weight of version 2 in the
/// unit of version 1, and its versions differ in how they convert it: such a weight is written plainly. It has no option
/// for `memory.high`.
fn owner_of(cgroup: &Cgroup, setting: Setting) -> Owner<'_> {
    match (owner(cgroup), setting) {
        (_, Setting::BurstUs(_)) | (Owner::Runtime(..), Setting::MemoryHigh(_)) => Owner::Nobody,
        (Owner::Runtime(..), Setting::WeightPercent(_)) if cgroup.version == CgroupVersion::V2 => {
            Owner::Nobody
        }
        (owner, _) => owner,
    }
}

/// The command that sets it, given to the directory's owner where there is one. `None` if only a plain write is left and
/// the cgroup is the root.
pub(super) fn set(cgroup: &Cgroup, setting: Setting) -> Option<String> {
    match (owner_of(cgroup, setting), setting) {
        (Owner::Systemd(unit), Setting::WeightPercent(percent)) => {
            return Some(of_unit(unit, &format!("CPUWeight={percent}")));
        }
        (Owner::Systemd(unit), Setting::Cpus(cpus)) => {
            return Some(of_unit(unit, &format!("CPUQuota={:.0}%", cpus * 100.0)));
        }
        (Owner::Systemd(unit), Setting::MemoryMax(bytes)) => {
            return Some(of_unit(unit, &format!("MemoryMax={bytes}")));
        }
        (Owner::Systemd(unit), Setting::MemoryHigh(bytes)) => {
            return Some(of_unit(unit, &format!("MemoryHigh={bytes}")));
        }
        (Owner::Runtime(runtime, name), Setting::MemoryMax(bytes)) => {
            return Some(format!("{runtime} update --memory {bytes} {}", operand(name)));
        }
        (Owner::Runtime(runtime, name), Setting::WeightPercent(percent)) => {
            let shares = shares(percent);
            return Some(format!("{runtime} update --cpu-shares {shares} {}", operand(name)));
        }
        (Owner::Runtime(runtime, name), Setting::Cpus(cpus)) => {
            let cpus = decimal(cpus);
            return Some(format!("{runtime} update --cpus {cpus} {}", operand(name)));
        }
        _ => {}
    }
    if cgroup.path == "/" {
        return None;
    }
    let (mount, file, value) = file_of(cgroup, setting);
    let file = Target::of_cgroup(mount, &cgroup.path, file)?;
    Some(format!("echo {value} > {file}"))
}

/// The tree and the file of a setting, and what is written there.
fn file_of(cgroup: &Cgroup, setting: Setting) -> (&'static str, &'static str, String) {
    let period_us = cgroup.period_us.filter(|&us| us > 0).unwrap_or(100_000);
    let quota_us = |cpus: f64| (cpus * period_us as f64).round() as u64;
    match (cgroup.version, setting) {
        (CgroupVersion::V2, Setting::WeightPercent(percent)) => {
            ("/sys/fs/cgroup", "cpu.weight", percent.to_string())
        }
        (CgroupVersion::V2, Setting::Cpus(cpus)) => {
            ("/sys/fs/cgroup", "cpu.max", format!("'{} {period_us}'", quota_us(cpus)))
        }
        (CgroupVersion::V2, Setting::BurstUs(us)) => {
            ("/sys/fs/cgroup", "cpu.max.burst", us.to_string())
        }
        (CgroupVersion::V1, Setting::WeightPercent(percent)) => {
            ("/sys/fs/cgroup/cpu", "cpu.shares", shares(percent).to_string())
        }
        (CgroupVersion::V1, Setting::Cpus(cpus)) => {
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", quota_us(cpus).to_string())
        }
        (CgroupVersion::V1, Setting::BurstUs(us)) => {
            ("/sys/fs/cgroup/cpu", "cpu.cfs_burst_us", us.to_string())
        }
        (CgroupVersion::V2, Setting::MemoryMax(bytes)) => {
            ("/sys/fs/cgroup", "memory.max", bytes.to_string())
        }
        (CgroupVersion::V1, Setting::MemoryMax(bytes)) => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", bytes.to_string())
        }
        // Version 1 has no such limit: the memory controller is in the tree of version 2, whatever has the others.
        (_, Setting::MemoryHigh(bytes)) => ("/sys/fs/cgroup", "memory.high", bytes.to_string()),
    }
}

/// The command that gives a directory these CPUs, if one is known that reaches it.
pub(super) fn set_cpus(cgroup: &Cgroup, list: &str) -> Option<String> {
    match owner(cgroup) {
        Owner::Systemd(unit) => Some(of_unit(unit, &format!("AllowedCPUs={list}"))),
        Owner::Runtime(runtime, name) => {
            Some(format!("{runtime} update --cpuset-cpus {list} {}", operand(name)))
        }
        // On v1 the cpuset hierarchy is separate, and the cgroup may have another path in it.
        Owner::Nobody if cgroup.version == CgroupVersion::V2 && cgroup.path != "/" => {
            let file = Target::of_cgroup("/sys/fs/cgroup", &cgroup.path, "cpuset.cpus")?;
            Some(format!("echo {list} > {file}"))
        }
        Owner::Nobody => None,
    }
}

fn of_unit(unit: &str, property: &str) -> String {
    format!("systemctl set-property --runtime {} {property}", operand(unit))
}

/// A weight in percent of the default, in v1's unit.
fn shares(percent: u64) -> u64 {
    percent * 1024 / 100
}

/// A quoted name that cannot be taken for an option: systemd's root slice is called `-.slice`.
pub(super) fn operand(name: &str) -> String {
    let quoted = shell_quote(name);
    if name.starts_with('-') { format!("-- {quoted}") } else { quoted.into_owned() }
}

/// A number of CPUs without trailing zeros.
pub(super) fn decimal(cpus: f64) -> String {
    let text = format!("{cpus:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Where a setting has to be changed for good, if the command for it does not last.
pub(super) fn owner_note(cgroup: &Cgroup, setting: Setting) -> &'static str {
    let container = cgroup.container.as_ref();
    match owner_of(cgroup, setting) {
        Owner::Systemd(_) => "; until the next boot, leave out --runtime to keep it",
        _ if container.is_some_and(|it| it.pod.is_some() || it.runtime == "kubernetes") => {
            "; for a trial only: the kubelet owns the cgroup, set the pod's resources to keep it"
        }
        Owner::Nobody if container.is_some_and(|it| !it.is_unit()) => {
            "; until the container starts anew"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{CgroupId, Container};

    fn cgroup(path: &str, version: CgroupVersion, container: Option<Container>) -> Cgroup {
        Cgroup {
            id: CgroupId(1),
            parent: None,
            path: path.into(),
            version,
            quota_us: Some(50_000),
            period_us: Some(100_000),
            burst_us: None,
            weight: None,
            container,
        }
    }

    #[test]
    fn each_owner_has_its_own_command() {
        let runtime = |runtime: &str, id: &str| {
            Some(Container { runtime: runtime.into(), id: id.into(), ..Container::default() })
        };
        let command =
            |path, version, container, setting| set(&cgroup(path, version, container), setting);
        let cases = [
            (
                command(
                    "/system.slice/a.service",
                    CgroupVersion::V2,
                    runtime("systemd", "a.service"),
                    Setting::Cpus(1.5),
                ),
                "systemctl set-property --runtime a.service CPUQuota=150%",
            ),
            (
                command(
                    "/docker/0a",
                    CgroupVersion::V1,
                    runtime("docker", "0a"),
                    Setting::Cpus(1.5),
                ),
                "docker update --cpus 1.5 0a",
            ),
            (
                command(
                    "/docker/0a",
                    CgroupVersion::V1,
                    runtime("docker", "0a"),
                    Setting::BurstUs(9),
                ),
                "echo 9 > /sys/fs/cgroup/cpu/docker/0a/cpu.cfs_burst_us",
            ),
            (
                command(
                    "/docker/0a",
                    CgroupVersion::V1,
                    runtime("docker", "0a"),
                    Setting::WeightPercent(1000),
                ),
                "docker update --cpu-shares 10240 0a",
            ),
            (
                command(
                    "/system.slice/docker-0a.scope",
                    CgroupVersion::V2,
                    runtime("docker", "0a"),
                    Setting::WeightPercent(1000),
                ),
                "echo 1000 > /sys/fs/cgroup/system.slice/docker-0a.scope/cpu.weight",
            ),
            (
                command("/system.slice", CgroupVersion::V2, None, Setting::Cpus(1.0)),
                "systemctl set-property --runtime system.slice CPUQuota=100%",
            ),
            (
                command("/a; reboot", CgroupVersion::V2, None, Setting::Cpus(2.0)),
                "echo '200000 100000' > '/sys/fs/cgroup/a; reboot/cpu.max'",
            ),
            (
                command("/a", CgroupVersion::V1, None, Setting::WeightPercent(1000)),
                "echo 10240 > /sys/fs/cgroup/cpu/a/cpu.shares",
            ),
        ];
        for (is, should) in cases {
            assert_eq!(is.as_deref(), Some(should));
        }
        assert_eq!(command("/", CgroupVersion::V2, None, Setting::Cpus(2.0)), None);
    }

    #[test]
    fn limits_of_memory_are_set_by_whoever_has_a_way_to() {
        let docker =
            Some(Container { runtime: "docker".into(), id: "0a".into(), ..Container::default() });
        let (max, high) = (Setting::MemoryMax(96 << 20), Setting::MemoryHigh(96 << 20));
        let scope = "/system.slice/docker-0a.scope";
        for (path, version, container, setting, should) in [
            ("/a", CgroupVersion::V2, None, max, "echo 100663296 > /sys/fs/cgroup/a/memory.max"),
            ("/a", CgroupVersion::V2, None, high, "echo 100663296 > /sys/fs/cgroup/a/memory.high"),
            (
                "/a",
                CgroupVersion::V1,
                None,
                max,
                "echo 100663296 > /sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            ),
            (
                "/system.slice",
                CgroupVersion::V2,
                None,
                high,
                "systemctl set-property --runtime system.slice MemoryHigh=100663296",
            ),
            (scope, CgroupVersion::V2, docker.clone(), max, "docker update --memory 100663296 0a"),
            (
                scope,
                CgroupVersion::V2,
                docker,
                high,
                "echo 100663296 > /sys/fs/cgroup/system.slice/docker-0a.scope/memory.high",
            ),
        ] {
            assert_eq!(set(&cgroup(path, version, container), setting).as_deref(), Some(should));
        }
    }

    #[test]
    fn whoever_is_above_a_directory_is_not_asked_about_it() {
        let container = |runtime: &str, id: &str| {
            Some(Container { runtime: runtime.into(), id: id.into(), ..Container::default() })
        };
        let paths = [
            ("/system.slice/slurmstepd.scope/job_2", container("systemd", "slurmstepd.scope")),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/x.service",
                container("systemd", "x.service"),
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/init.scope",
                container("systemd", "init.scope"),
            ),
            (
                "/machine.slice/machine-a.scope/libvirt/vcpu0",
                container("systemd", "machine-a.scope"),
            ),
            ("/docker/0a0b/init.scope", container("docker", "0a0b")),
        ];
        for (path, container) in paths {
            let cgroup = cgroup(path, CgroupVersion::V2, container);
            assert_eq!(owner(&cgroup), Owner::Nobody, "{path}");
            let command = set(&cgroup, Setting::Cpus(2.0)).unwrap();
            assert_eq!(
                command,
                format!(
                    "echo '200000 100000' > {}",
                    shell_quote(&format!("/sys/fs/cgroup{path}/cpu.max"))
                )
            );
        }
        let user = cgroup(
            "/user.slice/user-1000.slice/user@1000.service",
            CgroupVersion::V2,
            container("systemd", "user@1000.service"),
        );
        assert_eq!(owner(&user), Owner::Systemd("user@1000.service"));
    }
}
