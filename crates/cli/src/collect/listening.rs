// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who listens on a port: whose sockets are those of clients.

use super::Roots;
use deburr_core::procfs::net_tcp::listening;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;

/// Seconds after which it is looked again whether somebody listens where nobody did.
const LISTENING_FOR_S: u32 = 10;
/// Length of a list of sockets that is read: the listening ones come first.
const LISTED_BYTES: u64 = 256 << 10;

/// The ports on which somebody listens, in the network namespace of each process.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    seconds: u32,
    of: BTreeMap<u32, PathBuf>,
    namespaces: BTreeMap<PathBuf, Ports>,
}

#[derive(Debug, Default)]
struct Ports {
    /// Somebody listened there: connections that were accepted may outlive the listener.
    listening: BTreeSet<u16>,
    /// Nobody did, when it was last looked.
    others: BTreeSet<u16>,
}

impl Listening {
    /// A second is over: it looks again now and then whether somebody listens where nobody did.
    pub(crate) fn second(&mut self, watched: &BTreeSet<u32>) {
        self.of.retain(|pid, _| watched.contains(pid));
        self.seconds += 1;
        if self.seconds.is_multiple_of(LISTENING_FOR_S) {
            self.namespaces.retain(|namespace, _| self.of.values().any(|it| it == namespace));
            self.namespaces.values_mut().for_each(|ports| ports.others.clear());
        }
    }

    /// The pid is another process's now, which may be in another network namespace.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.of.remove(&pid);
    }

    /// Looks who listens, for these processes and ports.
    pub(crate) fn look(&mut self, roots: &Roots, asked: &BTreeSet<(u32, u16)>) {
        let mut read = BTreeSet::new();
        for &(pid, port) in asked {
            let process = roots.proc.join(pid.to_string());
            let Ok(namespace) = fs::read_link(process.join("ns/net")) else { continue };
            let ports = self.namespaces.entry(namespace.clone()).or_default();
            if read.insert(namespace.clone()) {
                for name in ["net/tcp", "net/tcp6"] {
                    ports.listening.extend(listening_in(process.join(name)));
                }
            }
            if !ports.listening.contains(&port) {
                ports.others.insert(port);
            }
            self.of.insert(pid, namespace);
        }
    }

    /// Whether somebody listens on that port; `None` = it is not known.
    pub(crate) fn has(&self, pid: u32, port: u16) -> Option<bool> {
        let ports = self.namespaces.get(self.of.get(&pid)?)?;
        let known = ports.others.contains(&port).then_some(false);
        if ports.listening.contains(&port) { Some(true) } else { known }
    }
}

/// The ports of listening sockets, from the beginning of a file, which has them first.
pub(crate) fn listening_in(path: PathBuf) -> BTreeSet<u16> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LISTED_BYTES).read_to_end(&mut text));
    read.map(|_| listening(&text)).unwrap_or_default()
}

#[cfg(test)]
impl Listening {
    /// A process, a port that somebody listens on in its network namespace, and one that nobody does.
    pub(crate) fn of(pid: u32, port: u16, other: u16) -> Self {
        let of = BTreeMap::from([(pid, PathBuf::from("net:[1]"))]);
        let ports = Ports { listening: [port].into(), others: [other].into() };
        Self { seconds: 0, of, namespaces: [("net:[1]".into(), ports)].into() }
    }
}
