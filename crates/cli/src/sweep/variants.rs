// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses what differs between the variants of a sweep: `env:GOMAXPROCS=1,96,unset`.

use deburr_core::sweep::Variant;
use std::collections::BTreeMap;

/// Environment variables; `None` = unset.
pub(crate) type Settings = BTreeMap<String, Option<String>>;

/// Most variants. More would be a search, not a comparison.
const MAX_VARIANTS: usize = 26;
/// The value that removes the variable from the environment.
const UNSET: &str = "unset";
const EXPECTED: &str = "give an environment variable and its values: env:NAME=V1,V2,unset";

/// One `--vary`: a variable and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VariedSetting {
    name: String,
    values: Vec<Option<String>>,
}

/// Parses one `--vary`. An error is a message for the user.
pub(crate) fn parse(text: &str) -> Result<VariedSetting, String> {
    let rest =
        text.strip_prefix("env:").ok_or_else(|| format!("it must begin with env:; {EXPECTED}"))?;
    let (name, values) = rest.split_once('=').ok_or_else(|| format!("it has no =; {EXPECTED}"))?;
    if name.is_empty() || name.contains('\0') || values.contains('\0') {
        return Err(format!("it has no name; {EXPECTED}"));
    }
    let values: Vec<_> =
        values.split(',').map(|value| (value != UNSET).then(|| value.to_owned())).collect();
    if (1..values.len()).any(|i| values[..i].contains(&values[i])) {
        return Err(format!("a value of `{name}` is there twice"));
    }
    Ok(VariedSetting { name: name.to_owned(), values })
}

/// All combinations of values, the last `--vary` changing fastest. Without any, the command unchanged.
pub(crate) fn variants(vary: &[VariedSetting]) -> Result<Vec<Variant>, String> {
    for (i, it) in vary.iter().enumerate() {
        if vary[..i].iter().any(|other| other.name == it.name) {
            return Err(format!("--vary names `{}` twice: put all its values into one", it.name));
        }
    }
    let count = vary.iter().map(|it| it.values.len()).try_fold(1usize, usize::checked_mul);
    if count.is_none_or(|count| count > MAX_VARIANTS) {
        return Err(format!("--vary makes more than {MAX_VARIANTS} variants"));
    }
    let mut all: Vec<Settings> = vec![Settings::new()];
    for it in vary {
        let with = |settings: &Settings, value: &Option<String>| {
            let mut settings = settings.clone();
            settings.insert(it.name.clone(), value.clone());
            settings
        };
        all = all.iter().flat_map(|base| it.values.iter().map(|v| with(base, v))).collect();
    }
    Ok(all.into_iter().map(|env| Variant { name: name(&env), env }).collect())
}

fn name(env: &Settings) -> String {
    let parts: Vec<_> = env
        .iter()
        .map(|(name, value)| match value {
            Some(value) => format!("{name}={value}"),
            None => format!("{name} unset"),
        })
        .collect();
    if parts.is_empty() { "as it is".into() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_have_names() {
        let vary = [parse("env:A=1,unset").unwrap(), parse("env:B=x=y,").unwrap()];
        let names: Vec<_> = variants(&vary).unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["A=1 B=x=y", "A=1 B=", "A unset B=x=y", "A unset B="]);
        assert_eq!(variants(&[]).unwrap()[0].name, "as it is");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in ["", "A=1", "env:A", "env:=1", "env:A=1,1", "env:A=unset,unset", "nice:1"] {
            parse(text).expect_err(text);
        }
        let one = parse("env:A=1,2").unwrap();
        assert!(variants(&[one.clone(), one]).unwrap_err().contains("`A` twice"));
        let many = parse(&format!(
            "env:A={}",
            (0..27).map(|i| i.to_string()).collect::<Vec<_>>().join(",")
        ));
        assert!(variants(&[many.unwrap()]).is_err());
    }
}
