// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which language runtime a process has, and how many threads it lets run at a time.

use super::image::mapping;
use super::program::{Program, Programs, gomaxprocs};
use super::visible_quota::MountsByNamespace;
use crate::collect::{Cgroups, Roots};
use crate::reader::{NotRead, Reader};
use deburr_core::limits::go::{self, GoBuild};
use deburr_core::limits::visible_properties::{self, VisibleProperties};
use deburr_core::recording::{
    Confidence, Parallelism, ProcId, RuntimeKind, RuntimeReading, SeenQuota,
};
use deburr_core::text::name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Bytes of an environment that are read.
const MAX_ENVIRONMENT_BYTES: u64 = 1 << 20;
/// Bytes of a command line that are read.
const MAX_TITLE_BYTES: u64 = 4096;
/// Child processes whose titles are read, if a process says that it is nginx.
const MAX_WORKERS: usize = 1024;
/// Bytes of its list of children that are read.
const MAX_CHILDREN_BYTES: u64 = 64 << 10;
/// Threads whose names are read per process.
const MAX_THREADS: usize = 1024;
/// Parts of the names of libraries that take their number of threads from OpenMP's variables. Packages put words
/// before the name.
const OPENMP_LIBRARIES: [&[u8]; 5] = [b"libgomp", b"libomp", b"libiomp", b"openblas", b"libmkl_"];

/// Looks at the runtimes of processes.
#[derive(Debug, Default)]
pub(crate) struct Prober {
    reader: Reader,
    seen: MountsByNamespace,
}

/// Why nothing is known about the runtime of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HiddenReason {
    /// The process is gone.
    Gone,
    /// This user may not look at the process.
    Forbidden,
    /// A read did not end, or was not tried.
    NotRead(NotRead),
}

impl From<io::Error> for HiddenReason {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Gone,
        }
    }
}

/// The result of a look; `None` = no known runtime.
type ProbeResult = Result<Option<RuntimeReading>, HiddenReason>;

impl Prober {
    /// A prober that has `reader` read.
    pub(crate) fn new(reader: Reader) -> Self {
        Self { reader, seen: MountsByNamespace::default() }
    }

    /// Looks at a process that is not a kernel thread and has that many threads.
    pub(crate) fn look(
        &mut self,
        roots: &Roots,
        cgroups: &mut Cgroups,
        pid: u32,
        threads: u32,
    ) -> ProbeResult {
        let found = self.reader.runtime(roots, pid, threads)?;
        let seen = |reading| RuntimeReading { seen: self.seen.by(roots, cgroups, pid), ..reading };
        Ok(found.map(seen))
    }
}

impl Programs {
    /// The reading of a process, but for what it sees of its quota.
    pub(crate) fn look(&mut self, roots: &Roots, pid: u32, threads: u32) -> ProbeResult {
        let dir = roots.proc.join(pid.to_string());
        let program = self.of(roots, pid)?;
        let mut reading = RuntimeReading {
            t_ns: 0,
            proc: ProcId(0),
            kind: RuntimeKind::Go,
            version: None,
            threads,
            parallelism: vec![],
            unread: None,
            settings: BTreeMap::new(),
            seen: SeenQuota::Unknown,
        };
        if let Program::Go { elf, build, place } = &*program {
            reading.version = Some(build.version.clone());
            reading.settings = go_settings(environment(&dir)?, build);
            match place {
                Err(error) => reading.unread = Some(error.to_string()),
                Ok(place) => match gomaxprocs(roots, pid, elf, *place)? {
                    Some(value) => reading.parallelism.push(Parallelism {
                        name: "GOMAXPROCS".into(),
                        value,
                        confidence: Confidence::Exact,
                        source: "memory".into(),
                    }),
                    None => {
                        let reason = "its memory does not hold a number there: it has not started yet, or is ending";
                        reading.unread = Some(reason.into());
                    }
                },
            }
        } else if !self.others(roots, &dir, pid, &mut reading)? {
            return Ok(None);
        }
        Ok(Some(reading))
    }

    /// Looks for runtimes other than Go. `false` if there is no known one.
    fn others(
        &mut self,
        roots: &Roots,
        dir: &Path,
        pid: u32,
        reading: &mut RuntimeReading,
    ) -> Result<bool, HiddenReason> {
        let exe = fs::read_link(dir.join("exe"))?;
        let program = exe.file_name().unwrap_or_default().to_string_lossy();
        let program = program.trim_end_matches(" (deleted)");
        let environment = environment(dir)?;
        if program.starts_with("java") || program == "jsvc" {
            reading.kind = RuntimeKind::Jvm;
            match self.java(roots, pid) {
                Some(java) => {
                    reading.version = java.version;
                    (reading.parallelism, reading.settings) = (java.parallelism, java.settings);
                }
                None => {
                    reading.unread = Some(
                        "the flags of its virtual machine were not found in its memory".into(),
                    );
                }
            }
            // Only options that can matter are kept: others may hold secrets.
            let options = environment.get("JAVA_TOOL_OPTIONS").into_iter();
            let options = options.flat_map(|text| text.split_whitespace());
            let options: Vec<&str> = options.filter(|word| word.starts_with("-XX:")).collect();
            if !options.is_empty() {
                reading.settings.insert("JAVA_TOOL_OPTIONS".into(), options.join(" "));
            }
            return Ok(true);
        }
        let title = title(dir);
        let comm = name::decode(fs::read(dir.join("comm")).unwrap_or_default().trim_ascii_end());
        let threads = if reading.threads > 1 { threads(dir) } else { BTreeMap::new() };
        // Threads of OpenMP have the same name as the program.
        let may_use_openmp = threads.get(&comm).is_some_and(|&unnamed| unnamed > 1);
        let outside = VisibleProperties {
            program,
            title: &title,
            comm: &comm,
            threads,
            workers: title.starts_with("nginx: master").then(|| workers(roots, dir, pid)),
            openmp: may_use_openmp && has_openmp(roots, pid),
            environment,
        };
        let Some(found) = visible_properties::detect(&outside) else { return Ok(false) };
        reading.kind = found.kind;
        reading.parallelism = found.parallelism;
        // Only settings of numbers that are shown.
        let shown = |name: &String| reading.parallelism.iter().any(|number| number.name == *name);
        reading.settings =
            outside.environment.into_iter().filter(|(name, _)| shown(name)).collect();
        Ok(true)
    }
}

/// The settings that influence GOMAXPROCS.
fn go_settings(environment: BTreeMap<String, String>, build: &GoBuild) -> BTreeMap<String, String> {
    let of = |name: &str| environment.get(name).cloned();
    let debug = |text: Option<String>| go::debug_settings(&text?);
    let all = [
        ("GOMAXPROCS", of("GOMAXPROCS")),
        ("GODEBUG", debug(of("GODEBUG"))),
        ("DefaultGODEBUG", debug(build.default_godebug.clone())),
        ("automaxprocs", build.automaxprocs.clone()),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn start_of(path: PathBuf, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(max_bytes).read_to_end(&mut text)?;
    Ok(text)
}

fn environment(dir: &Path) -> io::Result<BTreeMap<String, String>> {
    start_of(dir.join("environ"), MAX_ENVIRONMENT_BYTES)
        .map(|text| visible_properties::environment(&text))
}

/// The first argument, which servers overwrite with a title.
fn title(dir: &Path) -> String {
    let text = start_of(dir.join("cmdline"), MAX_TITLE_BYTES).unwrap_or_default();
    name::decode(text.split(|&byte| byte == 0).next().unwrap_or_default())
}

/// Name -> number of threads of the process with that name.
fn threads(dir: &Path) -> BTreeMap<String, u32> {
    let mut names = BTreeMap::new();
    let entries = fs::read_dir(dir.join("task")).into_iter().flatten().flatten();
    for entry in entries.take(MAX_THREADS) {
        let Ok(comm) = fs::read(entry.path().join("comm")) else { continue };
        *names.entry(name::decode(comm.trim_ascii_end())).or_default() += 1;
    }
    names
}

/// Number of child processes whose title says that they are workers of nginx.
fn workers(roots: &Roots, dir: &Path, pid: u32) -> u32 {
    let list = dir.join("task").join(pid.to_string()).join("children");
    let list = name::decode(&start_of(list, MAX_CHILDREN_BYTES).unwrap_or_default());
    let children =
        list.split_whitespace().take(MAX_WORKERS).filter_map(|child| child.parse::<u32>().ok());
    let works = |child: &u32| {
        let title = title(&roots.proc.join(child.to_string()));
        // Workers of an earlier configuration only finish their connections.
        title.starts_with("nginx: worker") && !title.ends_with("is shutting down")
    };
    children.filter(works).count() as u32
}

fn has_openmp(roots: &Roots, pid: u32) -> bool {
    let is_one = |path: &[u8]| {
        let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let has = |word: &&[u8]| file.windows(word.len()).any(|part| part == *word);
        file.starts_with(b"lib") && OPENMP_LIBRARIES.iter().any(has)
    };
    mapping(roots, pid, is_one).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::fixture::Host;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_process_whose_environment_cannot_be_read_holds_nobody_up() {
        let host = Host::like("cgroup/mixed");
        let program = std::env::current_exe().unwrap();
        for pid in ["42", "43"] {
            host.write(&format!("proc/{pid}/comm"), "java\n");
            symlink(&program, host.path(&format!("proc/{pid}/exe"))).unwrap();
        }
        // Opening a FIFO waits for its other end, which never comes.
        let environ = host.path("proc/42/environ");
        rustix::fs::mkfifoat(rustix::fs::CWD, environ, 0o600.into()).unwrap();
        host.write("proc/43/environ", "");
        let (mut prober, mut cgroups) = (Prober::default(), Cgroups::open(&host.roots));
        let mut look = |pid| prober.look(&host.roots, &mut cgroups, pid, 1);
        assert_eq!(look(42), Err(HiddenReason::NotRead(NotRead::Stuck)));
        assert_eq!(look(43), Ok(None));
        assert_eq!(look(42), Err(HiddenReason::NotRead(NotRead::Stuck)));
    }
}
