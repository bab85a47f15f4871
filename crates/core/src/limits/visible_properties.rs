// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Derives a runtime's number of threads from thread names and environment variables alone: less reliable than its
//! memory, but available for every runtime.

use crate::recording::{Confidence, Parallelism, RuntimeKind};
use std::collections::BTreeMap;

/// Environment variables that affect the number of threads.
pub const VARIABLES: [&str; 11] = [
    "GOMAXPROCS",
    "GODEBUG",
    "UV_THREADPOOL_SIZE",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
    "RAYON_NUM_THREADS",
    "DOTNET_PROCESSOR_COUNT",
    "COMPlus_PROCESSOR_COUNT",
    "JAVA_TOOL_OPTIONS",
];
/// Variables of OpenMP and of libraries that follow its settings, in order of precedence.
pub const OPENMP: [&str; 3] = ["OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"];
/// Default size of Node's thread pool (libuv).
const NODE_POOL: u32 = 4;
/// Name of the number of threads in .NET's pool. The pool contains waiting threads too, so it does not show how many
/// run in parallel.
pub(super) const DOTNET_POOL: &str = "pool threads";
/// Largest plausible number of threads.
const MAX_THREADS: u32 = 1 << 16;

/// Properties of a process that are visible from outside.
#[derive(Clone, Debug, Default)]
pub struct VisibleProperties<'a> {
    /// File name of the program.
    pub program: &'a str,
    /// First argument. Servers store the role of each of their processes in it.
    pub title: &'a str,
    /// Comm of the main thread. Threads without a name of their own inherit it.
    pub comm: &'a str,
    /// Those of [`VARIABLES`] with which the process was started.
    pub environment: BTreeMap<String, String>,
    /// Number of threads by comm.
    pub threads: BTreeMap<String, u32>,
    /// Number of child processes with the title of a worker; `None` if not counted.
    pub workers: Option<u32>,
    /// Whether a library of OpenMP, or one that follows its settings, is loaded.
    pub openmp: bool,
}

/// A runtime that was detected from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedRuntime {
    /// The runtime.
    pub kind: RuntimeKind,
    /// Numbers of threads, the decisive one first.
    pub parallelism: Vec<Parallelism>,
}

/// Detects the runtime of a process; `None` if there is no sign of any.
#[must_use]
pub fn detect(outside: &VisibleProperties<'_>) -> Option<DetectedRuntime> {
    let some = |kind, parallelism: Vec<Parallelism>| Some(DetectedRuntime { kind, parallelism });
    if let (Some(workers), true) = (outside.workers, outside.title.starts_with("nginx: master")) {
        return some(
            RuntimeKind::Nginx,
            vec![number("worker_processes", workers, Confidence::Exact, "children")],
        );
    }
    if matches!(outside.program, "node" | "nodejs") {
        let pool = outside.set("UV_THREADPOOL_SIZE").unwrap_or_else(|| {
            number("UV_THREADPOOL_SIZE", NODE_POOL, Confidence::Start, "default")
        });
        return some(RuntimeKind::Node, vec![pool]);
    }
    let counted = |names: &[&str]| -> u32 {
        let has = |comm: &str| names.iter().any(|name| comm.starts_with(name));
        outside.threads.iter().filter(|(comm, _)| has(comm)).map(|(_, n)| n).sum()
    };
    let bound = |name: &str, n: u32| (n > 0).then(|| number(name, n, Confidence::Bound, "threads"));
    if counted(&[".NET "]) > 0 {
        let set = ["DOTNET_PROCESSOR_COUNT", "COMPlus_PROCESSOR_COUNT"]
            .iter()
            .find_map(|name| outside.set(name));
        // Server garbage collection has one thread per processor.
        let heaps = bound("Server GC threads", counted(&[".NET Server GC"]));
        let pool = bound(DOTNET_POOL, counted(&[".NET TP Worker", ".NET ThreadPool"]));
        return some(RuntimeKind::DotNet, [set, heaps, pool].into_iter().flatten().collect());
    }
    // A comm has at most 15 bytes. The second name is that of older versions. Blocking threads have the same name.
    let workers = bound("worker threads", counted(&["tokio-rt-worker", "tokio-runtime-w"]));
    if workers.is_some() {
        let set = outside.set("TOKIO_WORKER_THREADS");
        return some(RuntimeKind::Tokio, [set, workers].into_iter().flatten().collect());
    }
    let unnamed = outside.threads.get(outside.comm).copied().unwrap_or(0);
    if outside.openmp {
        let set = OPENMP.iter().find_map(|name| outside.set(name));
        let running = bound("threads", unnamed).filter(|_| unnamed > 1);
        let mut all: Vec<Parallelism> = [set, running].into_iter().flatten().collect();
        // OpenBLAS starts at most one thread per CPU; other libraries start none until there is work.
        if let [set, running] = all.as_slice()
            && running.value < set.value
        {
            all.swap(0, 1);
        }
        return some(RuntimeKind::OpenMp, all).filter(|found| !found.parallelism.is_empty());
    }
    // Rayon's threads have no names of their own, and child processes inherit the variable: it only counts for a
    // process with at least that many unnamed threads.
    let rayon = outside.set("RAYON_NUM_THREADS").filter(|set| unnamed >= set.value);
    rayon.and_then(|set| some(RuntimeKind::Rayon, vec![set]))
}

impl VisibleProperties<'_> {
    /// The number in a variable; for a list, its first number.
    fn set(&self, name: &str) -> Option<Parallelism> {
        let text = self.environment.get(name)?.split(',').next()?.trim();
        let value = text.parse().ok().filter(|value| (1..=MAX_THREADS).contains(value))?;
        Some(number(name, value, Confidence::Start, "environment"))
    }
}

fn number(name: &str, value: u32, confidence: Confidence, source: &str) -> Parallelism {
    Parallelism { name: name.into(), value, confidence, source: source.into() }
}

/// Parses those of [`VARIABLES`] from `/proc/PID/environ`. If a name occurs several times, the first value counts, as
/// in `getenv`.
#[must_use]
pub fn environment(text: &[u8]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in text.split(|&byte| byte == 0) {
        let Some(equals) = entry.iter().position(|&byte| byte == b'=') else { continue };
        let name = VARIABLES.into_iter().find(|name| name.as_bytes() == &entry[..equals]);
        if let Some(name) = name {
            let value = crate::text::name::decode(&entry[equals + 1..]);
            found.entry(name.to_owned()).or_insert(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outside<'a>(
        program: &'a str,
        environ: &[u8],
        threads: &[(&str, u32)],
    ) -> VisibleProperties<'a> {
        VisibleProperties {
            program,
            comm: program,
            environment: environment(environ),
            threads: threads.iter().map(|&(comm, n)| (comm.to_owned(), n)).collect(),
            ..VisibleProperties::default()
        }
    }

    fn shown(outside: &VisibleProperties<'_>) -> String {
        let Some(found) = detect(outside) else { return "nothing".into() };
        let numbers = found
            .parallelism
            .iter()
            .map(|n| format!("{} {} {} ({})", n.name, n.value, n.confidence.code(), n.source));
        format!("{}: {}", found.kind.code(), numbers.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn each_runtime_is_known_by_its_signs() {
        let tokio = [("server", 1), ("tokio-rt-worker", 5)];
        let net = [("app", 3), (".NET Server GC", 4), (".NET TP Worker", 9)];
        let blas = VisibleProperties {
            openmp: true,
            ..outside("python3", b"A=1\0OMP_NUM_THREADS=8,2\0", &[("python3", 8), ("io", 3)])
        };
        let capped = VisibleProperties {
            openmp: true,
            ..outside("python3", b"OPENBLAS_NUM_THREADS=8\0", &[("python3", 2)])
        };
        let unset = VisibleProperties {
            openmp: true,
            ..outside("solver", b"", &[("solver", 2), ("io", 7)])
        };
        let unused = VisibleProperties {
            openmp: true,
            ..outside("editor", b"", &[("editor", 1), ("io", 7)])
        };
        let master = VisibleProperties {
            title: "nginx: master process nginx",
            workers: Some(2),
            ..VisibleProperties::default()
        };
        for (outside, expected) in [
            (outside("node", b"", &[]), "node: UV_THREADPOOL_SIZE 4 start (default)"),
            (
                outside("node", b"UV_THREADPOOL_SIZE=16\0", &[]),
                "node: UV_THREADPOOL_SIZE 16 start (environment)",
            ),
            (outside("server", b"", &tokio), "tokio: worker threads 5 bound (threads)"),
            (
                outside("server", b"TOKIO_WORKER_THREADS=2\0", &tokio),
                "tokio: TOKIO_WORKER_THREADS 2 start (environment), worker threads 5 bound (threads)",
            ),
            (
                outside("app", b"", &net),
                "dotnet: Server GC threads 4 bound (threads), pool threads 9 bound (threads)",
            ),
            (blas, "openmp: OMP_NUM_THREADS 8 start (environment), threads 8 bound (threads)"),
            (
                capped,
                "openmp: threads 2 bound (threads), OPENBLAS_NUM_THREADS 8 start (environment)",
            ),
            (unset, "openmp: threads 2 bound (threads)"),
            (unused, "nothing"),
            (master, "nginx: worker_processes 2 exact (children)"),
            (
                outside("solver", b"RAYON_NUM_THREADS=4\0", &[("solver", 5)]),
                "rayon: RAYON_NUM_THREADS 4 start (environment)",
            ),
            (outside("sh", b"RAYON_NUM_THREADS=4\0OMP_NUM_THREADS=8\0", &[("sh", 1)]), "nothing"),
            (outside("db", b"RAYON_NUM_THREADS=4\0", &[("db", 1), ("writer", 9)]), "nothing"),
            (
                outside("node", b"UV_THREADPOOL_SIZE=0\0", &[]),
                "node: UV_THREADPOOL_SIZE 4 start (default)",
            ),
        ] {
            assert_eq!(shown(&outside), expected);
        }
    }

    proptest! {
        #[test]
        fn any_environment_is_read(text in prop::collection::vec(any::<u8>(), 0..400)) {
            let found = environment(&text);
            prop_assert!(found.keys().all(|name| VARIABLES.contains(&name.as_str())));
        }
    }
}
