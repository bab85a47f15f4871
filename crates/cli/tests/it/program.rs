// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the binary as users do, without root.

use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// User and group id of `nobody` on Debian and on Fedora.
const NOBODY: u32 = 65534;

/// The path of the binary, as an open file that children inherit. Other users may have no access to the build
/// directory, and no test could remove a copy of the binary, because a test program has no code that runs at its end.
fn binary() -> &'static PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let file = std::fs::File::open(env!("CARGO_BIN_EXE_deburr")).expect("it was built");
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("the file is open");
        PathBuf::from(format!("/proc/self/fd/{}", file.into_raw_fd()))
    })
}

/// A command that runs `deburr` with these arguments, never as root.
pub(crate) fn deburr(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    unprivileged(&mut command).args(arguments).stdin(Stdio::null()).env_remove("NO_COLOR");
    command
}

/// `deburr` that ignores no signal that its caller ignores: under `nohup`, for instance, SIGHUP ends no session.
pub(crate) fn deburr_with_default_signals(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    unprivileged(&mut command).arg("--default-signal").arg(binary()).args(arguments);
    command.stdin(Stdio::null()).env_remove("NO_COLOR");
    command
}

/// A shell that runs `set_up` and then becomes `deburr` with these arguments.
pub(crate) fn deburr_after(set_up: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{set_up} && exec \"$0\" \"$@\"");
    unprivileged(&mut command).args(["-c", &script]).arg(binary()).args(arguments);
    command
}

/// `deburr` in namespaces of its own, after that command of the shell there, and a directory to keep until it has ended;
/// `None` if this user may not have them.
pub(crate) fn unshared(
    options: &[&str],
    set_up: &str,
    arguments: &[&str],
) -> Option<(Command, tempfile::TempDir)> {
    let start = |script: &str| {
        let mut command = Command::new("unshare");
        unprivileged(&mut command).arg("--map-root-user").args(options).args(["sh", "-c", script]);
        command
    };
    if !start(set_up).output().is_ok_and(|output| output.status.success()) {
        return None;
    }
    // Its place must not depend on what the set-up does to `/proc`.
    let place = scratch();
    let copy = place.path().join("deburr");
    std::fs::copy(env!("CARGO_BIN_EXE_deburr"), &copy).unwrap();
    // Some namespaces are only those of the children.
    let mut command = start(&format!("{set_up} && \"$0\" \"$@\""));
    command.arg(&copy).args(arguments).current_dir(place.path());
    Some((command, place))
}

fn unprivileged(command: &mut Command) -> &mut Command {
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// A directory that `deburr` can write to.
pub(crate) fn scratch() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let everybody = PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), everybody).expect("it is ours");
    directory
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("output is UTF-8")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("messages are UTF-8")
}

/// Runs `deburr` and expects this exit status.
pub(crate) fn run(arguments: &[&str], status: i32) -> Output {
    expect(&mut deburr(arguments), status)
}

/// Like [`run`], for a command that is already put together.
pub(crate) fn expect(command: &mut Command, status: i32) -> Output {
    let output = command.output().expect("it can be executed");
    let (out, err) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(status), "{command:?}\n{out}\n{err}");
    output
}

/// Runs `deburr` with arguments that it must refuse before it begins, with status 2 and nothing on stdout. Returns the
/// message.
pub(crate) fn refuse(arguments: &[&str]) -> String {
    let begin = Instant::now();
    let output = run(arguments, 2);
    assert!(begin.elapsed() < Duration::from_secs(600), "{arguments:?} was observing");
    assert_eq!(stdout(&output), "", "{arguments:?}");
    stderr(&output)
}

/// Waits until `is_so` returns true, for a minute at most.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not so after a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that is killed at the end of the test.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("it can be executed"))
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("it is there");
    }

    /// Waits for the process to end, and returns its exit status and output.
    pub(crate) fn wait(mut self) -> Output {
        let placeholder = Command::new("true").spawn().expect("`true` is there");
        std::mem::replace(&mut self.0, placeholder)
            .wait_with_output()
            .expect("it can be waited for")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
