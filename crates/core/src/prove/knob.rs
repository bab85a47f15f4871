// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A knob: one setting of a host or of a process, and the value that an experiment gives to it.
//!
//! As text it is `SETTING=VALUE`, where the setting is `NAME` (a sysctl), `KIND:NAME`, `KIND:PID` or `KIND:SUBJECT:NAME`.
//! The subject may contain colons and equals signs, since paths of cgroups and numbers of disks do. Only settings of the
//! table [`LEVERS`] exist: each has the values that are allowed, and what it may cost.

mod levers;
mod values;

pub use levers::{LEVERS, Lever, Subject};
pub use values::{Policy, UNLOADED, UNSET, Values};

use crate::text::ticked;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest text of a knob, in bytes: longer than any path of a cgroup.
const MAX_BYTES: usize = 5000;

/// What kind of a thing a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The kernel: a file of `/proc/sys`.
    Sysctl,
    /// Transparent huge pages: a file of `/sys/kernel/mm/transparent_hugepage`.
    Thp,
    /// Frequency and idle states of all CPUs.
    Cpu,
    /// The queue of a disk: a file of `/sys/block/DISK/queue`.
    Block,
    /// The page cache of a disk: a file of `/sys/class/bdi/MAJOR:MINOR`.
    Bdi,
    /// An interrupt: a file of `/proc/irq/NUMBER`.
    Irq,
    /// A module of the kernel, which is unloaded.
    Module,
    /// A cgroup: a file of its directory, in cgroup v1 or v2.
    Cgroup,
    /// The nice value of all threads of a process.
    Nice,
    /// The scheduling policy of all threads of a process.
    Policy,
    /// The CPUs that the threads of a process may use.
    Affinity,
    /// A process is stopped for a part of every second.
    Pause,
    /// A variable of the environment of the command that the experiment starts.
    Env,
    /// An argument of that command.
    Arg,
}

impl Kind {
    /// The word before the first colon; `None` for sysctls, which have none.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Sysctl => None,
            Self::Thp => Some("thp"),
            Self::Cpu => Some("cpu"),
            Self::Block => Some("block"),
            Self::Bdi => Some("bdi"),
            Self::Irq => Some("irq"),
            Self::Module => Some("module"),
            Self::Cgroup => Some("cgroup"),
            Self::Nice => Some("nice"),
            Self::Policy => Some("policy"),
            Self::Affinity => Some("affinity"),
            Self::Pause => Some("pause"),
            Self::Env => Some("env"),
            Self::Arg => Some("arg"),
        }
    }

    /// What the subject of such a setting is.
    #[must_use]
    pub fn subject(self) -> Subject {
        match self {
            Self::Sysctl | Self::Thp | Self::Cpu => Subject::Host,
            Self::Block => Subject::Disk,
            Self::Bdi => Subject::DeviceNumber,
            Self::Irq => Subject::Irq,
            Self::Module => Subject::Module,
            Self::Cgroup => Subject::Cgroup,
            Self::Nice | Self::Policy | Self::Affinity | Self::Pause => Subject::Pid,
            Self::Env => Subject::Variable,
            Self::Arg => Subject::Position,
        }
    }

    /// Whether it is a setting of the command that the experiment starts anew for each block, and not of the host.
    #[must_use]
    pub fn is_of_command(self) -> bool {
        matches!(self, Self::Env | Self::Arg)
    }
}

/// A setting and the value that it gets. Made by [`Knob::parse`], so its setting is one of [`LEVERS`] and its value is
/// allowed there; whether this host has the setting is not known yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Knob {
    lever: &'static Lever,
    subject: String,
    value: String,
}

/// Why a text is not a knob. Names the text and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KnobError(String);

impl Knob {
    /// Reads the text form.
    ///
    /// # Errors
    /// If the setting is not in the table, the subject cannot be one, or the value is not allowed.
    pub fn parse(text: &str) -> Result<Self, KnobError> {
        if text.len() > MAX_BYTES || text.chars().any(char::is_control) {
            let problem = "a setting is one line of text without control characters";
            return Err(KnobError(format!("{}: {problem}", shown(text))));
        }
        let found = LEVERS.iter().filter_map(|lever| Self::as_lever(text, lever));
        // A path may contain what looks like a setting: the last one is it.
        let Some(knob) = found.max_by_key(|knob| knob.subject.len()) else {
            return Err(unknown(text));
        };
        knob.subject_of_kind()
            .map_err(|problem| KnobError(format!("{}: {problem}", shown(text))))?;
        let allowed = knob.lever.values.check(&knob.value);
        allowed.map_err(|problem| {
            KnobError(format!("{}: {} must be {problem}", shown(text), knob.setting()))
        })?;
        Ok(knob)
    }

    /// The text as a setting of that lever, if it names that.
    fn as_lever(text: &str, lever: &'static Lever) -> Option<Self> {
        let rest = match lever.kind.word() {
            Some(word) => text.strip_prefix(word)?.strip_prefix(':')?,
            None => text,
        };
        let name = format!("{}=", lever.name);
        let (subject, value) = match lever.kind.subject() {
            Subject::Host => ("", rest.strip_prefix(&name)?),
            Subject::Module | Subject::Pid | Subject::Variable | Subject::Position => {
                rest.split_once('=')?
            }
            _ => {
                let at = rest.rfind(&format!(":{name}"))?;
                (&rest[..at], &rest[at + 1 + name.len()..])
            }
        };
        // A program may tell spaces apart; the kernel does not.
        let value = if lever.values == Values::Text { value } else { value.trim() };
        Some(Self { lever, subject: subject.into(), value: value.into() })
    }

    fn subject_of_kind(&self) -> Result<(), String> {
        let subject = self.lever.kind.subject();
        if subject.is_one(&self.subject) {
            return Ok(());
        }
        Err(format!("{} is no {}", shown(&self.subject), subject.words()))
    }

    /// The row of the table that this is about.
    #[must_use]
    pub fn lever(&self) -> &'static Lever {
        self.lever
    }

    /// What the setting belongs to: a disk, a cgroup's path, a pid; empty if it is the host's.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The value, as the kernel reads it.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The setting without the value, in the text form: `block:vda:scheduler`.
    #[must_use]
    pub fn setting(&self) -> String {
        let parts = [self.lever.kind.word().unwrap_or_default(), &self.subject, self.lever.name];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(":")
    }

    /// The same setting with another value.
    ///
    /// # Errors
    /// If the value is not allowed.
    pub fn with(&self, value: &str) -> Result<Self, KnobError> {
        Self::parse(&format!("{}={value}", self.setting()))
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.setting(), self.value)
    }
}

impl TryFrom<String> for Knob {
    type Error = KnobError;

    fn try_from(text: String) -> Result<Self, KnobError> {
        Self::parse(&text)
    }
}

impl std::str::FromStr for Knob {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        Self::parse(text)
    }
}

impl From<Knob> for String {
    fn from(knob: Knob) -> Self {
        knob.to_string()
    }
}

/// A text of the user in a message, shortened.
fn shown(text: &str) -> String {
    const MOST_CHARS: usize = 120;
    let short: String = text.chars().take(MOST_CHARS).collect();
    ticked(&if short.len() < text.len() { short + "..." } else { short })
}

/// Why there is no such setting, with the settings of the same kind.
fn unknown(text: &str) -> KnobError {
    let word = text.split(':').next().unwrap_or_default();
    let of_kind: Vec<_> = LEVERS.iter().filter(|it| it.kind.word() == Some(word)).collect();
    let Some(one) = of_kind.first() else {
        let form = "a setting is `NAME=VALUE`, `KIND:NAME=VALUE` or `KIND:SUBJECT:NAME=VALUE`";
        let which = "`docs/prove.md` lists those that an experiment may change";
        return KnobError(format!("{}: there is no such setting; {form}; {which}", shown(text)));
    };
    if one.name.is_empty() {
        return KnobError(format!("{}: it is `{}=VALUE`", shown(text), one.pattern()));
    }
    let names: Vec<&str> = of_kind.iter().map(|lever| lever.name).collect();
    let pattern = one.pattern().replace(one.name, "NAME");
    let names = names.join(", ");
    KnobError(format!("{}: it is `{pattern}=VALUE`, where NAME is one of: {names}", shown(text)))
}

#[cfg(test)]
mod tests;
