// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers with units, for people: only significant digits, and no number without its unit.
//!
//! One decimal below 10 and whole numbers above (`9.0 us`, `13 ms`, `212 ms`), in the largest unit that keeps
//! the number at 1 or more. A larger input never gives a smaller number. A value other than 0 is never shown as 0
//! (`<0.1 %`), a share below 1 is never shown as 100 % (`>99 %`), and a value that is not finite is shown as `?`.

use super::share::Share;
use serde::{Deserialize, Serialize};

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Nanoseconds per second of wall time.
    NsPerS,
    /// Microseconds, for settings in that unit.
    Us,
    /// A share, 0..1.
    Ratio,
    /// A count.
    Count,
    /// A count per second of wall time.
    PerS,
    /// Bytes.
    Bytes,
    /// CPU time per wall time, as a number of CPUs.
    Cpus,
    /// A CPU list or another text: the content is in `note`.
    Text,
}

/// A unit: its size, the number from which the next larger unit is used, its name.
type UnitStep = (f64, f64, &'static str);

const DURATION: &[UnitStep] = &[
    (1.0, 1000.0, "ns"),
    (1e3, 1000.0, "us"),
    (1e6, 1000.0, "ms"),
    (1e9, 120.0, "s"),
    (60e9, 120.0, "min"),
    (3600e9, f64::INFINITY, "h"),
];

const BYTES: &[UnitStep] = &[
    (1.0, 1000.0, "B"),
    (1024.0, 1000.0, "KiB"),
    (1_048_576.0, 1000.0, "MiB"),
    (1_073_741_824.0, 1000.0, "GiB"),
    (1_099_511_627_776.0, f64::INFINITY, "TiB"),
];

/// Counts are exact below a million, because people compare them with those of other tools.
const COUNT: &[UnitStep] = &[(1.0, 1e6, ""), (1e6, 1000.0, "M"), (1e9, f64::INFINITY, "G")];

const PERCENT: &[UnitStep] = &[(1.0, f64::INFINITY, "%")];
/// Settings are shown in the unit in which they are set.
const SETTING_US: &[UnitStep] = &[(1.0, f64::INFINITY, "us")];

/// A duration in nanoseconds: `850 ns`, `9.0 us`, `212 ms`, `30 s`, `15 min`, `2.5 h`.
#[must_use]
pub fn duration(ns: f64) -> String {
    scaled(ns, DURATION)
}

/// Milliseconds with one decimal, without the unit: for sentences and tables that compare several of them.
#[must_use]
pub fn tenths_of_ms(ns: f64) -> String {
    format!("{:.1}", ns / 1e6)
}

/// A share, 0..1, of something that the sentence around it names: `71 %`, `3.6 %`, `<0.1 %`, `>99 %`. A number outside
/// of 0..1 is shown as `?`.
#[must_use]
pub fn share(ratio: f64) -> String {
    let Some(ratio) = Share::new(ratio).map(Share::get) else { return "?".into() };
    if (0.995..1.0).contains(&ratio) {
        return ">99 %".into();
    }
    percent(ratio)
}

/// A ratio that may exceed 1, such as the use of several CPUs in terms of one: `130 %`.
#[must_use]
pub fn percent(ratio: f64) -> String {
    scaled(ratio * 100.0, PERCENT)
}

/// Bytes: `512 B`, `18 MiB`.
#[must_use]
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, BYTES)
}

/// A count: `42`, `58 210`, `1.2 M`.
#[must_use]
pub fn count(count: f64) -> String {
    scaled(count, COUNT)
}

/// A count with its noun in singular or plural: `1 process`, `58 210 waits`.
#[must_use]
pub fn counted(n: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", count(n as f64), if n == 1 { singular } else { plural })
}

/// A number of CPUs, a limit as what is used of it, rounded to two decimals: `4 CPUs`, `0.25 CPUs`, `1 CPU`.
#[must_use]
pub fn cpus(cpus: f64) -> String {
    if !cpus.is_finite() {
        return "? CPUs".into();
    }
    let text = format!("{cpus:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "0" && cpus > 0.0 { "<0.01" } else { text };
    format!("{text} {}", if text == "1" { "CPU" } else { "CPUs" })
}

/// A number in its unit; empty for [`Unit::Text`], whose content is in the note beside it.
#[must_use]
pub fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ns => duration(value),
        Unit::NsPerS => format!("{}/s", duration(value)),
        Unit::Us => scaled(value, SETTING_US),
        Unit::Ratio => share(value),
        Unit::Count => count(value),
        Unit::PerS => format!("{}/s", count(value)),
        Unit::Bytes => bytes(value),
        Unit::Cpus => cpus(value),
        Unit::Text => String::new(),
    }
}

fn scaled(value: f64, steps: &[UnitStep]) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    if value < 0.0 {
        return format!("-{}", scaled(-value, steps));
    }
    for (i, &(size, limit, name)) in steps.iter().enumerate() {
        let number = value / size;
        // A whole number of the smallest unit is exact: `5 ns`. For shares it is a coincidence: `5.0 %`.
        let exact = i == 0 && number.fract() == 0.0 && steps != PERCENT;
        let whole = number == 0.0 || number >= 9.95 || exact;
        let rounded = if whole { number.round() } else { (number * 10.0).round() / 10.0 };
        // A number that rounds up to the next unit is shown in that unit: 999.6 us is `1.0 ms`.
        if rounded >= limit {
            continue;
        }
        let text = match (whole, rounded > 0.0) {
            // No measured value is this large, but invalid input must not break the layout.
            (true, _) if rounded >= 1e15 => format!("{rounded:.1e}"),
            (true, _) => grouped(&format!("{rounded:.0}")),
            (false, true) => format!("{rounded:.1}"),
            (false, false) => "<0.1".into(),
        };
        return if name.is_empty() { text } else { format!("{text} {name}") };
    }
    "?".into()
}

/// The digits in groups of three, separated by spaces.
fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (5.0, "5 ns"),
            (850.0, "850 ns"),
            (999.6, "1.0 us"),
            (9_000.0, "9.0 us"),
            (13e6, "13 ms"),
            (212e6, "212 ms"),
            (999.4e6, "999 ms"),
            (1.3e9, "1.3 s"),
            (119.4e9, "119 s"),
            (119.6e9, "2.0 min"),
            (900e9, "15 min"),
            (9000e9, "2.5 h"),
            (f64::NAN, "?"),
        ] {
            assert_eq!(duration(ns), text);
        }
        for (ratio, text) in [
            (0.0, "0 %"),
            (1e-9, "<0.1 %"),
            (0.0049, "0.5 %"),
            (0.01, "1.0 %"),
            (0.036, "3.6 %"),
            (0.712, "71 %"),
            (0.9949, "99 %"),
            (0.9999, ">99 %"),
            (1.0, "100 %"),
            (2.5, "?"),
        ] {
            assert_eq!(share(ratio), text);
        }
        assert_eq!(percent(1.3), "130 %");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(18.0 * 1_048_576.0), "18 MiB");
        assert_eq!(bytes(1000.0), "1.0 KiB");
        assert_eq!(count(58_210.0), "58 210");
        assert_eq!(count(1.25e6), "1.3 M");
        assert_eq!(counted(1, "process", "processes"), "1 process");
        assert_eq!(counted(16, "process", "processes"), "16 processes");
        assert_eq!(value(50_000.0, Unit::Us), "50 000 us");
        assert_eq!(value(212e6, Unit::NsPerS), "212 ms/s");
        assert_eq!(value(3.94, Unit::Cpus), "3.94 CPUs");
        assert_eq!(value(0.18, Unit::Cpus), cpus(0.18), "a limit and what is used of it");
        assert_eq!(value(0.0, Unit::Text), "");
        for (limit, text) in [
            (4.0, "4 CPUs"),
            (0.25, "0.25 CPUs"),
            (1.0, "1 CPU"),
            (0.001, "<0.01 CPUs"),
            (10.0, "10 CPUs"),
        ] {
            assert_eq!(cpus(limit), text);
        }
    }

    /// The number in a text, in the smallest unit of `steps`.
    fn read(text: &str, steps: &[UnitStep]) -> f64 {
        let (size, number) = steps
            .iter()
            .rev()
            .find_map(|&(size, _, name)| {
                let number = text.strip_suffix(name)?;
                // `ns` ends in `s`, and every text ends in the empty name of counts.
                (name.is_empty() || number.ends_with(' ')).then_some((size, number))
            })
            .unwrap();
        number.replace([' ', '<'], "").parse::<f64>().unwrap() * size
    }

    proptest! {
        #[test]
        fn the_number_shown_is_the_number_within_its_last_digit(ns in 0.0..1e18f64) {
            for steps in [DURATION, BYTES, COUNT] {
                let shown = read(&scaled(ns, steps), steps);
                prop_assert!((shown - ns).abs() <= (0.0501 * ns).max(0.1), "{ns}: {shown}");
            }
        }

        #[test]
        fn more_is_never_shown_as_less(a in 0.0..1e18f64, factor in 1.0..1000.0f64) {
            for steps in [DURATION, BYTES, COUNT] {
                let (less, more) = (scaled(a, steps), scaled(a * factor, steps));
                prop_assert!(read(&less, steps) <= read(&more, steps), "{less} then {more}");
            }
        }

        #[test]
        fn columns_of_numbers_stay_narrow(ns in 0.0..3e15f64, ratio in 0.0..=1.0f64, n in 0.0..1e12f64) {
            prop_assert!(duration(ns).len() <= 7);
            prop_assert!(share(ratio).len() <= 6);
            prop_assert!(bytes(n).len() <= 8);
            prop_assert!(count(n).len() <= 7);
        }

        #[test]
        fn nothing_that_is_there_is_shown_as_nothing(ratio in 1e-300..1.0f64) {
            prop_assert_ne!(share(ratio), "0 %");
            prop_assert_ne!(share(ratio), "100 %");
        }

        #[test]
        fn any_float_has_a_text(x in any::<f64>()) {
            for unit in [Unit::Ns, Unit::NsPerS, Unit::Us, Unit::Ratio, Unit::Count, Unit::PerS, Unit::Bytes, Unit::Cpus] {
                prop_assert!(!value(x, unit).is_empty());
            }
        }
    }
}
