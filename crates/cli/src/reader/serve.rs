// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that reads: answers one question after the other, until nobody asks any more.

use super::protocol::{self, Question, Reply};
use crate::clock;
use crate::collect::{Roots, RuntimeFiles};
use crate::files;
use crate::limits::Programs;
use crate::snapshot::{Tree, take};
use crate::symbols::Names;
use deburr_core::text::name;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Memory that reading may take: several times what the largest programs need.
const MAX_MEMORY_BYTES: u64 = 1 << 30;

/// Arguments of the process that reads.
#[derive(Debug, clap::Args)]
pub(crate) struct ReaderArgs {
    proc: PathBuf,
    sys: PathBuf,
    root: PathBuf,
}

/// Is the process that reads.
pub(crate) fn run(args: &ReaderArgs) -> anyhow::Result<()> {
    rustix::thread::set_name(c"deburr-read")?;
    let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::As, limit(MAX_MEMORY_BYTES))?;
    setrlimit(Resource::Core, limit(0))?;
    // It ends with the process that asks. A signal to both must not end it before that one has had its last answers.
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ignored))?;
    }
    let roots = Roots { proc: args.proc.clone(), sys: args.sys.clone(), root: args.root.clone() };
    serve(&roots, &mut io::stdin().lock(), &mut io::stdout().lock())?;
    Ok(())
}

/// Answers questions until the input ends.
pub(super) fn serve(
    roots: &Roots,
    input: &mut impl Read,
    output: &mut impl Write,
) -> io::Result<()> {
    let mut programs = Programs::default();
    let names = Names::default();
    let containers = RuntimeFiles::below(&roots.root);
    while let Some(question) = protocol::receive::<Question>(input)? {
        match question {
            Question::Runtime { pid, threads } => {
                reply(output, programs.look(roots, pid, threads))?;
            }
            Question::CommandLine { pid, bytes } => {
                reply(output, command_line(roots, pid, bytes).ok())?;
            }
            Question::Functions { pid, addresses } => {
                let found = match pid {
                    Some(pid) => names.of_process(roots, pid, &addresses).ok(),
                    None => Some(names.of_kernel(&addresses)),
                };
                reply(output, found)?;
            }
            Question::Container(mut container) => {
                containers.complete(&mut container);
                reply(output, container)?;
            }
            Question::Snapshot { limits, redact } => {
                let taken = Tree::open(&roots.root).map(|tree| take(tree, limits, redact));
                reply(output, taken.map_err(|error| io::Error::from(error).to_string()))?;
            }
            Question::Files(inquiry) => reply(output, files::answer(&inquiry))?,
        }
    }
    Ok(())
}

fn reply(output: &mut impl Write, answer: impl Serialize) -> io::Result<()> {
    protocol::send(output, &Reply { cpu_ns: clock::cpu_time_ns(), answer })
}

/// The first bytes of a command line, decoded, with spaces between the words.
fn command_line(roots: &Roots, pid: u32, most_bytes: u64) -> io::Result<String> {
    let mut line = Vec::new();
    let file = File::open(roots.proc.join(pid.to_string()).join("cmdline"))?;
    file.take(most_bytes).read_to_end(&mut line)?;
    Ok(name::decode_words(&line))
}
