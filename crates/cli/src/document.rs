// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and writes JSON documents in files. A regular file is written whole or not at all; reading stops at a limit.

use crate::failure::{Exit, Failure};
use std::fmt::Display;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Destination of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    path: &'a Path,
    force: bool,
}

impl<'a> Place<'a> {
    /// Checks a destination before anything is measured. With `force`, an existing file is to be replaced.
    ///
    /// # Errors
    /// If the path is a directory, exists (without `force`), or lies in a directory that does not exist.
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

    /// Writes the document whole or not at all: into a temporary file in the same directory first, so that a full disk
    /// does not destroy an old document.
    pub(crate) fn keep(self, document: &[u8]) -> anyhow::Result<()> {
        let failed = |error: io::Error| {
            Failure::error(Exit::Output, format!("cannot write `{}`: {error}", self.path.display()))
        };
        let special = self.path.symlink_metadata().is_ok_and(|meta| !meta.is_file());
        if special {
            // A device, a pipe or a symbolic link, given with --force: it is written to, not replaced.
            let mut file =
                OpenOptions::new().write(true).truncate(true).open(self.path).map_err(failed)?;
            return file.write_all(document).map_err(failed);
        }
        // The mode of any other new file. By default, only the owner can read a temporary file.
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
                // It may have gone again since.
                Self::new(self.path, false)?;
                Err(failed(error.error))
            }
            Err(error) => Err(failed(error.error)),
        }
    }
}

/// The directory part of a path; `None` for a mere file name.
fn directory(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

/// Reads a document from a file, or from a pipe as in `<(ssh host deburr snapshot)`. Reading stops one byte after
/// `most_bytes`: a result that is longer than `most_bytes` is not a whole document.
///
/// # Errors
/// If the file cannot be read.
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
        // A pipe stands for the device: run as root, a faulty test would replace /dev/null for the whole host.
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
