// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Claims a directory for several files that belong together. It is made new, or it is there and empty: nothing in it is
//! ever replaced. The files are written into a directory beside it, which takes its name when all are complete.

use super::{MODE, PROBE, TRIES, give_to_caller_of_sudo, is_full, random_name};
use crate::failure::{Exit, Failure};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A directory that will have the given name. Dropped before that, it is removed with all its files.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    temporary: PathBuf,
}

impl Folder {
    /// Checks that the directory can be made, by making another one beside it.
    ///
    /// # Errors
    /// With [`Exit::BadInput`] if there is something of that name which is not an empty directory, or if no directory can
    /// be made there. With [`Exit::Output`] if no file in it can be written.
    pub(crate) fn new(path: &Path) -> anyhow::Result<Self> {
        look(path)?;
        let failed = |error: io::Error| {
            let exit = if is_full(&error) { Exit::Output } else { Exit::BadInput };
            Failure::error(exit, format!("cannot create `{}`: {error}", path.display()))
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let temporary = make(parent.unwrap_or(Path::new("."))).map_err(failed)?;
        let folder = Self { path: path.to_owned(), temporary };
        let probe = folder.temporary.join("probe");
        let probed = create(&probe).and_then(|mut file| file.write_all(&PROBE));
        probed
            .and_then(|()| fs::remove_file(&probe))
            .map_err(|error| folder.not_written(&error))?;
        Ok(folder)
    }

    /// Where the files are made for now.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.temporary.clone()
    }

    /// Gives the directory its name.
    pub(crate) fn put(mut self) -> anyhow::Result<()> {
        look(&self.path)?;
        // An empty directory is replaced by a rename. What is put there meanwhile is not.
        let flags = if self.path.exists() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let renamed = match renameat_with(CWD, &self.temporary, CWD, &self.path, flags) {
            // The filesystem does not know this flag.
            Err(Errno::INVAL | Errno::NOSYS) => fs::rename(&self.temporary, &self.path),
            renamed => renamed.map_err(Into::into),
        };
        renamed.map_err(|error| self.not_written(&error))?;
        self.temporary = PathBuf::new();
        Ok(())
    }

    /// The error for a file in it that cannot be written.
    pub(crate) fn not_written(&self, error: &io::Error) -> anyhow::Error {
        let shown = self.path.display();
        Failure::error(Exit::Output, format!("cannot write to `{shown}`: {error}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.temporary.as_os_str().is_empty() {
            // If it cannot be removed, its name says that it is no output.
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

/// Makes a new file that only its owner can read.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(path)?;
    give_to_caller_of_sudo(&file);
    Ok(file)
}

/// Looks at what is there.
fn look(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let refuse = |why: &str| Err(Failure::bad_input(format!("`{shown}` {why}")));
    let meta = match path.symlink_metadata() {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            if parent.is_dir() && path.file_name().is_some() {
                return Ok(());
            }
            let parent = parent.display();
            return refuse(&format!("cannot be created: there is no directory `{parent}`"));
        }
        Err(error) => return refuse(&format!("cannot be created: {error}")),
    };
    if meta.is_symlink() {
        return refuse(
            "is a symbolic link, which is not followed; name the directory that it leads to",
        );
    }
    if !meta.is_dir() {
        return refuse("is not a directory; name a directory, new or empty");
    }
    if path.file_name().is_none() {
        return refuse("cannot be replaced by a new directory; name one in it");
    }
    match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => refuse("is not empty; name another directory, new or empty"),
        Err(error) => refuse(&format!("cannot be looked into: {error}")),
    }
}

/// Makes a directory with a random name, which only its owner can look into.
fn make(parent: &Path) -> io::Result<PathBuf> {
    for _ in 0..TRIES {
        let path = parent.join(format!(".deburr-{}", random_name()?));
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                give_to_caller_of_sudo(&rustix::fs::open(&path, flags, Mode::empty())?);
                return Ok(path);
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn refusal(path: &Path) -> String {
        Folder::new(path).unwrap_err().to_string()
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_directory_appears_whole_or_not_at_all() {
        let here = tempfile::tempdir().unwrap();
        let empty = here.path().join("empty");
        fs::create_dir(&empty).unwrap();
        for path in [here.path().join("new"), empty] {
            let folder = Folder::new(&path).unwrap();
            create(&folder.temporary().join("a")).unwrap().write_all(b"a").unwrap();
            assert!(!path.join("a").exists());
            folder.put().unwrap();
            assert_eq!(fs::read(path.join("a")).unwrap(), b"a");
            assert_eq!((mode(&path), mode(&path.join("a"))), (0o700, 0o600));
        }
        let folder = Folder::new(&here.path().join("dropped")).unwrap();
        create(&folder.temporary().join("a")).unwrap();
        drop(folder);
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 2, "nothing is left beside them");
    }

    #[test]
    fn nothing_that_is_there_is_replaced() {
        let here = tempfile::tempdir().unwrap();
        let (full, link, file) =
            (here.path().join("full"), here.path().join("link"), here.path().join("file"));
        fs::create_dir_all(full.join("x")).unwrap();
        fs::write(&file, "precious").unwrap();
        symlink(&full, &link).unwrap();
        for (path, expected) in [
            (full.clone(), "is not empty"),
            (link, "is a symbolic link"),
            (file, "is not a directory"),
            (here.path().join("no/x"), "there is no directory"),
            (PathBuf::from("/"), "name one in it"),
            (PathBuf::from("/dev/null"), "is not a directory"),
        ] {
            let error = refusal(&path);
            assert!(error.contains(expected), "{error}");
        }
        // Somebody puts something there meanwhile.
        let late = here.path().join("late");
        let folder = Folder::new(&late).unwrap();
        fs::create_dir_all(late.join("x")).unwrap();
        let error = folder.put().unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 4);
    }
}
