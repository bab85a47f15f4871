// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which processes of two recordings are the same: by comm and cgroup. Cgroups of containers have an id in their path
//! that is another one after each start, so paths without ids and numbers are the second choice, and the comm alone the
//! last one.

use super::document::MatchedBy;
use super::summary::{GroupSummary, Summary};
use std::collections::BTreeMap;

/// Number of a group in each recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) groups: [usize; 2],
    pub(super) by: MatchedBy,
}

/// The groups that are in both recordings, in the order of the first.
pub(super) fn pairs(sides: [&Summary; 2]) -> Vec<Pair> {
    let mut left = sides.map(|side| (0..side.groups.len()).collect::<Vec<usize>>());
    let mut found = Vec::new();
    for by in [MatchedBy::Cgroup, MatchedBy::SimilarCgroup, MatchedBy::Comm] {
        let keyed = [0, 1].map(|side| {
            let mut by_key: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
            for &at in &left[side] {
                by_key.entry(key(&sides[side].groups[at], by)).or_default().push(at);
            }
            by_key
        });
        for (key, of_a) in &keyed[0] {
            // Where a name has several groups, nobody knows which of them is which.
            if let ([a], Some([b])) = (&**of_a, keyed[1].get(key).map(|it| &**it)) {
                found.push(Pair { groups: [*a, *b], by });
            }
        }
        for (side, left) in left.iter_mut().enumerate() {
            left.retain(|at| !found.iter().any(|pair: &Pair| pair.groups[side] == *at));
        }
    }
    found.sort_by_key(|pair| pair.groups);
    found
}

fn key(group: &GroupSummary, by: MatchedBy) -> (String, String) {
    let comm = group.entity.comm.clone().unwrap_or_default();
    let path = group.entity.cgroup.as_deref().unwrap_or_default();
    let place = match (by, &group.entity.container) {
        (MatchedBy::Cgroup, _) => path.to_owned(),
        (MatchedBy::SimilarCgroup, Some(container)) if container.name.is_some() => {
            container.name.clone().unwrap_or_default()
        }
        (MatchedBy::SimilarCgroup, _) => without_ids(path),
        (MatchedBy::Comm, _) => String::new(),
    };
    (comm, place)
}

/// A path in which words that are ids are a `*`: those with a digit that are numbers, hexadecimal, or random.
pub(super) fn without_ids(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut word = String::new();
    let flush = |word: &mut String, text: &mut String| {
        let digits = word.chars().filter(char::is_ascii_digit).count();
        let is_id = digits > 0 && (word.len() >= 4 || digits == word.len());
        text.push_str(if is_id { "*" } else { word });
        word.clear();
    };
    for c in path.chars() {
        if c.is_ascii_alphanumeric() {
            word.push(c);
        } else {
            flush(&mut word, &mut text);
            text.push(c);
        }
    }
    flush(&mut word, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_left_out_of_paths_and_names_are_not() {
        for (path, without) in [
            ("/docker/0f3c9a77be21", "/docker/*"),
            ("/kubepods/pod6b1c2d3e-aaaa-4bbb-8ccc-0123456789ab/web", "/kubepods/*-aaaa-*-*-*/web"),
            ("/system.slice/nginx.service", "/system.slice/nginx.service"),
            ("/user.slice/user-1000.slice", "/user.slice/user-*.slice"),
            ("/web/v2", "/web/v2"),
        ] {
            assert_eq!(without_ids(path), without);
        }
    }
}
