// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment changes is as it was after its end, whatever ends it: every setting is read before and after.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::lab::{DEBURR, alone, cgroup_roots, until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Number of kills in each run of the tests; `DEBURR_KILLS` sets another.
const KILLS: u32 = 40;

/// A process, a cgroup, and what an experiment changes of them and of the host.
struct Subject {
    child: Child,
    cgroup: Option<PathBuf>,
    before: Vec<(PathBuf, String)>,
    threads: String,
}

const SYSCTLS: [&str; 2] =
    ["/proc/sys/vm/dirty_writeback_centisecs", "/proc/sys/vm/dirty_expire_centisecs"];

impl Subject {
    fn start() -> Self {
        // It has a thread for each CPU, and one that waits for connections.
        let child = Command::new(DEBURR)
            .args(["lab-worker", "fanout", "--port=0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
        until("it has threads", || tasks() >= 2);
        let name = format!("deburr-prove-test-{pid}");
        let made = cgroup_roots().into_iter().map(|root| root.join(&name));
        let cgroup = made
            .into_iter()
            .find(|dir| std::fs::create_dir(dir).is_ok() && quota_file(dir).is_some());
        let mut files: Vec<PathBuf> = SYSCTLS.map(PathBuf::from).into();
        files.extend(cgroup.iter().filter_map(|dir| quota_file(dir)));
        let before = files.into_iter().map(|file| {
            let text = std::fs::read_to_string(&file).unwrap();
            (file, text)
        });
        let before = before.collect();
        let mut subject = Self { child, cgroup, before, threads: String::new() };
        subject.threads = subject.now();
        subject
    }

    fn knobs(&self) -> Vec<String> {
        let pid = self.child.id();
        let mut knobs = vec![
            "vm.dirty_writeback_centisecs=1234".into(),
            "vm.dirty_expire_centisecs=4321".into(),
            format!("nice:{pid}=7"),
            format!("affinity:{pid}=0"),
            format!("policy:{pid}=batch"),
            format!("pause:{pid}=10%"),
        ];
        if let Some(file) = self.cgroup.as_deref().and_then(quota_file) {
            let name = file.file_name().unwrap().to_str().unwrap();
            let value = if name == "cpu.max" { "50000 100000" } else { "50000" };
            knobs.push(format!("cgroup:/deburr-prove-test-{pid}:{name}={value}"));
        }
        knobs
    }

    /// Nice value, policy, CPUs and state of its threads, each combination once.
    fn now(&self) -> String {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let each = tasks.flatten().filter_map(|task| {
            // A thread may end at any moment.
            let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
            let cpus = status.lines().find(|line| line.starts_with("Cpus_allowed:"))?;
            let stopped = fields[0] == "T";
            Some(format!("nice {} policy {} {cpus} stopped {stopped}\n", fields[16], fields[38]))
        });
        each.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn is_as_before(&self) -> bool {
        let same =
            |(file, text): &(PathBuf, String)| &std::fs::read_to_string(file).unwrap() == text;
        self.before.iter().all(same) && self.now() == self.threads
    }

    fn differences(&self) -> String {
        let files = self.before.iter().map(|(file, text)| {
            format!("{}: {text:?} {:?}\n", file.display(), std::fs::read_to_string(file))
        });
        format!("{}{}\n{}", files.collect::<String>(), self.threads, self.now())
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for (file, text) in &self.before {
            let _ = std::fs::write(file, text);
        }
        if let Some(cgroup) = &self.cgroup {
            let _ = std::fs::remove_dir(cgroup);
        }
    }
}

/// The file of a cgroup that has its quota.
fn quota_file(directory: &Path) -> Option<PathBuf> {
    let files = ["cpu.max", "cpu.cfs_quota_us"].map(|name| directory.join(name));
    files.into_iter().find(|file| file.exists())
}

/// A process that changes settings and puts them back, in a process group of its own.
struct Runner {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Runner {
    fn start(arguments: &[&str], knobs: &[String]) -> Self {
        let mut child = Command::new(DEBURR)
            .args(["lab-worker", "changes"])
            .args(arguments)
            .args(knobs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// Waits until it says a line that begins so.
    fn until(&mut self, begin: &str) {
        if !self.says(begin) {
            panic!("it ended before `{begin}`: {}", self.errors());
        }
    }

    /// Waits until it says a line that begins so, or ends.
    fn says(&mut self, begin: &str) -> bool {
        let mut line = String::new();
        while !line.starts_with(begin) {
            line.clear();
            if self.said.read_line(&mut line).unwrap() == 0 {
                return false;
            }
        }
        true
    }

    /// Starts one that says such a line, once the janitor of the one before has ended.
    fn start_until(begin: &str, arguments: &[&str], knobs: &[String]) -> Self {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut runner = Self::start(arguments, knobs);
            if runner.says(begin) {
                return runner;
            }
            let errors = runner.errors();
            runner.child.wait().unwrap();
            let is_early = errors.contains("another experiment is under way");
            assert!(is_early && Instant::now() < deadline, "it ended before `{begin}`: {errors}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Lets it end. Returns the rest of what it says, and whether it succeeded.
    fn end(mut self) -> (String, bool) {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.said.read_to_string(&mut text).unwrap();
        text += &self.errors();
        (text, self.child.wait().unwrap().success())
    }
}

/// The journals of experiments that are there now.
fn journals() -> Vec<PathBuf> {
    let files = std::fs::read_dir("/run/deburr").into_iter().flatten().flatten();
    let paths = files.map(|file| file.path());
    paths.filter(|path| path.to_string_lossy().contains("deburr-prove-")).collect()
}

#[test]
fn a_killed_experiment_leaves_every_setting_as_it_was() {
    let _one = alone();
    if !common::root_or_skip("kernel", "a_killed_experiment_leaves_every_setting_as_it_was") {
        return;
    }
    let kills = std::env::var("DEBURR_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let subject = Subject::start();
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let (mut longest, mut changed) = (Duration::ZERO, 0);
    for round in 0..kills {
        let random =
            seed.wrapping_mul(2_654_435_761).wrapping_add(round.wrapping_mul(1_013_904_223));
        let hold = format!("--hold-ms={}", random % 20);
        // From before the first change to some blocks later.
        let mut runner = match random % 8 {
            0 => Runner::start(&[&hold], &subject.knobs()),
            1..5 => Runner::start_until("changed", &[&hold], &subject.knobs()),
            _ => Runner::start_until("restored", &[&hold], &subject.knobs()),
        };
        std::thread::sleep(Duration::from_micros(u64::from(random >> 8) % 60_000));
        changed += u32::from(!subject.is_as_before());
        let begun = Instant::now();
        let pid = Pid::from_child(&runner.child);
        if round % 2 == 0 {
            kill_process(pid, Signal::KILL).unwrap();
        } else {
            kill_process_group(pid, Signal::KILL).unwrap();
        }
        runner.child.wait().unwrap();
        // If a janitor was killed with its runner before it had left its group, nothing was changed.
        let names_changes = |journal: &PathBuf| {
            std::fs::read_to_string(journal).is_ok_and(|text| text.lines().count() > 1)
        };
        until("the journal is gone", || !journals().iter().any(names_changes));
        longest = longest.max(begun.elapsed());
        assert!(subject.is_as_before(), "round {round}:\n{}", subject.differences());
    }
    // A janitor that has nothing to undo may need a moment to end.
    until("what they left keeps nobody out", || Runner::start(&[], &subject.knobs()).end().1);
    assert_eq!(journals(), Vec::<PathBuf>::new());
    eprintln!(
        "{kills} kills, {changed} of them while something was changed; at most {} ms until all was put back",
        longest.as_millis()
    );
    assert!(changed > 0, "no kill came while anything was changed");
}

#[test]
fn an_experiment_that_ends_by_itself_leaves_every_setting_and_a_short_journal() {
    let _one = alone();
    let name = "an_experiment_that_ends_by_itself_leaves_every_setting_and_a_short_journal";
    if !common::root_or_skip("kernel", name) {
        return;
    }
    let subject = Subject::start();
    let mut entries = Vec::new();
    for blocks in [1, 20] {
        let mut runner = Runner::start(&["--hold-ms=1"], &subject.knobs());
        (0..blocks).for_each(|_| runner.until("restored"));
        let (said, ended) = runner.end();
        assert!(ended && !said.contains("left:"), "{said}");
        let count = said.lines().find_map(|line| line.strip_suffix(" entries")).unwrap();
        entries.push(count.parse::<usize>().unwrap());
        assert!(subject.is_as_before(), "{}", subject.differences());
    }
    assert_eq!(entries[0], entries[1], "the journal does not grow with the number of blocks");
}

#[test]
fn what_somebody_else_has_set_meanwhile_stays_and_is_told() {
    let _one = alone();
    if !common::root_or_skip("kernel", "what_somebody_else_has_set_meanwhile_stays_and_is_told") {
        return;
    }
    let subject = Subject::start();
    let file = Path::new(SYSCTLS[0]);
    let stays = |said: &str| {
        let is_so = std::fs::read_to_string(file).unwrap() == "777\n";
        std::fs::write(file, &subject.before[0].1).unwrap();
        assert!(is_so && said.contains("somebody has set it to 777"), "{said}");
        assert!(subject.is_as_before(), "{}", subject.differences());
    };
    // While the host is changed: by the runner at the end of the block, and by the janitor when it is killed.
    let mut runner = Runner::start(&["--hold-ms=60000"], &subject.knobs());
    runner.until("changed");
    std::fs::write(file, "777").unwrap();
    let (said, ended) = runner.end();
    assert!(ended && said.contains("left:"), "{said}");
    stays(&said);
    let mut runner = Runner::start(&["--hold-ms=60000"], &subject.knobs());
    runner.until("changed");
    std::fs::write(file, "777").unwrap();
    runner.child.kill().unwrap();
    stays(&runner.end().0);
    // While it is not changed: it is not changed then.
    let mut runner = Runner::start(&["--hold-ms=300"], &subject.knobs());
    runner.until("restored");
    std::fs::write(file, "777").unwrap();
    let mut said = String::new();
    runner.said.read_to_string(&mut said).unwrap();
    let (errors, ended) = runner.end();
    assert!(!ended, "{said}{errors}");
    stays(&errors);
}

#[test]
fn one_that_hangs_is_ended_and_its_changes_are_put_back() {
    let _one = alone();
    if !common::root_or_skip("kernel", "one_that_hangs_is_ended_and_its_changes_are_put_back") {
        return;
    }
    let subject = Subject::start();
    let mut runner = Runner::start(&["--hold-ms=60000", "--most-ms=3000"], &subject.knobs());
    runner.until("changed");
    kill_process(Pid::from_child(&runner.child), Signal::STOP).unwrap();
    let status = runner.child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    until("the journal is gone", || journals().is_empty());
    assert!(subject.is_as_before(), "{}", subject.differences());
    assert!(runner.errors().contains("did not put back its changes in time"));
}

#[test]
fn a_target_that_ends_and_a_second_experiment_are_told() {
    let _one = alone();
    if !common::root_or_skip("kernel", "a_target_that_ends_and_a_second_experiment_are_told") {
        return;
    }
    let mut subject = Subject::start();
    let knobs = subject.knobs();
    let mut first = Runner::start(&["--hold-ms=500"], &knobs);
    first.until("changed");
    let (said, ended) = Runner::start(&[], &knobs).end();
    assert!(!ended && said.contains("another experiment is under way"), "{said}");
    subject.child.kill().unwrap();
    subject.child.wait().unwrap();
    let mut said = String::new();
    first.said.read_to_string(&mut said).unwrap();
    let (errors, ended) = first.end();
    assert!(!ended && errors.contains("there is no process"), "{errors}");
    for (file, text) in &subject.before {
        assert_eq!(&std::fs::read_to_string(file).unwrap(), text);
    }
    assert_eq!(journals(), Vec::<PathBuf>::new());
}

#[test]
fn what_two_kills_left_keeps_others_out_and_is_put_back_on_request() {
    let _one = alone();
    let name = "what_two_kills_left_keeps_others_out_and_is_put_back_on_request";
    if !common::root_or_skip("kernel", name) {
        return;
    }
    let subject = Subject::start();
    let mut runner = Runner::start(&["--hold-ms=60000"], &subject.knobs());
    runner.until("changed");
    let pid = runner.child.id();
    kill_process(Pid::from_child(&runner.child), Signal::STOP).unwrap();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let janitor: i32 = children.trim().parse().unwrap();
    kill_process(Pid::from_raw(janitor).unwrap(), Signal::KILL).unwrap();
    runner.child.kill().unwrap();
    runner.child.wait().unwrap();
    assert!(!subject.is_as_before());
    let (said, ended) = Runner::start(&[], &subject.knobs()).end();
    assert!(!ended && said.contains("deburr lab clean"), "{said}");
    // Under another kernel than the one that was changed, nothing is written.
    let journal = journals().remove(0);
    let text = std::fs::read_to_string(&journal).unwrap();
    let (boot, rest) = text.split_once('\n').unwrap();
    assert!(boot.contains("\"boot\""), "{boot}");
    let clean = || Command::new(DEBURR).args(["lab", "clean"]).output().unwrap();
    std::fs::write(&journal, format!("{{\"undo\":\"boot\",\"id\":\"another\"}}\n{rest}")).unwrap();
    assert!(clean().status.success() && !subject.is_as_before() && !journal.exists());
    std::fs::write(&journal, &text).unwrap();
    std::fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    assert!(clean().status.success() && subject.is_as_before(), "{}", subject.differences());
}
