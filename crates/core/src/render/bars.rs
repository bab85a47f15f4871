// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small horizontal bars.
//!
//! Only full and half blocks, because a plain Linux console has no finer ones.

/// A bar of at most `columns` columns for a share of 0..1. A positive share too small for half
/// a column is a dot; 0 is the empty string.
pub(super) fn bar(share: f64, columns: usize) -> String {
    if share.is_nan() || share <= 0.0 || columns == 0 {
        return String::new();
    }
    let halves = (share.min(1.0) * columns as f64 * 2.0).round() as usize;
    match (halves / 2, halves % 2) {
        (0, 0) => "·".into(),
        (full, half) => "█".repeat(full) + &"▌".repeat(half),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples() {
        assert_eq!(bar(0.0, 10), "");
        assert_eq!(bar(0.001, 10), "·");
        assert_eq!(bar(0.05, 10), "▌");
        assert_eq!(bar(0.5, 10), "█████");
        assert_eq!(bar(1.5, 10), "██████████");
        assert_eq!(bar(f64::NAN, 10), "");
    }

    proptest! {
        #[test]
        fn a_larger_share_never_has_a_shorter_bar(a in 0.0..1.0f64, b in 0.0..1.0f64, columns in 0usize..40) {
            let (less, more) = (bar(a.min(b), columns), bar(a.max(b), columns));
            prop_assert!(crate::text::escape::width(&less) <= crate::text::escape::width(&more));
            prop_assert!(more.chars().count() <= columns);
        }
    }
}
