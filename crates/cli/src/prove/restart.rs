// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command of which an experiment changes the environment or an argument: it is started anew for each block, with the
//! setting or without it, and ended after it. A [`keeper`] ends it should this process be killed.

use super::probe;
use super::runner;
use crate::failure::{Exit, Failure};
use crate::host::cgroup;
use crate::host::descendants::below;
use crate::host::guard::Guard;
use crate::host::keeper::{ENDED, READY};
use crate::host::task::Process;
use crate::host::undo::Undo;
use crate::signals::Signals;
use crate::tail::Tail;
use anyhow::{Context as _, Result, bail};
use deburr_core::prove::knob::{Kind, Knob, UNSET};
use deburr_core::prove::outcome::Starts;
use deburr_core::recording::TargetSpec;
use deburr_core::text::{name, ticked};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _, pipe};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time until the command of `--probe` succeeds for the first time.
pub(crate) const LONGEST_START: Duration = Duration::from_secs(30);
/// Most bytes of an environment that are looked at.
const MAX_ENVIRONMENT_BYTES: u64 = 1 << 20;

/// The command of an experiment. Dropping it ends the command.
#[derive(Debug)]
pub(crate) struct Restarted {
    // Dropped in this order: the command ends, and then the journal is removed.
    run: Option<Run>,
    guard: Guard,
    words: Vec<OsString>,
    cgroup: Option<String>,
    directories: Vec<PathBuf>,
    /// The shell command that succeeds once the command is ready, if any.
    probe: Option<String>,
    program: PathBuf,
}

/// One run of the command.
#[derive(Debug)]
struct Run {
    keeper: Child,
    /// The keeper ends the command when this is closed.
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    output: Tail,
    leader: u32,
    /// What was changed for it.
    knobs: Vec<Knob>,
}

/// The settings of a command, and those of the host.
pub(crate) fn divided(knobs: &[Knob]) -> (Vec<Knob>, Vec<Knob>) {
    knobs.iter().cloned().partition(|knob| knob.lever().kind.is_of_command())
}

impl Restarted {
    /// Prepares for a command that is started in that cgroup, or in that of this process.
    ///
    /// # Errors
    /// If there is no such cgroup, or no journal can be kept.
    pub(crate) fn new(
        words: &[OsString],
        cgroup: Option<&str>,
        probe: Option<&str>,
    ) -> Result<Self> {
        let directories = match cgroup {
            Some(path) => cgroup::directories(path)?,
            None => vec![],
        };
        if let Some(path) = cgroup.filter(|_| directories.is_empty()) {
            return Err(Failure::bad_input(format!(
                "there is no cgroup {} in which the command could be started: `--cgroup` takes a path such as \
                 `/system.slice/web.service`, from the root of the tree",
                ticked(path)
            )));
        }
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let guard = Guard::new(&program, "command").map_err(|error| {
            Failure::error(Exit::Missing, format!("nothing was started: {error:#}"))
        })?;
        Ok(Self {
            run: None,
            guard,
            words: words.to_vec(),
            cgroup: cgroup.map(str::to_owned),
            directories,
            probe: probe.map(str::to_owned),
            program,
        })
    }

    /// What is started, for the plan.
    pub(crate) fn starts(&self) -> Starts {
        let command = self.words.iter().map(|word| name::decode(word.as_bytes())).collect();
        Starts { command, cgroup: self.cgroup.clone() }
    }

    /// What a setting of it is as it was given, in words.
    ///
    /// # Errors
    /// If the command can have no such argument.
    pub(crate) fn present(&self, knob: &Knob) -> Result<String> {
        let now = match knob.lever().kind {
            Kind::Arg => {
                let number = position(knob)?;
                // One more than there are adds one.
                if number > self.words.len() {
                    let has = self.words.len() - 1;
                    return Err(Failure::bad_input(format!(
                        "`{knob}`: the command has {has} arguments, so the last that it can get is number {}",
                        self.words.len()
                    )));
                }
                self.words.get(number).cloned()
            }
            _ => std::env::var_os(knob.subject()),
        };
        Ok(now.map_or_else(|| UNSET.to_owned(), |now| name::decode(now.as_bytes())))
    }

    /// Starts it with these settings, and waits until it can be measured: until the probe succeeds, and then for so long.
    /// Returns it as what is to be observed; `None` if a signal came.
    ///
    /// # Errors
    /// If it cannot be started, or has ended by then.
    pub(crate) fn start(
        &mut self,
        knobs: &[Knob],
        warmup: Duration,
        signals: &Signals,
    ) -> Result<Option<TargetSpec>> {
        self.end()?;
        let words = changed(&self.words, knobs)?;
        let run = self.begin(&words, knobs)?;
        let leader = run.leader;
        self.run = Some(run);
        if let Some(probe) = self.probe.clone() {
            let deadline = Instant::now() + LONGEST_START;
            while !probe::succeeds(&probe) {
                self.check("before the command of `--probe` had succeeded")?;
                if signals.pending().is_some() {
                    return Ok(None);
                }
                if Instant::now() > deadline {
                    let output = self.run.as_ref().map(|run| run.output.words());
                    return Err(Failure::bad_input(format!(
                        "{} runs for {} s, and the command of `--probe` has not succeeded yet{}",
                        self.name(),
                        LONGEST_START.as_secs(),
                        output.unwrap_or_default()
                    )));
                }
                runner::settle(Duration::from_millis(100), signals);
            }
        }
        let waited = runner::settle(warmup, signals);
        self.check("before it could be measured")?;
        let command = name::decode(words.join(OsStr::new(" ")).as_bytes());
        Ok(waited.then_some(TargetSpec::Command { command, pid: leader }))
    }

    fn begin(&mut self, words: &[OsString], knobs: &[Knob]) -> Result<Run> {
        let (output, writer) = pipe().context("cannot keep the command's output")?;
        let mut command = Command::new(&self.program);
        command.args(["lab-worker", "keeper"]);
        for dir in &self.directories {
            command.arg("--within").arg(dir);
        }
        command.arg("--").args(words);
        for knob in knobs.iter().filter(|knob| knob.lever().kind == Kind::Env) {
            match knob.value() {
                UNSET => command.env_remove(knob.subject()),
                value => command.env(knob.subject(), value),
            };
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer);
        let mut keeper = command.spawn().context("cannot start a process")?;
        // The other end of the pipe must not stay open here.
        drop(command);
        let mut input = keeper.stdin.take().context("the keeper has no input")?;
        let mut lines = BufReader::new(keeper.stdout.take().context("the keeper has no output")?);
        let output = Tail::read(output)?;
        if line(&mut lines) != READY {
            bail!("cannot keep a command{}", output.words());
        }
        let process = Process::of(i32::try_from(keeper.id())?).context("the keeper is lost")?;
        self.guard.will_undo(&Undo::Kept { keeper: process })?;
        input.write_all(b"\n").context("the keeper has ended early")?;
        let said = line(&mut lines);
        let leader = said.parse();
        let leader = leader.map_err(|_| {
            Failure::bad_input(format!("cannot start {}{}", self.name(), output.words()))
        })?;
        Ok(Run { keeper, input: Some(input), lines, output, leader, knobs: knobs.to_vec() })
    }

    /// An error if it has ended, or does not have what was changed.
    ///
    /// # Errors
    /// That, and what it wrote last.
    pub(crate) fn check(&mut self, when: &str) -> Result<()> {
        let name = self.name();
        let Some(run) = &mut self.run else { return Ok(()) };
        if run.keeper.try_wait()?.is_some() {
            let status = line(&mut run.lines);
            let status = status.strip_prefix(ENDED).unwrap_or("it was killed").to_owned();
            let output = run.output.words();
            self.run = None;
            let stay = match status == "exit status 0" {
                true => ", but must stay in the foreground",
                false => "",
            };
            return Err(Failure::bad_input(format!(
                "{name} ended ({status}) {when}{stay}{output}"
            )));
        }
        let pids = below(i32::try_from(run.leader)?);
        for pid in pids.into_iter().chain([i32::try_from(run.leader)?]) {
            for knob in run.knobs.iter().filter(|knob| knob.lever().kind == Kind::Env) {
                if let Some(other) = other_value(pid, knob) {
                    return Err(Failure::bad_input(format!(
                        "{name} was started with `{knob}`, and its process {pid} has `{}={other}` in its environment: \
                         give a command that does not set it itself",
                        knob.subject()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Ends it, with all that it has started.
    ///
    /// # Errors
    /// If something of it still runs.
    pub(crate) fn end(&mut self) -> Result<()> {
        let Some(mut run) = self.run.take() else { return Ok(()) };
        drop(run.input.take());
        let status = run.keeper.wait().context("the keeper is lost")?;
        if status.success() {
            return Ok(());
        }
        bail!("{} could not be ended{}", self.name(), run.output.words())
    }

    /// Ends it, and removes the journal.
    ///
    /// # Errors
    /// If something of it still runs.
    pub(crate) fn finish(mut self) -> Result<()> {
        let ended = self.end();
        self.guard.finish()?;
        ended
    }

    fn name(&self) -> String {
        ticked(&self.words.first().map_or(String::new(), |word| name::decode(word.as_bytes())))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.keeper.wait();
    }
}

/// The next line of a keeper, without its end; empty if there is none.
fn line(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    let _ = lines.read_line(&mut line);
    line.trim_end().to_owned()
}

/// The number of the argument that a setting is about.
fn position(knob: &Knob) -> Result<usize> {
    knob.subject().parse().context("the number of an argument")
}

/// The words of a command with the arguments that are changed.
fn changed(words: &[OsString], knobs: &[Knob]) -> Result<Vec<OsString>> {
    let mut all: Vec<Option<OsString>> = words.iter().cloned().map(Some).collect();
    for knob in knobs.iter().filter(|knob| knob.lever().kind == Kind::Arg) {
        let number = position(knob)?;
        all.resize(all.len().max(number + 1), None);
        all[number] = (knob.value() != UNSET).then(|| knob.value().into());
    }
    Ok(all.into_iter().flatten().collect())
}

/// The value of a variable in the environment of a process, if it is another than it was given. A process that has written
/// over its environment has none.
fn other_value(pid: i32, knob: &Knob) -> Option<String> {
    let mut text = Vec::new();
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(MAX_ENVIRONMENT_BYTES).read_to_end(&mut text).ok()?;
    let begin = [knob.subject().as_bytes(), b"="].concat();
    let value = text.split(|&byte| byte == 0).find_map(|it| it.strip_prefix(&begin[..]))?;
    (value != knob.value().as_bytes()).then(|| name::decode(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(texts: &[&str]) -> Vec<Knob> {
        texts.iter().map(|text| Knob::parse(text).unwrap()).collect()
    }

    #[test]
    fn arguments_are_replaced_added_and_taken_away() {
        let words = ["serve", "--threads=96", "x"].map(OsString::from);
        let with = |texts: &[&str]| changed(&words, &knobs(texts)).unwrap().join(OsStr::new(" "));
        assert_eq!(with(&["arg:1=--threads=2"]), "serve --threads=2 x");
        assert_eq!(with(&["arg:1=unset", "env:A=1"]), "serve x");
        assert_eq!(with(&["arg:3=y z"]), "serve --threads=96 x y z");
        assert_eq!(with(&[]), "serve --threads=96 x");
    }

    #[test]
    fn a_variable_that_the_command_sets_itself_is_seen() {
        let mut child = Command::new("sleep").arg("600").env("DEBURR_TEST", "a=b").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // Until it has executed the program, it has this process's environment.
        let other = |text: &str| other_value(pid, &knobs(&[text])[0]);
        let deadline = Instant::now() + Duration::from_secs(30);
        while other("env:DEBURR_TEST=1").is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(other("env:DEBURR_TEST=1").as_deref(), Some("a=b"));
        assert_eq!(other("env:DEBURR_TEST=unset").as_deref(), Some("a=b"));
        assert_eq!(other("env:DEBURR_TEST=a=b"), None);
        assert_eq!(other("env:DEBURR_OTHER=1"), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn settings_of_the_command_and_of_the_host_are_told_apart() {
        let (of_command, of_host) = divided(&knobs(&["vm.swappiness=1", "env:A=2", "arg:1=3"]));
        assert_eq!((of_command.len(), of_host.len()), (2, 1));
    }
}
