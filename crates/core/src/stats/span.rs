// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges of time.

/// A range of time, in nanoseconds since the window began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
}

impl Span {
    /// All of the window, however long it is.
    pub const ALWAYS: Self = Self { t0_ns: 0, t1_ns: u64::MAX };

    /// From one time to another.
    #[must_use]
    pub fn new(t0_ns: u64, t1_ns: u64) -> Self {
        Self { t0_ns, t1_ns }
    }

    /// A moment, which has no length.
    #[must_use]
    pub fn at(t_ns: u64) -> Self {
        Self::new(t_ns, t_ns)
    }

    /// Its length; 0 if it ends before it starts.
    #[must_use]
    pub fn length_ns(self) -> u64 {
        self.t1_ns.saturating_sub(self.t0_ns)
    }

    /// Time that it has in common with another span.
    #[must_use]
    pub fn common_ns(self, other: Self) -> u64 {
        self.t1_ns.min(other.t1_ns).saturating_sub(self.t0_ns.max(other.t0_ns))
    }
}

#[cfg(test)]
impl From<(u64, u64)> for Span {
    fn from((t0_ns, t1_ns): (u64, u64)) -> Self {
        Self::new(t0_ns, t1_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::Span;

    #[test]
    fn lengths_are_never_negative() {
        let (a, b) = (Span::new(10, 30), Span::new(20, 50));
        assert_eq!((a.length_ns(), a.common_ns(b), b.common_ns(a)), (20, 10, 10));
        assert_eq!((Span::at(7).length_ns(), Span::new(9, 3).length_ns()), (0, 0));
        assert_eq!(a.common_ns(Span::new(30, 40)), 0);
    }
}
