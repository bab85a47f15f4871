// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which container, pod or unit a cgroup path belongs to, by the directory names that runtimes use.
//!
//! Only the path is used, so names that users gave to containers are not known here. The innermost container wins
//! (Docker in Docker, kind); a systemd unit is reported only if there is no container.

use crate::recording::Container;

/// Scope and directory prefixes of runtimes, before `-ID` or `-ID.scope`.
const PREFIXES: [(&str, &str); 7] = [
    ("docker", "docker"),
    ("cri-containerd", "containerd"),
    ("nerdctl", "containerd"),
    ("crio", "cri-o"),
    ("libpod", "podman"),
    ("podman", "podman"),
    ("lxc.payload", "lxc"),
];

/// The container or unit that a path in a cgroup tree is, or is part of.
#[must_use]
pub fn of_path(path: &str) -> Option<Container> {
    let mut found: Option<Container> = None;
    let mut unit = None;
    let mut pod: Option<&str> = None;
    let mut above = "";
    for name in path.split('/').filter(|name| !name.is_empty()) {
        if let Some(uid) = pod_uid(name) {
            pod = Some(uid);
            found = Some(Container {
                runtime: "kubernetes".into(),
                id: uid.replace('_', "-"),
                ..Container::default()
            });
        } else if let Some((runtime, id)) = container(name, above, pod.is_some()) {
            found =
                Some(Container { runtime: runtime.into(), id: id.into(), ..Container::default() });
        } else if name.ends_with(".service") || name.ends_with(".scope") {
            unit = Some(name);
        }
        above = name;
    }
    let found = found.or_else(|| {
        let unit = unit?.to_owned();
        Some(Container { runtime: Container::SYSTEMD.into(), id: unit, ..Container::default() })
    });
    found.map(|container| Container { pod: pod.map(|uid| uid.replace('_', "-")), ..container })
}

/// Runtime and id of a directory name in the directory `above`.
fn container<'a>(name: &'a str, above: &str, in_pod: bool) -> Option<(&'static str, &'a str)> {
    let stem = name.strip_suffix(".scope").unwrap_or(name);
    // Mismatched drivers: the path is in the form of the systemd driver, but containerd uses it as a plain directory
    // name, as the cgroupfs driver does: `SLICE:cri-containerd:ID`.
    if let Some((_, id)) = stem.split_once(":cri-containerd:") {
        return is_id(id).then_some(("containerd", id));
    }
    if let Some(id) = stem.strip_prefix("lxc.payload.").filter(|id| !id.is_empty()) {
        return Some(("lxc", id));
    }
    for (prefix, runtime) in PREFIXES {
        let id = stem.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
        if let Some(id) = id.filter(|id| is_id(id)) {
            return Some((runtime, id));
        }
    }
    match above {
        "lxc" | "lxc.payload" if !name.is_empty() => Some(("lxc", name)),
        _ if !is_id(name) => None,
        "docker" | "buildkit" | "moby" => Some(("docker", name)),
        "k8s.io" | "default" => Some(("containerd", name)),
        "libpod_parent" => Some(("podman", name)),
        // With the cgroupfs driver, the path does not contain the name of the runtime.
        _ if in_pod => Some(("kubernetes", name)),
        _ => None,
    }
}

/// Ids have 64 hex digits; Docker's short form has 12, and some tools use a UUID.
fn is_id(text: &str) -> bool {
    text.len() >= 12 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Uid in a pod's directory name: `podUID` (cgroupfs), `kubepods-burstable-podUID.slice` (systemd, with `_` instead
/// of `-`).
fn pod_uid(name: &str) -> Option<&str> {
    let uid = match name.strip_suffix(".slice") {
        Some(slice) => slice.split_once("kubepods")?.1.rsplit_once("-pod")?.1,
        None => name.strip_prefix("pod")?,
    };
    let valid = uid.len() >= 32 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b"-_".contains(&b));
    valid.then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::of_path;

    const ID: &str = "c2ccf53dabe5ecde2447e7e1d51de77b7f23ddf79b5a8714c46d77f0b4b1ef1b";
    const OTHER: &str = "11ccf53dabe5ecde2447e7e1d51de77b7f23ddf79b5a8714c46d77f0b4b1ef22";
    const POD: &str = "5bb7d18f-1440-4104-bf00-bf4998acc6ff";

    /// Asserts the runtime, id and pod of a path.
    fn expect(path: &str, runtime: &str, id: &str, pod: Option<&str>) {
        let found = of_path(path).unwrap_or_else(|| panic!("nothing found in {path}"));
        assert_eq!((found.runtime.as_str(), found.id.as_str()), (runtime, id), "{path}");
        assert_eq!(found.pod.as_deref(), pod, "{path}");
    }

    #[test]
    fn each_runtime_is_known_by_its_directories() {
        expect(&format!("/docker/{ID}"), "docker", ID, None);
        expect(&format!("/system.slice/docker-{ID}.scope"), "docker", ID, None);
        expect(&format!("/system.slice/docker-{ID}.scope/init.scope"), "docker", ID, None);
        expect(&format!("/machine.slice/libpod-{ID}.scope/container"), "podman", ID, None);
        expect(&format!("/libpod_parent/libpod-{ID}"), "podman", ID, None);
        expect(&format!("/default/{ID}"), "containerd", ID, None);
        expect(&format!("/system.slice/nerdctl-{ID}.scope"), "containerd", ID, None);
        expect("/lxc/web", "lxc", "web", None);
        expect("/lxc.payload.web/system.slice/ssh.service", "lxc", "web", None);
        expect("/lxc.payload/web", "lxc", "web", None);
    }

    #[test]
    fn pods_are_known_with_both_drivers() {
        let slice = POD.replace('-', "_");
        let slice =
            format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice");
        expect(&format!("/kubepods/burstable/pod{POD}/{ID}"), "kubernetes", ID, Some(POD));
        expect(&format!("/kubepods/pod{POD}"), "kubernetes", POD, Some(POD));
        expect(&slice, "kubernetes", POD, Some(POD));
        expect(&format!("{slice}/cri-containerd-{ID}.scope"), "containerd", ID, Some(POD));
        expect(&format!("{slice}/crio-{ID}.scope/container"), "cri-o", ID, Some(POD));
        let mismatch = format!("/system.slice/kubepods-pod{}.slice:cri-containerd:{ID}", "x");
        expect(&mismatch, "containerd", ID, None);
    }

    #[test]
    fn the_innermost_container_wins() {
        expect(&format!("/docker/{OTHER}/docker/{ID}"), "docker", ID, None);
        let kind = format!("/docker/{OTHER}/kubelet/kubepods/besteffort/pod{POD}/{ID}");
        expect(&kind, "kubernetes", ID, Some(POD));
    }

    #[test]
    fn units_are_told_where_no_container_is() {
        expect("/system.slice/nginx.service", "systemd", "nginx.service", None);
        let app = "/user.slice/user-1000.slice/user@1000.service/app.slice/app-foo.scope";
        expect(app, "systemd", "app-foo.scope", None);
        // The monitor of a podman container is not in the container.
        let monitor = format!("libpod-conmon-{ID}.scope");
        expect(&format!("/machine.slice/{monitor}"), "systemd", &monitor, None);
    }

    #[test]
    fn other_directories_are_nothing() {
        for path in
            ["/", "", "/user.slice", "/docker", "/docker/short", "/jobs/batch", "/podium", "/lxc"]
        {
            assert_eq!(of_path(path), None, "{path}");
        }
    }
}
