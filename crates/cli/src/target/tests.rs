// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::{TargetError, resolve};
use crate::args::Target;
use crate::collect::fixture::{Host, stat};
use deburr_core::recording::TargetSpec;

const NOBODY: Target = Target { pid: None, comm: None, cgroup: None, container: None };

fn pid(host: &Host, pid: u32) -> Result<TargetSpec, TargetError> {
    resolve(&Target { pid: Some(pid), ..NOBODY }, &host.roots).map(Option::unwrap)
}

fn comm(host: &Host, comm: &str) -> Result<TargetSpec, TargetError> {
    resolve(&Target { comm: Some(comm.into()), ..NOBODY }, &host.roots).map(Option::unwrap)
}

fn cgroup(host: &Host, path: &str) -> Result<TargetSpec, TargetError> {
    resolve(&Target { cgroup: Some(path.into()), ..NOBODY }, &host.roots).map(Option::unwrap)
}

fn container(host: &Host, wanted: &str) -> Result<TargetSpec, TargetError> {
    resolve(&Target { container: Some(wanted.into()), ..NOBODY }, &host.roots).map(Option::unwrap)
}

fn says<T: std::fmt::Debug>(result: Result<T, TargetError>) -> String {
    result.unwrap_err().to_string()
}

/// A host with containers of Docker and Kubernetes in a v1 tree.
fn containers() -> Host {
    let host = Host::like("cgroup/mixed");
    for (runtime, id) in [("docker", "d"), ("docker", "e"), ("kubepods/burstable", "c")] {
        let dir = format!("sys/fs/cgroup/cpu/{runtime}/{}", id.repeat(64));
        host.write(&format!("{dir}/cgroup.procs"), "1\n");
    }
    let config = |name: &str| format!("{{\"Name\":\"/{name}\"}}");
    for (id, name) in [("d", "web"), ("e", "we\u{1b}[31mb")] {
        let dir = format!("var/lib/docker/containers/{}", id.repeat(64));
        host.write(&format!("{dir}/config.v2.json"), config(&name.replace('\u{1b}', "\\u001b")));
    }
    host
}

#[test]
fn nothing_named_is_nothing() {
    assert_eq!(resolve(&NOBODY, &Host::empty().roots), Ok(None));
}

#[test]
fn a_pid_is_a_process() {
    let host = Host::empty();
    host.process(40, "java");
    let expected = TargetSpec::Process { pid: 40, comm: "java".into() };
    assert_eq!(pid(&host, 40), Ok(expected));
}

#[test]
fn an_unknown_pid_is_named_with_its_neighbours() {
    let host = Host::empty();
    for (pid, comm) in [(1, "init"), (40, "java"), (44, "sh"), (50, "vi")] {
        host.process(pid, comm);
    }
    let expected = "no process has the pid 42; the nearest: 40 (`java`), 44 (`sh`), 50 (`vi`)";
    assert_eq!(says(pid(&host, 42)), expected);
    assert_eq!(says(pid(&Host::empty(), 0)), "no process has the pid 0");
    assert!(matches!(pid(&host, u32::MAX), Err(TargetError::NoProcess { .. })));
}

#[test]
fn a_thread_or_a_zombie_is_told() {
    let host = Host::empty();
    host.process(40, "java");
    host.write("proc/41/stat", stat(41, "GC thread", 1, 0));
    host.write("proc/41/status", "Tgid:\t40\n");
    assert_eq!(says(pid(&host, 41)), "41 is a thread of process 40 (`java`): use `-p 40`");
    host.write("proc/43/stat", stat(43, "done", 1, 0).replace(") S", ") Z"));
    assert!(says(pid(&host, 43)).starts_with("process 43 (`done`) has ended"));
    // Only its main thread has ended.
    host.write("proc/45/stat", stat(45, "server", 3, 0).replace(") S", ") Z"));
    assert!(pid(&host, 45).is_ok());
}

#[test]
fn a_comm_is_exact_or_the_beginning_that_the_kernel_kept() {
    let host = Host::empty();
    host.process(7, "nginx");
    host.process(8, "very-long-daemo");
    host.process(9, "nginx-exporter");
    assert_eq!(comm(&host, "nginx"), Ok(TargetSpec::Comm { comm: "nginx".into() }));
    let long = TargetSpec::Comm { comm: "very-long-daemo".into() };
    assert_eq!(comm(&host, "very-long-daemon-of-mine"), Ok(long));
    let expected = "no process is named `ngnix`; running and alike: `nginx`, `nginx-exporter`";
    assert_eq!(says(comm(&host, "ngnix")), expected);
    assert_eq!(says(comm(&host, "zebra")), "no process is named `zebra`");
    assert!(comm(&host, "").is_err());
}

#[test]
fn a_cgroup_is_a_path_in_the_tree_or_a_directory() {
    let host = Host::like("cgroup/mixed");
    host.write("sys/fs/cgroup/cpu/jobs/batch/cgroup.procs", "42\n");
    let expected = TargetSpec::Cgroup { path: "/jobs".into() };
    let dir = host.path("sys/fs/cgroup/cpu/jobs/");
    for given in ["/jobs", "jobs", "/jobs/", "//jobs", dir.to_str().unwrap()] {
        assert_eq!(cgroup(&host, given).as_ref(), Ok(&expected), "{given}");
    }
    // Hosts with cpu and cpuacct in one tree have symbolic links to it with both names.
    let link = host.path("sys/fs/cgroup/cpu-link");
    std::os::unix::fs::symlink(host.path("sys/fs/cgroup/cpu"), &link).unwrap();
    assert_eq!(cgroup(&host, link.join("jobs").to_str().unwrap()).as_ref(), Ok(&expected));
}

#[test]
fn a_cgroup_that_is_too_deep_to_be_looked_through_is_not_refused_as_empty() {
    let host = Host::like("cgroup/mixed");
    host.write("sys/fs/cgroup/cpu/shallow/below/cgroup.procs", "");
    assert!(says(cgroup(&host, "/shallow")).contains("there is no process"));
    let below = ["d"; 300].join("/");
    host.write(&format!("sys/fs/cgroup/cpu/deep/{below}/cgroup.procs"), "");
    assert_eq!(cgroup(&host, "/deep"), Ok(TargetSpec::Cgroup { path: "/deep".into() }));
    // No path leads further down than a walk goes.
    assert!(matches!(cgroup(&host, &format!("/deep/{below}")), Err(TargetError::NoCgroup { .. })));
}

#[test]
fn an_unknown_cgroup_is_named_with_what_its_parent_has() {
    let host = Host::like("cgroup/mixed");
    let message = says(cgroup(&host, "/jobs/bach/x"));
    let tree = host.path("sys/fs/cgroup/cpu");
    let expected = format!(
        "there is no cgroup `/jobs/bach/x` in the tree at `{}`; in `/jobs`: `batch`",
        tree.display()
    );
    assert_eq!(message, expected);
    assert!(says(cgroup(&host, "/zzz")).ends_with("; in `/`: `docker`, `jobs`"));
    assert!(cgroup(&host, "/../etc").is_err());
    assert_eq!(
        says(cgroup(&host, "/jobs")),
        "there is no process in the cgroup `/jobs` and below it"
    );
    let none = says(cgroup(&Host::empty(), "/jobs"));
    assert_eq!(none, "no cgroup tree is mounted here, so there is no `/jobs`");
}

#[test]
fn a_container_is_found_by_name_id_or_the_beginning_of_its_id() {
    let host = containers();
    for wanted in ["web", "ddd", &"d".repeat(64)] {
        let Ok(TargetSpec::Container { container, path }) = container(&host, wanted) else {
            panic!("{wanted}")
        };
        assert_eq!(container.name.as_deref(), Some("web"));
        assert_eq!(path, format!("/docker/{}", "d".repeat(64)));
    }
}

#[test]
fn an_unknown_container_is_named_with_those_there_are() {
    let host = containers();
    let message = says(container(&host, "wob"));
    assert!(
        message.starts_with("no container has the name or id `wob`; on this host: `we"),
        "{message}"
    );
    assert!(message.contains("`web` (docker `dddddddddddd`)"), "{message}");
    assert!(matches!(container(&host, ""), Err(TargetError::NoContainer { .. })));
    let none = says(container(&Host::like("cgroup/v2"), "web"));
    assert_eq!(none, "no container has the name or id `web`");
}

#[test]
fn a_name_that_several_containers_have_asks_for_the_id() {
    let host = containers();
    let dir = format!("var/lib/docker/containers/{}", "e".repeat(64));
    host.write(&format!("{dir}/config.v2.json"), "{\"Name\":\"/web\"}");
    let expected = "`web` is more than one container; give the id: `web` (docker `dddddddddddd`), \
                    `web` (docker `eeeeeeeeeeee`)";
    assert_eq!(says(container(&host, "web")), expected);
}

#[test]
fn many_are_counted() {
    let host = Host::empty();
    for pid in 0..9 {
        host.process(100 + pid, &format!("worker-{pid}"));
    }
    assert!(says(comm(&host, "worker")).ends_with("`worker-4`, and 4 more"));
}
