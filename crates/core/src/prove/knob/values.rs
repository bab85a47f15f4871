// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which values a setting may get.

use crate::procfs::cpu_list;

/// The values that are allowed for a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// A whole number in this range, limits included.
    Number(i64, i64),
    /// One of the words that the kernel offers for it.
    Offered,
    /// CPU numbers and ranges of them: `0-2,5`.
    Cpus,
    /// Time that all processes of a cgroup may use in a period, both in microseconds: `50000 100000`, or `max`.
    Quota,
    /// A disk's number and limits for it: `8:0 rbps=1048576 wiops=100`.
    IoMax,
    /// A disk's number and one limit for it: `8:0 1048576`; a limit of 0 is none.
    DiskLimit,
    /// A scheduling policy: see [`Policy`].
    Policy,
    /// A whole number of percent in this range, limits included: `50%`.
    Percent(u32, u32),
    /// Any text; [`UNSET`] takes away what is there.
    Text,
    /// This word only.
    Word(&'static str),
}

/// The value of a [`Values::Text`] that takes away what is there.
pub const UNSET: &str = "unset";
/// The value of a module that is not loaded.
pub const UNLOADED: &str = "unloaded";

/// The longest period of a quota, and the shortest, in microseconds: the kernel's.
const PERIOD_US: (u64, u64) = (1_000, 1_000_000);

/// A scheduling policy of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `other`: the usual one.
    Other,
    /// `batch`: the usual one for work that nobody waits for.
    Batch,
    /// `idle`: runs when nothing else wants to.
    Idle,
    /// `fifo:N`: before all of the above, until it sleeps; N is the priority.
    Fifo(u32),
    /// `rr:N`: the same, in turns with those of the same priority.
    RoundRobin(u32),
}

impl Policy {
    /// Reads the text form; `None` if it is none, or the priority is not 1 to 99.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let priority = |text: &str| {
            text.parse().ok().filter(|it| (1..=99).contains(it) && !text.starts_with('+'))
        };
        Some(match text.split_once(':') {
            None if text == "other" => Self::Other,
            None if text == "batch" => Self::Batch,
            None if text == "idle" => Self::Idle,
            Some(("fifo", at)) => Self::Fifo(priority(at)?),
            Some(("rr", at)) => Self::RoundRobin(priority(at)?),
            _ => return None,
        })
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Other => f.write_str("other"),
            Self::Batch => f.write_str("batch"),
            Self::Idle => f.write_str("idle"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
            Self::RoundRobin(priority) => write!(f, "rr:{priority}"),
        }
    }
}

impl Values {
    /// Whether a value is allowed.
    ///
    /// # Errors
    /// The values that are, in words, if it is not.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let allowed = match self {
            Self::Number(least, most) => {
                value.parse().is_ok_and(|it: i64| (*least..=*most).contains(&it))
                    && !value.starts_with('+')
            }
            Self::Offered => is_word(value),
            Self::Cpus => cpu_list::parse(value.as_bytes()).is_ok_and(|cpus| !cpus.is_empty()),
            Self::Quota => is_quota(value),
            Self::IoMax => is_io_max(value),
            Self::DiskLimit => value
                .split_once(' ')
                .is_some_and(|(disk, limit)| is_device_number(disk) && digits(limit).is_some()),
            Self::Policy => Policy::parse(value).is_some(),
            Self::Percent(least, most) => {
                Self::percent(value).is_some_and(|it| (*least..=*most).contains(&it))
            }
            // What no argument can hold is refused with the whole setting.
            Self::Text => true,
            Self::Word(word) => value == *word,
        };
        if allowed { Ok(()) } else { Err(self.words()) }
    }

    /// The percentage that a value states, if this is one.
    #[must_use]
    pub fn percent(value: &str) -> Option<u32> {
        let number = value.strip_suffix('%')?;
        digits(number).and_then(|it| u32::try_from(it).ok())
    }

    /// The values that are allowed, in words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Number(least, most) => format!("a number from {least} to {most}"),
            Self::Offered => "one of the words that its file offers".into(),
            Self::Cpus => "a list of CPUs such as `0-2,5`".into(),
            Self::Quota => "`max`, or microseconds of CPU time (1000 and more) and of a period \
                            (1000 to 1000000), such as `50000 100000`"
                .into(),
            Self::IoMax => {
                "a disk and its limits, such as `8:0 rbps=1048576 wiops=100` or `8:0 wbps=max`"
                    .into()
            }
            Self::DiskLimit => "a disk and its limit (0 = none), such as `8:0 1048576`".into(),
            Self::Policy => {
                "`other`, `batch`, `idle`, `fifo:N` or `rr:N`, where N is 1 to 99".into()
            }
            Self::Percent(least, most) => format!("{least}% to {most}%"),
            Self::Text => format!("any text, or `{UNSET}`"),
            Self::Word(word) => format!("`{word}`"),
        }
    }
}

/// A number that consists of digits only.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn is_word(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-+".contains(&b);
    !text.is_empty() && text.len() <= 64 && text.bytes().all(plain)
}

fn is_quota(value: &str) -> bool {
    let mut parts = value.split(' ');
    let quota = parts.next().unwrap_or_default();
    let period = parts.next().is_none_or(|period| {
        digits(period).is_some_and(|us| (PERIOD_US.0..=PERIOD_US.1).contains(&us))
    });
    // The kernel's least quota is a millisecond.
    let quota = quota == "max" || digits(quota).is_some_and(|us| us >= 1000);
    quota && period && parts.next().is_none()
}

fn is_io_max(value: &str) -> bool {
    let Some((disk, limits)) = value.split_once(' ') else { return false };
    is_device_number(disk)
        && limits.split(' ').all(|limit| {
            limit.split_once('=').is_some_and(|(name, limit)| {
                ["rbps", "wbps", "riops", "wiops"].contains(&name)
                    && (limit == "max" || digits(limit).is_some_and(|it| it > 0))
            })
        })
}

/// Whether a text is the number of a device: `MAJOR:MINOR`.
pub(super) fn is_device_number(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.len() <= 7 && digits(part).is_some();
    text.split_once(':').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}
