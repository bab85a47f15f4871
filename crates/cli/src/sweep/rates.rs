// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses request rates: `200..4000x2`, `100..500+100`, `50,100,400`.

use std::collections::BTreeSet;

/// Highest rate, in requests per second. Above it the generator is measured rather than the service.
const MAX_RATE: f64 = 200_000.0;
/// Most rates. A sweep of more would take far too long.
const MAX_RATES: usize = 64;
const EXPECTED: &str = "give rates in requests per second: 200..4000x2 (each twice the one before), 100..500+100 \
                        (each 100 more), 50,100,400, or one";

/// Rates in requests per second: ascending, distinct.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rates(pub(crate) Vec<f64>);

/// Parses rates. An error is a message for the user.
pub(crate) fn parse(text: &str) -> Result<Rates, String> {
    let mut rates = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => rates.push(rate(part)?),
            Some((from, rest)) => rates.extend(range(from, rest)?),
        }
    }
    rates.sort_by(f64::total_cmp);
    let distinct: BTreeSet<u64> = rates.iter().map(|rate| rate.to_bits()).collect();
    if distinct.len() != rates.len() {
        return Err(format!("a rate is there twice; {EXPECTED}"));
    }
    if rates.len() > MAX_RATES {
        return Err(format!("{} rates; give at most {MAX_RATES}", rates.len()));
    }
    Ok(Rates(rates))
}

/// Parses the range `FROM..TOxFACTOR` or `FROM..TO+STEP`. The last rate is always included.
fn range(from: &str, rest: &str) -> Result<Vec<f64>, String> {
    let first = rate(from)?;
    let Some(at) = rest.find(['x', '+']) else {
        return Err(format!("`{from}..{rest}` has no step; {EXPECTED}"));
    };
    let (last, step) = (rate(&rest[..at])?, number(&rest[at + 1..])?);
    let is_factor = rest.as_bytes()[at] == b'x';
    if is_factor && step <= 1.0 || !is_factor && step <= 0.0 {
        return Err(format!("`{}` is no step upwards; {EXPECTED}", &rest[at..]));
    }
    if first > last {
        return Err(format!("`{from}..{rest}` goes down; {EXPECTED}"));
    }
    let mut rates = Vec::new();
    let mut next = first;
    // A rate that misses the last one only by rounding is the last one.
    while next < last * (1.0 - 1e-9) {
        rates.push(next);
        if rates.len() > MAX_RATES {
            return Err(format!("more than {MAX_RATES} rates; {EXPECTED}"));
        }
        next = if is_factor { next * step } else { next + step };
    }
    rates.push(last);
    Ok(rates)
}

fn rate(text: &str) -> Result<f64, String> {
    match number(text)? {
        rate if rate > 0.0 && rate <= MAX_RATE => Ok(rate),
        _ => {
            Err(format!("`{text}` is out of range: more than 0, at most {MAX_RATE}/s; {EXPECTED}"))
        }
    }
}

fn number(text: &str) -> Result<f64, String> {
    // `f64::from_str` also takes `inf`, `nan` and `1e9`.
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number = text.parse().ok().filter(|_| plain);
    number.ok_or_else(|| format!("`{text}` is not a number; {EXPECTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples() {
        for (text, rates) in [
            ("200..4000x2", vec![200.0, 400.0, 800.0, 1600.0, 3200.0, 4000.0]),
            ("100..400x2", vec![100.0, 200.0, 400.0]),
            ("100..500+200", vec![100.0, 300.0, 500.0]),
            ("50,400,100", vec![50.0, 100.0, 400.0]),
            ("0.5", vec![0.5]),
            ("10,100..200+50", vec![10.0, 100.0, 150.0, 200.0]),
            ("7..7x2", vec![7.0]),
        ] {
            assert_eq!(parse(text), Ok(Rates(rates)), "{text}");
        }
        for text in [
            "",
            "0",
            "-5",
            "1e3",
            "inf",
            "nan",
            "200..100x2",
            "1..10",
            "1..10x1",
            "1..10+0",
            "1..10x",
            "5,5",
            "1..100000+1",
            "1..2..3x2",
            "300000",
            "a..bx2",
            "٣",
        ] {
            let error = parse(text).expect_err(text);
            assert!(!error.is_empty(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_ascending_or_refused(text in "\\PC*|[0-9.,x+]{1,24}") {
            if let Ok(Rates(rates)) = parse(&text) {
                prop_assert!(!rates.is_empty() && rates.len() <= MAX_RATES);
                prop_assert!(rates.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(rates.iter().all(|rate| *rate > 0.0 && *rate <= MAX_RATE));
            }
        }
    }
}
