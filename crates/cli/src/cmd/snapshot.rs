// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr snapshot`: what this host is and how it is set up.
//!
//! The reading is done by a process of its own. A read that hangs inside of the kernel cannot be ended, and neither can
//! its process; so the one that the user waits for must not be it.

use crate::cli::{Color, FILE_TIMEOUT_MS, Messages, Show, SnapshotArgs};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::snapshot::{self, Limits, Tree};
use anyhow::Context as _;
use deburr_core::snapshot::Snapshot;
use std::fs::{OpenOptions, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time that a process needs to end after its last word, with plenty to spare.
const ENDS_WITHIN_MS: u32 = 200;

/// Runs it.
pub(crate) fn run(args: &SnapshotArgs) -> anyhow::Result<Exit> {
    if args.reader {
        return read(args);
    }
    // Before anything is read.
    open(args)?;
    if let Some(path) = &args.output {
        check(path, args.force)?;
    }
    let document = have_it_read(args)?;
    let taken = Snapshot::parse(document.as_bytes())
        .map_err(|error| Failure::error(Exit::Output, format!("what was read {error}")))?;
    match (&args.output, &args.baseline) {
        (Some(path), _) => write(path, args.force, &document)?,
        (None, Some(_)) => {}
        (None, None) => output::print(document.as_bytes())?,
    }
    if !args.messages.quiet {
        for remark in snapshot::remarks(&taken) {
            output::say(remark);
        }
        if let Some(path) = &args.output {
            let (facts, files, ms) =
                (taken.facts.len(), taken.reading.files, taken.reading.took_ns / 1_000_000);
            output::say(format!("{facts} facts of {files} files in {ms} ms: {}", path.display()));
        }
    }
    let Some(baseline) = &args.baseline else { return Ok(Exit::Done) };
    let show = Show {
        json: false,
        fail_on: args.fail_on,
        verbose: false,
        color: Color::Auto,
        messages: Messages { quiet: args.messages.quiet },
    };
    super::diff::against(baseline, taken, &show)
}

/// This host, as it is now.
pub(super) fn live() -> anyhow::Result<Snapshot> {
    let args = SnapshotArgs {
        output: None,
        force: false,
        redact: false,
        root: PathBuf::from("/"),
        file_timeout_ms: FILE_TIMEOUT_MS,
        reader: false,
        baseline: None,
        fail_on: None,
        messages: Messages { quiet: true },
    };
    let document = have_it_read(&args)?;
    Snapshot::parse(document.as_bytes())
        .map_err(|error| Failure::error(Exit::Output, format!("what was read {error}")))
}

fn open(args: &SnapshotArgs) -> anyhow::Result<Tree> {
    Tree::open(&args.root).map_err(|error| {
        let error = std::io::Error::from(error);
        Failure::bad_input(format!("cannot read the tree at `{}`: {error}", args.root.display()))
    })
}

/// The process that reads: puts the document on stdout and lets go of it, whether its threads can end or not.
fn read(args: &SnapshotArgs) -> anyhow::Result<Exit> {
    let limits = Limits { file: Duration::from_millis(args.file_timeout_ms), ..Limits::default() };
    let document = snapshot::take(open(args)?, limits, args.redact).document()?;
    output::print(document.as_bytes())?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(Exit::Done)
}

/// Starts it, and takes what it says.
fn have_it_read(args: &SnapshotArgs) -> anyhow::Result<String> {
    // The file that this runs, also where its name leads elsewhere by now.
    let program = "/proc/self/exe";
    let mut command = Command::new(program);
    command
        .arg0("deburr")
        .args(["snapshot", "--reader", "--file-timeout-ms"])
        .arg(args.file_timeout_ms.to_string());
    command.arg("--root").arg(&args.root);
    if args.redact {
        command.arg("--redact");
    }
    let mut reader = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the process that reads")?;
    let mut document = String::new();
    if let Some(mut stdout) = reader.stdout.take() {
        stdout.read_to_string(&mut document).context("cannot read what was read")?;
    }
    if document.is_empty() {
        // It said why.
        let status = reader.wait().context("the process that reads is gone")?;
        let exit = if status.code() == Some(2) { Exit::BadInput } else { Exit::Output };
        return Err(Failure::error(exit, format!("nothing was read: {status}")));
    }
    // It ends by itself, unless a read hangs inside of the kernel; then it is left to that.
    for _ in 0..ENDS_WITHIN_MS {
        if !matches!(reader.try_wait(), Ok(None)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(document)
}

/// Refuses a place where nothing can be written, as long as nothing was done.
fn check(path: &Path, force: bool) -> anyhow::Result<()> {
    let shown = path.display();
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => {
            Err(Failure::bad_input(format!("`{shown}` is a directory; name a file in it")))
        }
        Ok(_) if !force => Err(Failure::bad_input(format!(
            "`{shown}` exists; name another file, or replace it with --force"
        ))),
        Ok(_) => Ok(()),
        Err(_) => {
            match path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir())
            {
                Some(parent) => {
                    let parent = parent.display();
                    Err(Failure::bad_input(format!(
                        "cannot create `{shown}`: there is no directory `{parent}`"
                    )))
                }
                None => Ok(()),
            }
        }
    }
}

/// Writes it whole or not at all: beside its place first, so that an old one is not lost to a full disk.
fn write(path: &Path, force: bool, document: &str) -> anyhow::Result<()> {
    let failed = |error: std::io::Error| {
        Failure::error(Exit::Output, format!("cannot write `{}`: {error}", path.display()))
    };
    let special = path.symlink_metadata().is_ok_and(|meta| !meta.is_file());
    if special {
        // A device or a pipe, asked for by --force.
        let mut file = OpenOptions::new().write(true).open(path).map_err(failed)?;
        return file.write_all(document.as_bytes()).map_err(failed);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // As any other new file; by itself it would be readable for its owner only.
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory.unwrap_or(Path::new(".")))
        .map_err(failed)?;
    file.write_all(document.as_bytes()).map_err(failed)?;
    if force {
        file.persist(path).map_err(|error| failed(error.error))?;
        return Ok(());
    }
    match file.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => check(path, false),
        Err(error) => Err(failed(error.error)),
    }
}
