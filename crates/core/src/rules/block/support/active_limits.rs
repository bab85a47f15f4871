// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which cgroup limits on IO are in force for a cgroup, device and direction.

use super::knobs;
use crate::recording::{DevId, IoOp};
use crate::view::View;

/// A limit that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rules::block) struct ActiveLimit<'v> {
    /// Path of its file.
    pub(in crate::rules::block) path: &'v str,
    /// The file's line for the device.
    pub(in crate::rules::block) line: &'v str,
}

/// The limits on a device and direction that apply to a cgroup: its own before those of its parents.
pub(in crate::rules::block) fn limits<'v>(
    view: &'v View,
    cgroup: &str,
    (device, op): (DevId, IoOp),
) -> Vec<ActiveLimit<'v>> {
    let word = match op {
        IoOp::Read => ".read_",
        IoOp::Write | IoOp::Other => ".write_",
    };
    let dir = |path: &'v str| path.rsplit_once('/').map_or("", |(dir, _)| dir);
    let holds = |path: &'v str| {
        let above = cgroup.strip_prefix(dir(path));
        let right = path.ends_with("/io.max") || path.contains(word);
        right && above.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let number = format!("{device} ");
    let mut found: Vec<ActiveLimit<'v>> = knobs::limits(view)
        .into_iter()
        .filter(|(path, _)| holds(path))
        .flat_map(|(path, value)| {
            value.lines().map(move |line| ActiveLimit { path, line: line.trim() })
        })
        .filter(|limit| limit.line.starts_with(&number))
        .collect();
    found.sort_by_key(|limit| std::cmp::Reverse(dir(limit.path).len()));
    found
}

/// The line of a limit with its numbers doubled; `None` if it is not understood.
pub(in crate::rules::block) fn doubled(line: &str) -> Option<String> {
    let (device, rest) = line.split_once(' ')?;
    let twice = |word: &str| -> Option<String> {
        match word.split_once('=') {
            Some((_, "max")) => Some(word.to_owned()),
            Some((key, number)) => {
                Some(format!("{key}={}", number.parse::<u64>().ok()?.saturating_mul(2)))
            }
            None => Some(word.parse::<u64>().ok()?.saturating_mul(2).to_string()),
        }
    };
    let words: Option<Vec<String>> = rest.split_whitespace().map(twice).collect();
    Some(format!("{device} {}", words.filter(|words| !words.is_empty())?.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::doubled;

    #[test]
    fn what_is_understood_of_a_limit_is_doubled() {
        assert_eq!(doubled("8:0 2000").as_deref(), Some("8:0 4000"));
        let v2 = "8:0 rbps=1048576 wbps=max riops=max wiops=max";
        assert_eq!(doubled(v2).unwrap(), "8:0 rbps=2097152 wbps=max riops=max wiops=max");
        assert_eq!([doubled("8:0"), doubled("8:0 "), doubled("8:0 a")], [None, None, None]);
    }
}
