// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of the session: gives each an identity, and emits its name once and again when a better name is known.

use super::inode::Inode;
use crate::files::Name;
use deburr_core::recording::{File, FileId, FileState, ProcId};
use std::collections::{HashMap, HashSet, VecDeque};

/// Files that are kept apart in a session; the others are merged.
const FILES: usize = 20_000;
/// Files whose names are looked up again at the end.
const AT_THE_END: usize = 2000;
/// How often a name is looked up that the filesystem does not confirm.
const TRIES: u8 = 3;
/// A name is no longer kept if nothing new was known of the file for so long, which is looked at so often.
const QUIET_S: u16 = 300;
const LOOK_EVERY_S: u16 = 60;

/// What the kernel's dentries showed when the file was first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    /// Path from the filesystem's root, without a leading slash.
    pub(super) path: Vec<u8>,
    /// Whether `path` is the whole path, not the end of a longer one.
    pub(super) complete: bool,
    /// Whether it was unlinked.
    pub(super) deleted: bool,
}

#[derive(Debug)]
struct KnownFile {
    id: FileId,
    dirtied_by: Option<ProcId>,
    /// `None` = its name will not get any better, and is no longer kept.
    naming: Option<Box<Naming>>,
}

/// What is known of a file's name.
#[derive(Debug, Default)]
struct Naming {
    hint: Option<Hint>,
    emitted: Option<(String, FileState, Option<ProcId>)>,
    tries: u8,
    /// Seconds since it was last due.
    quiet_s: u16,
}

/// The files of the session.
#[derive(Debug, Default)]
pub(super) struct SessionFiles {
    files: HashMap<Inode, KnownFile>,
    /// The files that are looked up again at the end.
    first: Vec<Inode>,
    due: VecDeque<Inode>,
    /// Seconds until names are looked through for those that are no longer kept.
    look_in_s: u16,
    /// Number of transfers, syncs and other uses of files beyond [`FILES`].
    pub(super) untold: u64,
}

impl SessionFiles {
    /// The identity of a file.
    pub(super) fn id(&mut self, inode: Inode) -> FileId {
        if let Some(known) = self.files.get(&inode) {
            return known.id;
        }
        if self.files.len() >= FILES {
            self.untold += 1;
            return FileId::OTHERS;
        }
        if self.first.len() < AT_THE_END {
            self.first.push(inode);
        }
        let id = FileId(self.files.len() as u32 + 1);
        self.files.insert(inode, KnownFile { id, dirtied_by: None, naming: Some(Box::default()) });
        self.due.push_back(inode);
        id
    }

    /// Takes what the kernel's dentries show of a file.
    pub(super) fn hint(&mut self, inode: Inode, hint: Hint) {
        // A file beyond the maximum is counted when it is transferred.
        if self.files.len() < FILES {
            self.id(inode);
        }
        let naming = self.files.get_mut(&inode).and_then(|known| known.naming.as_mut());
        if let Some(naming) = naming.filter(|naming| naming.hint.as_ref() != Some(&hint)) {
            naming.hint = Some(hint);
            self.due.push_back(inode);
        }
    }

    /// A process made a clean file dirty. The process that was seen first stays: two that take turns would make a
    /// record each time.
    pub(super) fn dirtied(&mut self, inode: Inode, by: ProcId) {
        if let Some(known) = self.files.get_mut(&inode).filter(|known| known.dirtied_by.is_none()) {
            known.dirtied_by = Some(by);
            self.due.push_back(inode);
        }
    }

    /// Takes the records that are due. Every file is emitted in the second in which it is first seen, with the name
    /// that is known then. `look_up` names the files in their order; it itself keeps within the budget of a second, and
    /// says whether a name is confirmed.
    pub(super) fn take(
        &mut self,
        last: bool,
        dirtier: impl Fn(Inode) -> Option<ProcId>,
        look_up: impl FnOnce(&[(Inode, Option<&Hint>)]) -> Vec<Name>,
    ) -> Vec<File> {
        if last {
            // Not all files may be looked up: those without any name come first.
            let hinted = |inode: &Inode| hint_of(&self.files, inode).is_some();
            self.due.make_contiguous().sort_by_key(hinted);
        }
        let mut due: Vec<Inode> = self.due.drain(..).collect();
        if last {
            // They may have been renamed or deleted since.
            due.extend(&self.first);
        }
        // A file may be due for several reasons.
        let mut seen = HashSet::new();
        let is_due = |inode: &Inode| {
            seen.insert(*inode) && self.files.get(inode).is_some_and(|it| it.naming.is_some())
        };
        due.retain(is_due);
        let hinted: Vec<_> =
            due.iter().map(|inode| (*inode, hint_of(&self.files, inode))).collect();
        let names = look_up(&hinted);
        let told = due.into_iter().zip(names);
        let records = told.filter_map(|(inode, name)| self.tell(inode, &dirtier, name)).collect();
        self.forget_quiet();
        records
    }

    /// No longer keeps the names of files about which nothing new came for minutes. Called once a second.
    fn forget_quiet(&mut self) {
        self.look_in_s = self.look_in_s.checked_sub(1).unwrap_or(LOOK_EVERY_S - 1);
        if self.look_in_s > 0 {
            return;
        }
        for known in self.files.values_mut().filter(|known| known.id.0 as usize > AT_THE_END) {
            let Some(naming) = &mut known.naming else { continue };
            naming.quiet_s += LOOK_EVERY_S;
            if naming.quiet_s > QUIET_S && naming.emitted.is_some() {
                known.naming = None;
            }
        }
    }

    fn tell(
        &mut self,
        inode: Inode,
        dirtier: &impl Fn(Inode) -> Option<ProcId>,
        name: Name,
    ) -> Option<File> {
        let known = self.files.get_mut(&inode)?;
        // The file may have been dirtied before it had an identity.
        known.dirtied_by = known.dirtied_by.or_else(|| dirtier(inode));
        let dirtied_by = known.dirtied_by;
        let id = known.id;
        let naming = known.naming.as_mut()?;
        let Name { path, state, confirmed } = name;
        naming.tries = naming.tries.saturating_add(1);
        naming.quiet_s = 0;
        let again = !confirmed && naming.tries < TRIES;
        if again {
            self.due.push_back(inode);
        }
        let now = (path, state, dirtied_by);
        let is_new = naming.emitted.as_ref() != Some(&now);
        let path = naming.emitted.insert(now).0.clone();
        let is_last = !again && naming.hint.is_some() && dirtied_by.is_some();
        if is_last && id.0 as usize > AT_THE_END {
            // Names take most of the memory of files.
            known.naming = None;
        }
        let Inode { fs, ino, generation, .. } = inode;
        is_new.then_some(File { id, fs, ino, generation, path, state, dirtied_by })
    }
}

fn hint_of<'a>(files: &'a HashMap<Inode, KnownFile>, inode: &Inode) -> Option<&'a Hint> {
    files.get(inode)?.naming.as_ref()?.hint.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_core::recording::DevId;

    fn inode(ino: u64) -> Inode {
        Inode { fs: DevId { major: 7, minor: 0 }, ino, generation: 7, subvolume: 0 }
    }

    fn nobody(_: Inode) -> Option<ProcId> {
        None
    }

    fn hint(path: &str) -> Hint {
        Hint { path: path.as_bytes().to_vec(), complete: true, deleted: false }
    }

    fn name(path: &str, state: FileState, confirmed: bool) -> Name {
        Name { path: path.into(), state, confirmed }
    }

    fn look_up(files: &[(Inode, Option<&Hint>)]) -> Vec<Name> {
        let one = |(_, hint): &(Inode, Option<&Hint>)| match hint {
            Some(hint) => name(&String::from_utf8_lossy(&hint.path), FileState::Linked, true),
            None => name("", FileState::Nameless, true),
        };
        files.iter().map(one).collect()
    }

    #[test]
    fn a_file_is_told_once_and_again_when_its_name_changes() {
        let mut names = SessionFiles::default();
        let file = inode(12);
        assert_eq!(names.id(file), FileId(1));
        assert_eq!(names.id(inode(13)), FileId(2));
        assert_eq!(names.take(false, nobody, look_up).len(), 2);
        assert_eq!(names.take(false, nobody, look_up).len(), 0);
        names.hint(file, hint("store/a"));
        let records = names.take(false, nobody, look_up);
        let [emitted] = &*records else { panic!("{records:?}") };
        assert_eq!(
            (emitted.id, &*emitted.path, emitted.state),
            (FileId(1), "store/a", FileState::Linked)
        );
        names.hint(file, hint("store/a"));
        assert_eq!(names.take(true, nobody, look_up).len(), 0);
        let renamed = |files: &[(Inode, Option<&Hint>)]| {
            files.iter().map(|_| name("store/b", FileState::Linked, true)).collect()
        };
        assert_eq!(names.take(true, nobody, renamed).len(), 2);
    }

    #[test]
    fn at_the_end_files_without_a_name_come_first_and_each_once() {
        let mut names = SessionFiles::default();
        for ino in 1..5 {
            names.id(inode(ino));
        }
        names.hint(inode(1), hint("a"));
        names.hint(inode(3), hint("c"));
        let mut asked = Vec::new();
        names.take(true, nobody, |files| {
            asked = files.iter().map(|(inode, _)| inode.ino).collect();
            look_up(files)
        });
        assert_eq!(asked, [2, 4, 1, 3]);
    }

    #[test]
    fn who_dirtied_a_file_is_told_when_it_is_known_whichever_comes_first() {
        let mut names = SessionFiles::default();
        let (before, after) = (inode(12), inode(13));
        names.dirtied(before, ProcId(1));
        names.id(before);
        names.id(after);
        let dirtier = |inode: Inode| (inode == before).then_some(ProcId(1));
        let by = |files: Vec<File>| -> Vec<Option<ProcId>> {
            files.into_iter().map(|file| file.dirtied_by).collect()
        };
        assert_eq!(by(names.take(false, dirtier, look_up)), [Some(ProcId(1)), None]);
        names.dirtied(after, ProcId(2));
        assert_eq!(by(names.take(false, dirtier, look_up)), [Some(ProcId(2))]);
        names.dirtied(after, ProcId(3));
        assert_eq!(by(names.take(false, dirtier, look_up)), []);
    }

    #[test]
    fn a_name_that_is_not_borne_out_is_asked_for_again_but_not_for_ever() {
        let mut names = SessionFiles::default();
        names.id(inode(12));
        let mut asked = 0;
        for _ in 0..10 {
            names.take(false, nobody, |files| {
                asked += files.len();
                files.iter().map(|_| name("store/a", FileState::Linked, false)).collect()
            });
        }
        assert_eq!(asked, usize::from(TRIES));
    }

    #[test]
    fn of_many_files_the_name_is_told_once_and_is_the_one_that_was_seen() {
        let mut names = SessionFiles::default();
        let (mut emitted, mut last) = (0, None);
        for ino in 0..=AT_THE_END as u64 {
            names.id(inode(ino));
            names.hint(inode(ino), hint("store/a"));
        }
        for end in [false, false, true] {
            for file in names.take(end, |_| Some(ProcId(1)), look_up) {
                emitted += 1;
                last = Some(file.path);
            }
            // The kernel may report a name again.
            names.hint(inode(AT_THE_END as u64), hint("store/a"));
        }
        assert_eq!((emitted, last.as_deref()), (AT_THE_END + 1, Some("store/a")));
    }

    #[test]
    fn the_names_of_most_files_are_forgotten_and_never_told_twice() {
        let mut names = SessionFiles::default();
        // None of them has all of a name and a dirtier.
        for ino in 0..FILES as u64 {
            names.id(inode(ino));
        }
        names.hint(inode(FILES as u64 - 1), hint("store/a"));
        let mut told = names.take(false, nobody, look_up).len();
        let kept = |names: &SessionFiles| {
            names.files.values().filter(|known| known.naming.is_some()).count()
        };
        assert_eq!(kept(&names), FILES);
        for _ in 0..2 * QUIET_S {
            told += names.take(false, nobody, look_up).len();
        }
        assert_eq!((told, kept(&names)), (FILES, AT_THE_END));
        names.hint(inode(FILES as u64 - 1), hint("store/a"));
        names.hint(inode(0), hint("store/b"));
        assert_eq!(names.take(true, nobody, look_up).len(), 1);
    }

    #[test]
    fn beyond_the_number_they_are_others() {
        let mut names = SessionFiles::default();
        for ino in 0..=FILES as u64 {
            names.id(inode(ino));
        }
        assert_eq!((names.id(inode(1 << 40)), names.untold), (FileId::OTHERS, 2));
        assert_eq!(names.take(false, nobody, look_up).len(), FILES);
        assert_eq!(names.take(true, nobody, look_up).len(), 0);
    }
}
