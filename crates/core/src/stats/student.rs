// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Student's t distribution with any number of degrees of freedom, also fractions of them.

/// Bound of the search for a quantile. With one degree of freedom, 1e-12 of the distribution lies beyond 6e11.
const FARTHEST: f64 = 1e13;

/// Probability of a value at least as far from 0 as `t`, in either direction; 1 if `t` or `degrees` is not a number, or
/// `degrees` is not positive.
#[must_use]
pub fn student_p(t: f64, degrees: f64) -> f64 {
    if t.is_nan() || degrees.is_nan() || degrees <= 0.0 {
        return 1.0;
    }
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t)).clamp(0.0, 1.0)
}

/// The value beyond which, in either direction together, lies the part `p` (0..1) of the distribution.
#[must_use]
pub fn student_quantile(p: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0, FARTHEST);
    // Halving the exponent first makes the steps relative.
    for step in 0..200 {
        let middle =
            if step < 60 && low > 1e-9 { f64::sqrt(low * high) } else { (low + high) / 2.0 };
        if student_p(middle, degrees) > p {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The regularised incomplete beta function, by its continued fraction (Numerical Recipes, 6.4; DLMF 8.17.22).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let log_front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln();
    if x < (a + 1.0) / (a + b + 2.0) {
        log_front.exp() * fraction(a, b, x) / a
    } else {
        1.0 - log_front.exp() * fraction(b, a, 1.0 - x) / b
    }
}

/// The continued fraction of the incomplete beta function, by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_0 = |it: f64| if it.abs() < TINY { TINY } else { it };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_0(1.0 - (a + b) * x / (a + 1.0));
    let mut product = d;
    for m in 1..300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut last = 1.0;
        for step in [even, odd] {
            d = 1.0 / away_from_0(1.0 + step * d);
            c = away_from_0(1.0 + step / c);
            last = c * d;
            product *= last;
        }
        if (last - 1.0).abs() < 1e-13 {
            break;
        }
    }
    product
}

/// Logarithm of the gamma function for positive numbers: Stirling's series, from 8 on.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 8.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series =
        (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0))) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// With 1 and 2 degrees of freedom there are closed forms; the other values are from tables.
    #[test]
    fn known_values() {
        for t in [0.1f64, 1.0, 3.0, 50.0] {
            let one = 1.0 - 2.0 / std::f64::consts::PI * t.atan();
            assert!((student_p(t, 1.0) - one).abs() < 1e-10, "{t}");
            let two = 1.0 - t / (2.0 + t * t).sqrt();
            assert!((student_p(t, 2.0) - two).abs() < 1e-10, "{t}");
        }
        for (p, degrees, quantile) in [
            (0.05, 1.0, 12.706),
            (0.05, 5.0, 2.571),
            (0.05, 30.0, 2.042),
            (0.01, 10.0, 3.169),
            (0.001, 20.0, 3.850),
            (0.05, 1e6, 1.960),
        ] {
            let found = student_quantile(p, degrees);
            assert!((found - quantile).abs() < 1e-3, "{p} {degrees}: {found}");
        }
    }

    #[test]
    fn what_is_no_distribution_proves_nothing() {
        assert_eq!(student_p(f64::NAN, 3.0), 1.0);
        assert_eq!(student_p(9.0, 0.0), 1.0);
        assert_eq!(student_p(f64::INFINITY, 3.0), 0.0);
    }

    proptest! {
        #[test]
        fn the_quantile_is_the_inverse(p in 1e-6..1.0f64, degrees in 1.0..200.0f64) {
            let back = student_p(student_quantile(p, degrees), degrees);
            prop_assert!((back - p).abs() < 1e-6 * p.max(1e-3), "{back}");
        }

        #[test]
        fn farther_is_less_likely(t in 0.0..50.0f64, more in 0.0..50.0f64, degrees in 0.5..500.0f64) {
            prop_assert!(student_p(t + more, degrees) <= student_p(t, degrees) + 1e-12);
            prop_assert_eq!(student_p(-t, degrees), student_p(t, degrees));
        }
    }
}
