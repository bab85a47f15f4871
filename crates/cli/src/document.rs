// SPDX-License-Identifier: Apache-2.0 OR MIT
//! JSON documents in files: kept whole or not at all, and read no further than they may be long.

use crate::failure::{Exit, Failure};
use std::fmt::Display;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Where a document is to be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    path: &'a Path,
    force: bool,
}

impl<'a> Place<'a> {
    /// A place that is free, or is to be replaced (`force`).
    ///
    /// # Errors
    /// If nothing can be written there: said before anything is measured.
    pub(crate) fn new(path: &'a Path, force: bool) -> anyhow::Result<Self> {
        let shown = path.display();
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {
                return Err(Failure::bad_input(format!(
                    "`{shown}` is a directory; name a file in it"
                )));
            }
            Ok(_) if !force => {
                return Err(Failure::bad_input(format!(
                    "`{shown}` exists; name another file, or replace it with --force"
                )));
            }
            Ok(_) => {}
            Err(_) => {
                if let Some(parent) = directory(path).filter(|parent| !parent.is_dir()) {
                    let parent = parent.display();
                    return Err(Failure::bad_input(format!(
                        "cannot create `{shown}`: there is no directory `{parent}`"
                    )));
                }
            }
        }
        Ok(Self { path, force })
    }

    /// Writes it whole or not at all: beside its place first, so that an old one is not lost to a full disk.
    pub(crate) fn keep(self, document: &[u8]) -> anyhow::Result<()> {
        let failed = |error: io::Error| {
            Failure::error(Exit::Output, format!("cannot write `{}`: {error}", self.path.display()))
        };
        let special = self.path.symlink_metadata().is_ok_and(|meta| !meta.is_file());
        if special {
            // A device, a pipe or a link, asked for by --force: it takes the document and is not replaced.
            let mut file =
                OpenOptions::new().write(true).truncate(true).open(self.path).map_err(failed)?;
            return file.write_all(document).map_err(failed);
        }
        // As any other new file; by itself it would be readable for its owner only.
        let mut file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory(self.path).unwrap_or(Path::new(".")))
            .map_err(failed)?;
        file.write_all(document).map_err(failed)?;
        if self.force {
            return file.persist(self.path).map(drop).map_err(|error| failed(error.error));
        }
        match file.persist_noclobber(self.path) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
                Self::new(self.path, false).map(drop)
            }
            Err(error) => Err(failed(error.error)),
        }
    }
}

/// The directory that a path names, if it names one.
fn directory(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

/// Reads a document: a file, or a pipe, as in `<(ssh host deburr snapshot)`. What a document of that kind can be at
/// most ends the reading: some more bytes are returned then.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn read(path: &Path, most_bytes: u64) -> anyhow::Result<Vec<u8>> {
    let failed = |error: &dyn Display| {
        Failure::bad_input(format!("cannot read `{}`: {error}", path.display()))
    };
    let file = File::open(path).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    file.take(most_bytes + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    #[test]
    fn a_device_takes_a_document_and_stays_a_device() {
        let null = Path::new("/dev/null");
        assert!(Place::new(null, false).is_err());
        // As root, a file put in its place would be there for every program of the host: a pipe stands for it here.
        let here = tempfile::tempdir().unwrap();
        let pipe = here.path().join("pipe");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, 0o600.into(), 0).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || read(&pipe, 100).unwrap()
        });
        Place::new(&pipe, true).unwrap().keep(b"{}").unwrap();
        assert_eq!(reader.join().unwrap(), b"{}");
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());
    }

    #[test]
    fn what_is_there_is_replaced_whole_and_only_if_asked_for() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("a.json");
        Place::new(&path, false).unwrap().keep(b"a long one").unwrap();
        assert!(Place::new(&path, false).unwrap_err().to_string().contains("--force"));
        Place::new(&path, true).unwrap().keep(b"new").unwrap();
        assert_eq!(read(&path, 100).unwrap(), b"new");
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        let any = here.path().join("any");
        std::fs::write(&any, "").unwrap();
        assert_eq!(mode, any.metadata().unwrap().permissions().mode() & 0o777);
        let link = here.path().join("link");
        symlink(&path, &link).unwrap();
        Place::new(&link, true).unwrap().keep(b"by a link").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(read(&path, 100).unwrap(), b"by a link");
        assert_eq!(read(&path, 3).unwrap(), b"by a");
        let lost = here.path().join("no/b.json");
        assert!(Place::new(&lost, false).unwrap_err().to_string().contains("no directory"));
        assert!(Place::new(here.path(), true).is_err());
    }
}
