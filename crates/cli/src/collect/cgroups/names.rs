// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of containers and pods, from the files that container runtimes keep. No daemon is queried.

use deburr_core::procfs::runtime_config::{self, StoredContainer};
use deburr_core::recording::Container;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Larger files are not a container's configuration.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Entries of a directory that are read.
const MAX_ENTRIES: usize = 1 << 16;
/// For how long what concerns all containers is not read again: directories, and the list of containers.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The files of container runtimes below a root directory.
#[derive(Debug)]
pub(crate) struct RuntimeFiles {
    root: PathBuf,
    kept: RefCell<Kept>,
}

/// What was read last of what concerns all containers.
#[derive(Debug, Default)]
struct Kept {
    since: Option<Instant>,
    lists: BTreeMap<String, Rc<Vec<String>>>,
    stored: Option<Rc<Vec<StoredContainer>>>,
}

impl RuntimeFiles {
    pub(crate) fn below(root: &Path) -> Self {
        Self { root: root.to_owned(), kept: RefCell::default() }
    }

    /// Adds the names in the files to what the cgroup's path shows. If the path does not name the runtime (the cgroupfs
    /// driver of Kubernetes), the runtime that has a file of the container is taken.
    pub(crate) fn complete(&self, container: &mut Container) {
        let mut kept = self.kept.borrow_mut();
        if kept.since.is_none_or(|since| since.elapsed() > KEPT_FOR) {
            *kept = Kept { since: Some(Instant::now()), ..Kept::default() };
        }
        drop(kept);
        // The id becomes part of a path. Ids come from directory names, so there is no slash in them.
        match container.runtime.as_str() {
            "docker" => self.docker(container),
            "containerd" => self.containerd(container),
            "cri-o" | "podman" => self.storage(container),
            "kubernetes" if container.pod.as_ref() != Some(&container.id) => {
                for (runtime, ask) in [
                    ("containerd", Self::containerd as fn(&Self, &mut Container)),
                    ("docker", Self::docker),
                    ("cri-o", Self::storage),
                ] {
                    ask(self, container);
                    if container.name.is_some() {
                        container.runtime = runtime.into();
                        break;
                    }
                }
            }
            _ => {}
        }
        if container.namespace.is_none() {
            self.pod_logs(container);
        }
    }

    fn docker(&self, container: &mut Container) {
        let file = format!("var/lib/docker/containers/{}/config.v2.json", container.id);
        if let Some(text) = self.text(&file) {
            runtime_config::docker(&text, container);
        }
    }

    fn containerd(&self, container: &mut Container) {
        let tasks = "run/containerd/io.containerd.runtime.v2.task";
        for namespace in self.list(tasks).iter() {
            let file = format!("{tasks}/{namespace}/{}/config.json", container.id);
            if self.text(&file).is_some_and(|text| runtime_config::containerd(&text, container)) {
                return;
            }
        }
    }

    fn storage(&self, container: &mut Container) {
        let bundle = "run/containers/storage/overlay-containers";
        if let Some(text) = self.text(&format!("{bundle}/{}/userdata/config.json", container.id)) {
            runtime_config::storage(&text, container);
        }
        if container.name.is_none() {
            let stored = "var/lib/containers/storage/overlay-containers/containers.json";
            let known = self.kept.borrow().stored.clone();
            let read = || self.text(stored).and_then(|text| runtime_config::stored(&text));
            let all = known.unwrap_or_else(|| Rc::new(read().unwrap_or_default()));
            self.kept.borrow_mut().stored = Some(Rc::clone(&all));
            let own = all.iter().find(|stored| stored.id == container.id);
            container.name = own.and_then(|own| own.names.as_ref()?.first().cloned());
        }
    }

    /// The kubelet names the directory of a pod's logs `NAMESPACE_POD_UID`.
    fn pod_logs(&self, container: &mut Container) {
        let Some(uid) = container.pod.clone() else { return };
        for entry in self.list("var/log/pods").iter() {
            let mut parts = entry.splitn(3, '_');
            if let (Some(namespace), Some(pod), Some(of)) =
                (parts.next(), parts.next(), parts.next())
                && of == uid
            {
                container.namespace = Some(namespace.into());
                container.pod = Some(pod.into());
                return;
            }
        }
    }

    /// The content of a file, but for what is too long.
    fn text(&self, file: &str) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        // Whatever lies in its place: opening a FIFO would wait, and a device has no end.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.root.join(file));
        let file = file.ok().filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()))?;
        file.take(MAX_FILE_BYTES).read_to_end(&mut text).ok()?;
        Some(text)
    }

    /// The names in a directory, sorted.
    fn list(&self, dir: &str) -> Rc<Vec<String>> {
        if let Some(known) = self.kept.borrow().lists.get(dir) {
            return Rc::clone(known);
        }
        let entries = fs::read_dir(self.root.join(dir)).into_iter().flatten().flatten();
        let entries = entries.take(MAX_ENTRIES);
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        let names = Rc::new(names);
        self.kept.borrow_mut().lists.insert(dir.into(), Rc::clone(&names));
        names
    }
}

#[cfg(test)]
mod tests {
    use super::RuntimeFiles;
    use deburr_core::recording::Container;

    fn complete(runtime: &str, id: &str, pod: Option<&str>) -> Container {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/runtimes");
        let mut container = Container {
            runtime: runtime.into(),
            id: id.repeat(64 / id.len()),
            pod: pod.map(str::to_owned),
            ..Container::default()
        };
        RuntimeFiles::below(root.as_ref()).complete(&mut container);
        container
    }

    #[test]
    fn each_runtime_tells_the_name_it_was_given() {
        assert_eq!(complete("docker", "d", None).name.as_deref(), Some("web"));
        assert_eq!(complete("podman", "b", None).name.as_deref(), Some("db"));
        let cri = complete("containerd", "c", Some("uid"));
        assert_eq!(cri.name.as_deref(), Some("app"));
        assert_eq!((cri.pod.as_deref(), cri.namespace.as_deref()), (Some("app-0"), Some("prod")));
        let crio = complete("cri-o", "a", Some("uid"));
        assert_eq!(crio.name.as_deref(), Some("sidecar"));
        assert_eq!((crio.pod.as_deref(), crio.namespace.as_deref()), (Some("api-1"), Some("prod")));
    }

    #[test]
    fn a_runtime_that_the_path_does_not_name_is_found_by_its_file() {
        let found = complete("kubernetes", "c", Some("uid"));
        assert_eq!((found.runtime.as_str(), found.name.as_deref()), ("containerd", Some("app")));
    }

    #[test]
    fn a_pod_is_named_by_its_logs() {
        let uid = "5bb7d18f-1440-4104-bf00-bf4998acc6ff";
        let found = complete("kubernetes", "f", Some(uid));
        assert_eq!(
            (found.pod.as_deref(), found.namespace.as_deref()),
            (Some("cache-2"), Some("prod"))
        );
        assert_eq!((found.runtime.as_str(), found.name), ("kubernetes", None));
    }

    #[test]
    fn only_regular_files_are_read_and_what_concerns_all_containers_once() {
        let dir = tempfile::tempdir().unwrap();
        let files = RuntimeFiles::below(dir.path());
        let storage = dir.path().join("var/lib/containers/storage/overlay-containers");
        let docker = dir.path().join("var/lib/docker/containers/d");
        for dir in [&storage, &docker] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let fifo = docker.join("config.v2.json");
        rustix::fs::mkfifoat(rustix::fs::CWD, fifo, 0o600.into()).unwrap();
        let list = storage.join("containers.json");
        std::fs::write(&list, r#"[{"id": "p", "names": ["db"]}]"#).unwrap();
        let named = |runtime: &str, id: &str| {
            let (runtime, id) = (runtime.into(), id.into());
            let mut container = Container { runtime, id, ..Container::default() };
            files.complete(&mut container);
            container.name
        };
        assert_eq!(named("docker", "d"), None);
        assert_eq!(named("podman", "p").as_deref(), Some("db"));
        std::fs::remove_file(&list).unwrap();
        assert_eq!(named("podman", "p").as_deref(), Some("db"), "it is not read again at once");
    }

    #[test]
    fn what_is_not_there_or_damaged_leaves_the_id() {
        for id in ["0", "e"] {
            assert_eq!(complete("docker", id, None).name, None);
        }
    }
}
