// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which mounts of a table are hidden by others, in time that is linear in its length: users can make tens of thousands
//! of mounts, at paths of 4 kB.

use deburr_core::procfs::mountinfo::Mount;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// A mount table, to be searched.
pub(super) struct MountTable<'a> {
    all: &'a [Mount],
    /// Indexes of mounts by id.
    by_id: HashMap<u64, usize>,
    /// Indexes of the mounts with that parent and mount point, by the hash of the two.
    at: HashMap<u64, Vec<usize>>,
    /// Keyed with a random number: nobody can choose paths of the same hash.
    hashes: RandomState,
    /// Of each mount: whether its parent is hidden, by another mount than this one.
    below_hidden: Vec<Option<bool>>,
}

impl<'a> MountTable<'a> {
    pub(super) fn new(all: &'a [Mount]) -> Self {
        let mut table = Self {
            all,
            by_id: HashMap::with_capacity(all.len()),
            at: HashMap::with_capacity(all.len()),
            hashes: RandomState::new(),
            below_hidden: vec![None; all.len()],
        };
        for (index, mount) in all.iter().enumerate() {
            table.by_id.entry(mount.id).or_insert(index);
            if let Some((_, hash)) = table.prefixes(mount.parent, &mount.mount_point).last() {
                table.at.entry(hash).or_default().push(index);
            }
        }
        table
    }

    /// Whether another mount hides the mount at that index: it is mounted on this one's root, or under the same parent on
    /// a directory above this one's mount point; or the parent mount is hidden in one of these ways.
    pub(super) fn is_covered(&mut self, index: usize) -> bool {
        self.hides_itself(index, None) || self.is_below_hidden(index)
    }

    /// Whether a mount other than `except` hides that one itself, whatever is the matter with its parent.
    fn hides_itself(&self, index: usize, except: Option<u64>) -> bool {
        let Some(mount) = self.all.get(index) else { return false };
        let is_other = |other: &Mount| other.id != mount.id && Some(other.id) != except;
        let point = mount.mount_point.as_slice();
        let on_it = self.prefixes(mount.id, point).last();
        let above = self.prefixes(mount.parent, point).filter(|(bytes, _)| *bytes < point.len());
        let places = on_it.map(|place| (mount.id, place));
        let mut places = places.into_iter().chain(above.map(|place| (mount.parent, place)));
        places
            .any(|(parent, (bytes, hash))| self.there(parent, &point[..bytes], hash).any(&is_other))
    }

    /// The mounts with that parent and mount point, of which the hash is given.
    fn there(&self, parent: u64, point: &[u8], hash: u64) -> impl Iterator<Item = &'a Mount> {
        let indexes = self.at.get(&hash).into_iter().flatten();
        let mounts = indexes.filter_map(|&index| self.all.get(index));
        mounts.filter(move |mount| mount.parent == parent && mount.mount_point == point)
    }

    fn is_below_hidden(&mut self, index: usize) -> bool {
        // From the mount up to one that is known, to one without a parent, or around a circle, which only a damaged
        // text has.
        let mut chain = vec![index];
        let mut places = HashMap::from([(index, 0)]);
        let mut answer = loop {
            let Some(&last) = chain.last() else { break false };
            if let Some(known) = self.below_hidden[last] {
                chain.pop();
                break known;
            }
            let Some(parent) = self.parent_of(last) else { break false };
            if let Some(&from) = places.get(&parent) {
                let circle = chain.split_off(from);
                let hidden = circle.iter().any(|&one| self.parent_hides_itself(one));
                circle.into_iter().for_each(|one| self.below_hidden[one] = Some(hidden));
                break hidden;
            }
            places.insert(parent, chain.len());
            chain.push(parent);
        };
        for one in chain.into_iter().rev() {
            answer = answer || self.parent_hides_itself(one);
            self.below_hidden[one] = Some(answer);
        }
        self.below_hidden[index].unwrap_or(answer)
    }

    fn parent_of(&self, index: usize) -> Option<usize> {
        let mount = self.all.get(index).filter(|mount| mount.parent != mount.id)?;
        self.by_id.get(&mount.parent).copied()
    }

    fn parent_hides_itself(&self, index: usize) -> bool {
        let id = self.all.get(index).map(|mount| mount.id);
        self.parent_of(index).is_some_and(|parent| self.hides_itself(parent, id))
    }

    /// The directories above a path, from the root on, and the path itself: the length of each, and its hash together
    /// with the id of a mount.
    fn prefixes(&self, parent: u64, path: &[u8]) -> impl Iterator<Item = (usize, u64)> {
        let mut hasher = self.hashes.build_hasher();
        hasher.write_u64(parent);
        let root = usize::from(path.first() == Some(&b'/'));
        let first = (root > 0).then(|| (root, hasher.finish()));
        let mut end = root;
        let names = path[root..].split(|&byte| byte == b'/');
        let names = names.filter(move |_| path.len() > root);
        let below = names.map(move |name| {
            // The boundaries between names count, too.
            hasher.write(name);
            hasher.write_u8(b'/');
            let at = end + name.len();
            end = at + 1;
            (at, hasher.finish())
        });
        first.into_iter().chain(below)
    }
}
