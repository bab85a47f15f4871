// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collections of what comes and goes for as long as a session lasts: their size follows from what is there, never from
//! all that ever was.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Entries for which it is not worth while to give memory back.
const FEW: usize = 1024;

/// A map that keeps its latest entries: `MOST` of them at least, and at most twice as many.
#[derive(Debug)]
pub(crate) struct Recent<K, V, const MOST: usize> {
    new: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V, const MOST: usize> Default for Recent<K, V, MOST> {
    fn default() -> Self {
        Self { new: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Eq + Hash, V, const MOST: usize> Recent<K, V, MOST> {
    /// The value of an entry that is still kept.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.new.get(key).or_else(|| self.old.get(key))
    }

    /// Whether there is such an entry.
    pub(crate) fn contains<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Adds an entry, which is the latest now.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.new.len() >= MOST && !self.new.contains_key(&key) {
            self.age();
        }
        self.new.insert(key, value);
    }

    /// Removes an entry.
    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.new.remove(key);
        self.old.remove(key);
    }

    /// Removes the entries that were added before the last call, or before the last `MOST` ones.
    pub(crate) fn age(&mut self) {
        self.old = std::mem::take(&mut self.new);
    }

    /// Entries that take memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.new.len() + self.old.len()
    }
}

/// Whether a collection has room for many times what it holds, so that most of it is given back.
pub(crate) fn is_roomy(len: usize, capacity: usize) -> bool {
    capacity > FEW.max(4 * len)
}

/// Gives back the memory of a burst that is over.
pub(crate) fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if is_roomy(map.len(), map.capacity()) {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_never_twice_as_many_as_asked_for() {
        let mut recent = Recent::<u32, u32, 100>::default();
        for at in 0..10_000_u32 {
            recent.insert(at, at);
            assert!(recent.len() <= 200);
            assert!((at.saturating_sub(99)..=at).all(|kept| recent.contains(&kept)), "{at}");
        }
        assert_eq!(recent.get(&0), None);
        recent.insert(9_999, 1);
        assert_eq!(recent.get(&9_999), Some(&1));
        recent.remove(&9_999);
        assert!(!recent.contains(&9_999));
        recent.age();
        assert!(recent.contains(&9_998));
        recent.age();
        assert_eq!(recent.len(), 0);
    }

    #[test]
    fn a_burst_gives_its_memory_back() {
        let mut map: HashMap<u32, u32> = (0..100_000).map(|at| (at, at)).collect();
        map.retain(|at, _| *at < 2000);
        shrink(&mut map);
        assert!(map.len() == 2000 && map.capacity() < 10_000, "{}", map.capacity());
        let capacity = map.capacity();
        shrink(&mut map);
        assert_eq!(map.capacity(), capacity);
    }
}
