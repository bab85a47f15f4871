// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program file is. Each file is examined once, however many processes run it.

use super::image::{FileImage, mapping, places, program_start};
use crate::collect::Roots;
use deburr_core::limits::elf::{Elf, ElfError};
use deburr_core::limits::go::{self, GoBuild, GomaxprocsError};
use deburr_core::limits::{Biased, Metered, jvm};
use deburr_core::recording::Parallelism;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

/// Files that are kept; beyond that all are dropped.
const MAX_FILES: usize = 4096;
/// Bytes that are read of a program's file, and of the memory of a process, for its sake. The largest programs need less.
pub(crate) const FILE_BYTES: u64 = 256 << 20;
pub(crate) const MEMORY_BYTES: u64 = 64 << 20;
/// Number of attempts to decode a file: the first process may have only just started.
const MAX_TRIES: u32 = 3;

/// Identifies an unchanged file in the processes of one user. Part of what is known of a file comes from the memory of
/// processes, which users may fill with anything; so it is used only for processes of the same user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    dev: u64,
    ino: u64,
    size: u64,
    user: u32,
    changed_ns: (i64, i64),
}

impl Identity {
    /// The identity of the file at `path`, for the process `pid`.
    fn of(path: &Path, roots: &Roots, pid: u32) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        if !meta.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let changed_ns = (meta.ctime(), meta.ctime_nsec());
        let user = fs::metadata(roots.proc.join(pid.to_string()))?.uid();
        Ok(Self { dev: meta.dev(), ino: meta.ino(), size: meta.size(), user, changed_ns })
    }
}

/// A program, by the way it was built.
#[derive(Debug)]
pub(super) enum Program {
    /// Built with Go.
    Go {
        elf: Elf,
        build: GoBuild,
        /// Address of GOMAXPROCS, as the file was linked.
        place: Result<u64, GomaxprocsError>,
    },
    /// Something else.
    Other,
}

/// A `libjvm.so`: its version, and where it has its flags.
#[derive(Debug)]
struct Library {
    elf: Elf,
    machine: jvm::JvmImage,
}

/// The files that were examined.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    programs: HashMap<Identity, (u32, Arc<Program>)>,
    /// Number of attempts, and the library; `None` = it was not understood.
    libraries: HashMap<Identity, (u32, Option<Arc<Library>>)>,
}

impl Programs {
    /// The program of a process.
    pub(super) fn of(&mut self, roots: &Roots, pid: u32) -> io::Result<Arc<Program>> {
        let path = roots.proc.join(pid.to_string()).join("exe");
        let identity = Identity::of(&path, roots, pid)?;
        let known = self.programs.get(&identity);
        if let Some((tries, program)) = known {
            // A table in memory that could not be decoded may be complete later; what the file lacks stays missing.
            let failed =
                matches!(**program, Program::Go { place: Err(GomaxprocsError::Table(_)), .. });
            if !failed || *tries >= MAX_TRIES {
                return Ok(Arc::clone(program));
            }
        }
        let tries = known.map_or(0, |(tries, _)| *tries);
        let program = Arc::new(inspect(roots, pid, &path)?);
        if self.programs.len() >= MAX_FILES {
            self.programs.clear();
        }
        self.programs.insert(identity, (tries + 1, Arc::clone(&program)));
        Ok(program)
    }

    /// The flags of a Java virtual machine; `None` if none is loaded, or it is not understood.
    pub(super) fn java(&mut self, roots: &Roots, pid: u32) -> Option<Java> {
        let is_library =
            |path: &[u8]| path.strip_suffix(b" (deleted)").unwrap_or(path).ends_with(b"/libjvm.so");
        let found = mapping(roots, pid, is_library)?;
        let places = places((found.start, found.end), &found.path, roots, pid);
        let (path, identity) =
            places.iter().find_map(|place| Some((place, Identity::of(place, roots, pid).ok()?)))?;
        let memory = FileImage::memory(roots, pid).ok()?;
        let library = match self.libraries.get(&identity) {
            Some((_, Some(library))) => Arc::clone(library),
            Some((MAX_TRIES, None)) => return None,
            known => {
                let tries = known.map_or(0, |(tries, _)| *tries) + 1;
                let library = inspect_library(path, &memory, found.start).map(Arc::new);
                if self.libraries.len() >= MAX_FILES {
                    self.libraries.clear();
                }
                self.libraries.insert(identity, (tries, library.clone()));
                library?
            }
        };
        let memory = Metered::new(&memory, MEMORY_BYTES);
        let memory = Biased { image: &memory, bias: library.elf.bias(found.start) };
        let (parallelism, settings) = jvm::read(&memory, &library.machine.flags);
        Some(Java { version: library.machine.version.clone(), parallelism, settings })
    }
}

fn inspect_library(path: &Path, memory: &FileImage, start: u64) -> Option<Library> {
    let file = FileImage::open(path).ok()?;
    let file = Metered::new(&file, FILE_BYTES);
    let elf = Elf::read(&file).ok()?;
    let memory = Metered::new(memory, MEMORY_BYTES);
    let memory = Biased { image: &memory, bias: elf.bias(start) };
    let machine = jvm::locate(&file, &elf, &memory)?;
    Some(Library { elf, machine })
}

/// The values in the memory of a Java virtual machine.
#[derive(Debug)]
pub(super) struct Java {
    pub(super) version: Option<String>,
    pub(super) parallelism: Vec<Parallelism>,
    pub(super) settings: BTreeMap<String, String>,
}

fn inspect(roots: &Roots, pid: u32, path: &Path) -> io::Result<Program> {
    let file = FileImage::open(path)?;
    let file = Metered::new(&file, FILE_BYTES);
    let elf = match Elf::read(&file) {
        Ok(elf) => elf,
        // A damaged program would not run, so it was read wrongly, or is packed.
        Err(ElfError::NotElf | ElfError::Unsupported | ElfError::Damaged(_)) => {
            return Ok(Program::Other);
        }
    };
    if !go::is_go(&file, &elf) {
        return Ok(Program::Other);
    }
    let memory = FileImage::memory(roots, pid)?;
    let memory = Metered::new(&memory, MEMORY_BYTES);
    let memory = Biased { image: &memory, bias: bias(roots, pid, &elf) };
    let Some(build) = go::build(&file, &elf, &memory) else { return Ok(Program::Other) };
    let place = go::locate(&file, &elf, &memory);
    Ok(Program::Go { elf, build, place })
}

/// Offset of the addresses of a process's program from those in its file.
fn bias(roots: &Roots, pid: u32, elf: &Elf) -> u64 {
    match elf.relocatable {
        true => program_start(roots, pid).map_or(0, |start| elf.bias(start)),
        false => 0,
    }
}

/// The value of GOMAXPROCS in a process.
pub(super) fn gomaxprocs(
    roots: &Roots,
    pid: u32,
    elf: &Elf,
    place: u64,
) -> io::Result<Option<u32>> {
    let memory = FileImage::memory(roots, pid)?;
    let memory = Biased { image: &memory, bias: bias(roots, pid, elf) };
    Ok(go::value(&memory, place))
}
