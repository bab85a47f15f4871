// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of container runtimes: names, labels and annotations are whatever somebody gave to a container.

use crate::judged::visible;
use deburr_core::procfs::runtime_config;
use deburr_core::recording::Container;
use deburr_core::render;

pub(crate) fn read(data: &[u8]) -> bool {
    let mut is_read = false;
    for reader in [runtime_config::docker, runtime_config::containerd, runtime_config::storage] {
        let before = Container { pod: Some("pod".into()), ..Container::default() };
        let mut container = before.clone();
        if reader(data, &mut container) {
            is_read = true;
            assert!(container.pod.is_some(), "what the path told is replaced or kept");
        } else {
            assert_eq!(container, before, "a text that is no such file changed it");
        }
        for name in [&container.name, &container.pod, &container.namespace].into_iter().flatten() {
            // An escape such as \u00e9 is longer than what it stands for.
            assert!(name.len() <= data.len().max(8), "{name}");
            visible(&render::message(name));
        }
    }
    is_read | runtime_config::stored(data).is_some_and(|all| all.len() <= data.len())
}
