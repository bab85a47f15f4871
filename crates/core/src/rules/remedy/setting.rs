// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A setting of a cgroup as a command for its owner: systemd, a container runtime, or nobody (a plain write).

use crate::recording::{Cgroup, CgroupVersion};
use crate::text::shell_quote;

/// A setting of a cgroup.
#[derive(Clone, Copy, Debug)]
pub(super) enum Setting {
    /// CPU weight, in percent of the default.
    WeightPercent(u64),
    /// CPU quota, in CPUs.
    Cpus(f64),
    /// Quota that may be saved up for bursts, in microseconds.
    BurstUs(u64),
}

/// The command that sets it through the directory's owner, since a runtime that owns it would overwrite a plain write.
/// `None` if only a plain write is left and the cgroup is the root.
pub(super) fn set(cgroup: &Cgroup, setting: Setting) -> Option<String> {
    let container = cgroup.container.as_ref();
    let runtime = container.map_or("", |container| container.runtime.as_str());
    if let (Some(container), "systemd") = (container, runtime) {
        let property = match setting {
            Setting::WeightPercent(percent) => Some(format!("CPUWeight={percent}")),
            Setting::Cpus(cpus) => Some(format!("CPUQuota={:.0}%", cpus * 100.0)),
            Setting::BurstUs(_) => None,
        };
        if let Some(property) = property {
            return Some(format!(
                "systemctl set-property --runtime {} {property}",
                operand(&container.id)
            ));
        }
    }
    if let (Some(container), "docker" | "podman") = (container, runtime) {
        let option = match setting {
            Setting::WeightPercent(percent) => Some(format!("--cpu-shares {}", shares(percent))),
            Setting::Cpus(cpus) => Some(format!("--cpus {}", decimal(cpus))),
            Setting::BurstUs(_) => None,
        };
        if let Some(option) = option {
            let name = container.name.as_deref().unwrap_or(&container.id);
            return Some(format!("{runtime} update {option} {}", operand(name)));
        }
    }
    if cgroup.path == "/" {
        return None;
    }
    let period_us = cgroup.period_us.filter(|&us| us > 0).unwrap_or(100_000);
    let quota_us = |cpus: f64| (cpus * period_us as f64).round() as u64;
    let (mount, file, value) = match (cgroup.version, setting) {
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
    };
    let path = format!("{mount}{}/{file}", cgroup.path);
    Some(format!("echo {value} > {}", shell_quote(&path)))
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

/// Where a cgroup's limits have to be changed for good, if a plain write does not last.
pub(super) fn owner_note(cgroup: &Cgroup) -> &'static str {
    match cgroup.container.as_ref() {
        Some(container) if container.pod.is_some() || container.runtime == "kubernetes" => {
            "; for a trial only: the kubelet owns the cgroup, set the pod's resources to keep it"
        }
        Some(container) if container.runtime == "systemd" => {
            "; until the next boot, leave out --runtime to keep it"
        }
        _ => "",
    }
}

/// The path of a setting's file, quoted for a shell.
pub(super) fn file(cgroup: &Cgroup, mount: &str, name: &str) -> String {
    shell_quote(&format!("{mount}{}/{name}", cgroup.path)).into_owned()
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
}
