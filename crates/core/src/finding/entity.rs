// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Victims and culprits of findings: processes, cgroups, devices, files, ...

use super::BlameDistribution;
use crate::recording::Container;
use serde::{Deserialize, Serialize};

/// What kind of thing an [`Entity`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntityKind {
    /// A process.
    Process,
    /// A cgroup, container or unit.
    Cgroup,
    /// One thread.
    Thread,
    /// A block device.
    Device,
    /// A file.
    File,
    /// The kernel itself.
    Kernel,
    /// A CPU.
    Cpu,
    /// The host.
    Host,
    /// A setting.
    Setting,
    /// An interrupt.
    Irq,
    /// A socket, or the other end of a connection.
    Socket,
    /// The observer.
    Observer,
    /// Not known, with the reason in `note`.
    Unknown,
}

/// A victim or a cause. Only the fields that apply to its kind are set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entity {
    /// Kind of the entity.
    pub kind: EntityKind,
    /// Process id of a process or thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Number of processes with that comm and cgroup, where they are reported together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Thread id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Comm of a process or thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// cgroup path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Container or unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// Device name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// File path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Address and port of a socket, or of the other end of a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// CPU number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Name of a setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Value of a setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// A remark: why the entity is not known, what it means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Which of several processes carry most of the blame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whom: Option<BlameDistribution>,
}

impl Entity {
    /// An entity of that kind, with no other field set.
    #[must_use]
    pub fn new(kind: EntityKind) -> Self {
        Self {
            kind,
            pid: None,
            processes: None,
            tid: None,
            comm: None,
            cgroup: None,
            container: None,
            device: None,
            path: None,
            address: None,
            cpu: None,
            key: None,
            value: None,
            note: None,
            whom: None,
        }
    }
}
