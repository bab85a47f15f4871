// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Expands a path of the whitelist into the files that it stands for.

use super::files::Files;
use deburr_core::snapshot::Instance;

/// A file that matches a path of the whitelist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) path: String,
    /// What each `{}` of the pattern stands for.
    pub(super) names: Vec<String>,
    /// What the `*` of the pattern stands for.
    pub(super) instance: Option<Instance>,
}

/// All files that a path stands for. Without `*` and `{}` that is the path itself, whether the file exists or not.
pub(super) fn expand(files: &mut Files, path: &str, release: &str) -> Vec<Match> {
    let mut matches = vec![Match::default()];
    for component in path.split('/').skip(1) {
        let wild = ["*", "{}"].into_iter().find(|wild| component.contains(wild));
        let Some((wild, (before, after))) =
            wild.and_then(|wild| Some((wild, component.split_once(wild)?)))
        else {
            let plain = component.replace("$release", release);
            matches.iter_mut().for_each(|found| found.path = format!("{}/{plain}", found.path));
            continue;
        };
        let mut longer = Vec::new();
        for found in matches {
            for (name, instance) in files.instances(&found.path).iter() {
                let Some(between) =
                    name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after))
                else {
                    continue;
                };
                // Next to other letters a wildcard matches only numbers: `cpu*` does not match `cpufreq`.
                let number = between.parse::<u32>().ok();
                let alone = before.is_empty() && after.is_empty();
                if between.is_empty() || (!alone && number.is_none()) {
                    continue;
                }
                let mut next = found.clone();
                next.path = format!("{}/{name}", found.path);
                match (wild, number) {
                    ("{}", _) => next.names.push(between.to_owned()),
                    (_, Some(number)) if !alone => next.instance = Some(Instance::Number(number)),
                    _ => next.instance = Some(instance.clone()),
                }
                longer.push(next);
            }
        }
        matches = longer;
    }
    matches
}
