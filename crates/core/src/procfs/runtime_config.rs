// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the files of container runtimes say about a container: its name, and the pod that it belongs to.
//!
//! Labels and annotations are whatever somebody gave to the container.

use crate::recording::Container;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Docker's `config.v2.json`.
#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "Name")]
    name: Option<String>,
    #[serde(rename = "Config")]
    config: Option<DockerLabels>,
}

#[derive(Deserialize)]
struct DockerLabels {
    #[serde(rename = "Labels")]
    labels: Option<BTreeMap<String, String>>,
}

/// The OCI runtime's `config.json`, as containerd, CRI-O and Podman leave it in a container's bundle.
#[derive(Deserialize)]
struct OciConfig {
    annotations: Option<BTreeMap<String, String>>,
}

/// An entry of `containers.json` of the storage library of CRI-O and Podman.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoredContainer {
    /// Id of the container.
    pub id: String,
    /// Its names; the first is the one that was given to it.
    pub names: Option<Vec<String>>,
}

/// Docker's `config.v2.json`. `false` if the text is no such file; the container is then left as it is.
pub fn docker(text: &[u8], container: &mut Container) -> bool {
    let Ok(config) = serde_json::from_slice::<DockerConfig>(text) else { return false };
    container.name = config.name.map(|name| name.trim_start_matches('/').to_owned());
    pod_labels(container, &config.config.and_then(|config| config.labels).unwrap_or_default());
    true
}

/// `config.json` in a bundle of containerd. `false` if the text is no such file.
pub fn containerd(text: &[u8], container: &mut Container) -> bool {
    let Ok(config) = serde_json::from_slice::<OciConfig>(text) else { return false };
    let annotations = config.annotations.unwrap_or_default();
    let cri = |key: &str| annotations.get(&format!("io.kubernetes.cri.{key}")).cloned();
    container.name = cri("container-name").or_else(|| annotations.get("nerdctl/name").cloned());
    if cri("container-type").as_deref() == Some("sandbox") {
        container.name = Some("pause".into());
    }
    container.pod = cri("sandbox-name").or(container.pod.take());
    container.namespace = cri("sandbox-namespace");
    true
}

/// `config.json` in a bundle of CRI-O or Podman. `false` if the text is no such file.
pub fn storage(text: &[u8], container: &mut Container) -> bool {
    let Ok(config) = serde_json::from_slice::<OciConfig>(text) else { return false };
    pod_labels(container, &config.annotations.unwrap_or_default());
    true
}

/// `containers.json` of the storage library; `None` if the text is no such file.
#[must_use]
pub fn stored(text: &[u8]) -> Option<Vec<StoredContainer>> {
    serde_json::from_slice(text).ok()
}

/// The labels that the kubelet gives to containers of Docker, CRI-O and Podman.
fn pod_labels(container: &mut Container, labels: &BTreeMap<String, String>) {
    let label = |key: &str| labels.get(&format!("io.kubernetes.{key}")).cloned();
    container.name = label("container.name").or(container.name.take());
    container.pod = label("pod.name").or(container.pod.take());
    container.namespace = label("pod.namespace").or(container.namespace.take());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_file_changes_nothing() {
        let before = Container { name: Some("kept".into()), ..Container::default() };
        for text in [
            &b""[..],
            b"[]",
            b"{\"Name\": 1, \"annotations\": 2}",
            b"{\"Config\": {\"Labels\": []}}",
        ] {
            for read in [docker, containerd, storage] {
                let mut container = before.clone();
                assert!(!read(text, &mut container) || text.starts_with(b"{\"Config"));
                assert!(container == before || text.starts_with(b"{\"Config"), "{container:?}");
            }
            assert_eq!(stored(text).is_some(), text == b"[]");
        }
    }
}
