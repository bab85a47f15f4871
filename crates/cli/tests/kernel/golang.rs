// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Go programs for tests, built by the installed toolchains. Nothing is downloaded here: `scripts/setup --lab` does
//! that.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Go versions to test in addition to the installed one: the function table changed between them.
const OTHERS: [&str; 2] = ["go1.24.13", "go1.27.3"];

/// Program that sleeps. With an argument it first sets GOMAXPROCS to that digit, or, if the argument is `spin`, starts
/// GOMAXPROCS busy goroutines.
const SOURCE: &str = "package main

import (
	\"os\"
	\"runtime\"
	\"time\"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == \"spin\" {
		for i := 0; i < runtime.GOMAXPROCS(0); i++ {
			go func() {
				for {
				}
			}()
		}
	} else if len(os.Args) > 1 {
		runtime.GOMAXPROCS(int(os.Args[1][0] - '0'))
	}
	time.Sleep(time.Hour)
}
";

/// An installed Go toolchain.
pub(crate) struct Toolchain {
    /// Version, such as `go1.26.8`.
    pub(crate) version: String,
    go: PathBuf,
    wanted: Option<&'static str>,
}

impl Toolchain {
    fn find(go: &Path, wanted: Option<&'static str>) -> Option<Self> {
        let mut toolchain = Self { version: String::new(), go: go.to_owned(), wanted };
        let output =
            toolchain.command().arg("version").output().ok().filter(|out| out.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?;
        toolchain.version = text.split_whitespace().nth(2)?.to_owned();
        Some(toolchain)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.go);
        command.env("GOTOOLCHAIN", self.wanted.unwrap_or("local")).env("GOPROXY", "off");
        // A build must not load the host more than the other tests do.
        command.env("GOFLAGS", "-p=1").env("GOENV", "off").env_remove("GOROOT");
        command
    }

    /// Builds the program as `name`; its `go.mod` names version `language` of the language.
    pub(crate) fn build(
        &self,
        name: &str,
        language: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Program {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("main.go"), SOURCE).unwrap();
        fs::write(dir.path().join("go.mod"), format!("module example\n\ngo {language}\n")).unwrap();
        let file = dir.path().join(name);
        let mut build = self.command();
        build.args(["build", "-o"]).arg(&file).args(args).current_dir(dir.path());
        let output = build.env("CGO_ENABLED", "0").envs(env.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Program { file, _dir: dir }
    }

    /// Builds a program of one file.
    pub(crate) fn build_file(&self, source: &Path) -> Program {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program");
        let output = self.command().args(["build", "-o"]).args([&file, source]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Program { file, _dir: dir }
    }

    /// Address of a variable, from a program's symbol table (`go tool nm`).
    pub(crate) fn address_of(&self, program: &Path, variable: &str) -> u64 {
        let output = self.command().args(["tool", "nm"]).arg(program).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|fields| fields.last() == Some(&variable)).expect("a symbol");
        u64::from_str_radix(line[0], 16).unwrap()
    }
}

/// A built program, deleted on drop.
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    _dir: tempfile::TempDir,
}

/// A child process, killed on drop.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a command without input, and discards its standard output.
pub(crate) fn start(command: &mut Command) -> Running {
    Running(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

/// The installed toolchains, the default one first; `Err` = why there is none.
pub(crate) fn toolchains() -> Result<Vec<Toolchain>, String> {
    let places = ["go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go"].map(Path::new);
    let Some(first) = places.into_iter().find_map(|go| Toolchain::find(go, None)) else {
        return Err("no Go is installed (`scripts/setup --lab` does it)".into());
    };
    let go = first.go.clone();
    let others = OTHERS.into_iter().filter_map(|version| Toolchain::find(&go, Some(version)));
    let mut all: Vec<Toolchain> = others.filter(|other| other.version != first.version).collect();
    all.insert(0, first);
    Ok(all)
}
