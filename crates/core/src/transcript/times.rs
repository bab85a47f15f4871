// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dates and times of day, as tools print them in many locales.

use super::line::whole;

const DAY_S: f64 = 86_400.0;

/// Seconds since midnight: `02:22:54`, `02:22:54.5`, with `AM` or `PM` in the next word.
pub(super) fn of_day(word: &str, next: Option<&str>) -> Option<f64> {
    let word = word.trim_end_matches(',');
    let mut parts = word.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || hour.len() > 2 || minute.len() != 2 {
        return None;
    }
    let (hour, minute) = (whole::<u32>(hour)?, whole::<u32>(minute)?);
    let (whole_s, part) = second.split_once('.').unwrap_or((second, "0"));
    let second = f64::from(whole::<u32>(whole_s)?) + format!("0.{part}").parse::<f64>().ok()?;
    if hour > 23 || minute > 59 || second > 60.999 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let hour = match next {
        Some("PM" | "pm") if hour < 12 => hour + 12,
        Some("AM" | "am") if hour == 12 => 0,
        _ => hour,
    };
    Some(f64::from(hour * 3600 + minute * 60) + second)
}

/// A line that holds a date and a time, or a time only: `05/31/2020 02:22:54 AM`, `31.05.2020 02:22:54`,
/// `2020-05-31T02:22:54+0200`, `Sun May 31 02:22:54 2020`. The result is seconds since midnight: dates of different
/// locales cannot be told apart (is `05/06` in May or in June?), and no capture is longer than a day.
pub(super) fn alone(words: &[&str]) -> Option<f64> {
    if words.is_empty() || words.len() > 7 {
        return None;
    }
    let at = |index: usize| -> Option<f64> {
        let word = words[index];
        let word = word.split_once('T').map_or(word, |(_, time)| time);
        let zone = word.rfind(['+', 'Z']).or_else(|| word.rfind('-').filter(|&at| at > 4));
        of_day(&word[..zone.unwrap_or(word.len())], words.get(index + 1).copied())
    };
    let found = (0..words.len()).find_map(|index| Some((index, at(index)?)))?;
    // Everything else must be part of a date: short, with a digit, or the name of a day, a month or a zone.
    let rest = words.iter().enumerate().filter(|(index, _)| *index != found.0);
    let is_date = |word: &str| {
        word.chars().count() <= 12
            && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | ',' | ':'))
            && (word.chars().any(|c| c.is_ascii_digit()) || word.chars().count() <= 5)
    };
    rest.clone().all(|(_, word)| is_date(word)).then_some(found.1)
}

/// The same clock, made to go on at midnight: `before` is the last time.
pub(super) fn after(before: Option<f64>, of_day_s: f64) -> f64 {
    let Some(before) = before else { return of_day_s };
    let days = (before / DAY_S).floor();
    let now = days * DAY_S + of_day_s;
    // Clocks are set back by a little; only midnight takes them back by most of a day.
    if before - now > DAY_S / 2.0 { now + DAY_S } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Option<f64> {
        alone(&text.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn times_of_all_locales() {
        let expected = Some(2.0 * 3600.0 + 22.0 * 60.0 + 54.0);
        for text in [
            "05/31/2020 02:22:54 AM",
            "31.05.2020 02:22:54",
            "31/05/20 02:22:54",
            "2020-05-31T02:22:54+0200",
            "2020-05-31T02:22:54-0700",
            "2020-05-31T02:22:54Z",
            "2020-05-31 02:22:54",
            "Sun May 31 02:22:54 2020",
            "Sun May 31 02:22:54 UTC 2020",
            "02:22:54",
            "2020年05月31日 02:22:54",
        ] {
            assert_eq!(line(text), expected, "{text}");
        }
        assert_eq!(line("05/31/2020 02:22:54 PM"), Some(14.0 * 3600.0 + 22.0 * 60.0 + 54.0));
        assert_eq!(line("12:00:00 AM"), Some(0.0));
        for text in [
            "",
            "sda 0.00",
            "25:00:00",
            "1:2:3",
            "real 0m5.873s",
            "01:59:47 8:0 46702 periodic 0.590 x y z",
        ] {
            assert_eq!(line(text), None, "{text}");
        }
    }

    #[test]
    fn midnight_is_passed_and_a_clock_may_go_back() {
        assert_eq!(after(None, 5.0), 5.0);
        assert_eq!(after(Some(86_399.0), 1.0), 86_401.0);
        assert_eq!(after(Some(86_401.0), 3.0), 86_403.0);
        assert_eq!(after(Some(100.0), 99.0), 99.0);
    }
}
