// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A list of bounded length.

/// Keeps the first items and counts the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundedList<T> {
    list: Vec<T>,
    dropped: u64,
}

impl<T> Default for BoundedList<T> {
    fn default() -> Self {
        Self { list: Vec::new(), dropped: 0 }
    }
}

impl<T> BoundedList<T> {
    /// Maximum number of items.
    pub const MAX: usize = 10_000;

    /// Adds an item and returns its index. If the list is full, counts the item and returns `None`.
    pub(in crate::view) fn push(&mut self, item: T) -> Option<usize> {
        if self.list.len() >= Self::MAX {
            self.dropped += 1;
            return None;
        }
        self.list.push(item);
        Some(self.list.len() - 1)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.list.get_mut(at)
    }

    /// Items in the order in which they were added.
    #[must_use]
    pub fn list(&self) -> &[T] {
        &self.list
    }

    /// Number of items that were not kept, and number of all items.
    #[must_use]
    pub fn dropped_of(&self) -> (u64, u64) {
        (self.dropped, self.dropped + self.list.len() as u64)
    }
}
