// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Patterns for paths that differ only in components that vary, such as `/data/consumequeue/*/*`.

use std::collections::BTreeMap;

/// A component with more siblings than this is one of many instances and not a name of its own.
const MAX_SIBLINGS: usize = 8;
/// Paths are split into components down to this depth; the rest of a path counts as one component.
const MAX_DEPTH: usize = 48;

/// The pattern of each path, in the order of the paths.
///
/// Two or more siblings that differ in their digits only become one name with `*` for each run of digits. If more than
/// [`MAX_SIBLINGS`] names remain, they all become `*`. Files and directories are handled separately. In the
/// first component only digits are replaced, because directories below `/` have meaningful names.
#[must_use]
pub(super) fn patterns(paths: &[&str]) -> Vec<String> {
    let mut out = vec![String::new(); paths.len()];
    let items = paths.iter().enumerate().map(|(at, path)| Item {
        at,
        rest: path.strip_prefix('/').unwrap_or(path),
        root: path.starts_with('/'),
    });
    let (rooted, bare): (Vec<_>, Vec<_>) = items.partition(|item| item.root);
    generalise("", rooted, 0, true, &mut out);
    generalise("", bare, 0, false, &mut out);
    out
}

struct Item<'p> {
    at: usize,
    rest: &'p str,
    root: bool,
}

fn generalise(prefix: &str, items: Vec<Item<'_>>, depth: usize, slash: bool, out: &mut [String]) {
    let mut names: [BTreeMap<&str, Vec<Item<'_>>>; 2] = Default::default();
    for item in items {
        let (name, rest) = match item.rest.split_once('/') {
            Some((name, rest)) if depth < MAX_DEPTH => (name, Some(rest)),
            _ => (item.rest, None),
        };
        let (kind, rest) = (usize::from(rest.is_some()), rest.unwrap_or_default());
        names[kind].entry(name).or_default().push(Item { rest, ..item });
    }
    for (kind, names) in names.into_iter().enumerate() {
        for (name, items) in merged(names, depth) {
            let path = if slash { format!("{prefix}/{name}") } else { name };
            if kind == 0 {
                items.iter().for_each(|item| out[item.at].clone_from(&path));
            } else {
                generalise(&path, items, depth + 1, true, out);
            }
        }
    }
}

/// Groups siblings under the name in the pattern that they share.
fn merged<'p>(
    names: BTreeMap<&str, Vec<Item<'p>>>,
    depth: usize,
) -> BTreeMap<String, Vec<Item<'p>>> {
    let mut forms: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names.keys() {
        forms.entry(without_digits(name)).or_default().push(name);
    }
    let many = depth > 0 && forms.len() > MAX_SIBLINGS;
    let named: BTreeMap<&str, String> = forms
        .iter()
        .flat_map(|(form, names)| {
            names.iter().map(move |&name| {
                let shown = match names.len() {
                    _ if many => "*",
                    1 => name,
                    _ => form,
                };
                (name, shown.to_owned())
            })
        })
        .collect();
    let mut out: BTreeMap<String, Vec<Item<'p>>> = BTreeMap::new();
    for (name, items) in names {
        let shown = named.get(name).cloned().unwrap_or_default();
        out.entry(shown).or_default().extend(items);
    }
    out
}

/// Replaces each run of digits in a name by `*`.
fn without_digits(name: &str) -> String {
    let mut form = String::with_capacity(name.len());
    for c in name.chars() {
        if !c.is_ascii_digit() {
            form.push(c);
        } else if !form.ends_with('*') {
            form.push('*');
        }
    }
    form
}

#[cfg(test)]
mod tests {
    use super::patterns;
    use proptest::prelude::*;

    #[test]
    fn what_varies_among_siblings_becomes_a_star() {
        let topics: Vec<String> = ('a'..='l')
            .map(|topic| format!("/data/store/consumequeue/topic-{topic}/0/00000"))
            .collect();
        let mut paths: Vec<&str> = topics.iter().map(String::as_str).collect();
        paths.extend([
            "/data/store/index/2020",
            "/data/store/commitlog/0001",
            "/data/store/commitlog/0002",
        ]);
        paths.extend(["/data/store/abort", "/var/log/syslog", "relative/to/nothing"]);
        let found = patterns(&paths);
        assert!(found[..12].iter().all(|p| p == "/data/store/consumequeue/*/0/00000"), "{found:?}");
        assert_eq!(
            found[12..],
            [
                "/data/store/index/2020",
                "/data/store/commitlog/*",
                "/data/store/commitlog/*",
                "/data/store/abort",
                "/var/log/syslog",
                "relative/to/nothing"
            ]
        );
    }

    #[test]
    fn digits_alone_are_enough() {
        let paths = [
            "/mnt/hot/f0001.dat",
            "/mnt/hot/f0002.dat",
            "/mnt/cold/f1.dat",
            "/mnt/q0/x",
            "/mnt/q1/x",
        ];
        let found = patterns(&paths);
        assert_eq!(
            found,
            ["/mnt/hot/f*.dat", "/mnt/hot/f*.dat", "/mnt/cold/f1.dat", "/mnt/q*/x", "/mnt/q*/x"]
        );
    }

    proptest! {
        #[test]
        fn any_paths_get_patterns_as_deep_as_they_are(
            paths in prop::collection::vec("(/[ab0-2*]{0,3}){0,60}", 0..30),
        ) {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let found = patterns(&paths);
            for (path, pattern) in paths.iter().zip(&found) {
                prop_assert!(path.is_empty() || path.matches('/').count() == pattern.matches('/').count());
            }
        }
    }
}
