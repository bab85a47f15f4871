// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments with what is known to be the cause, and with what is not: a process that is as busy, on another CPU.

use crate::common::{root_or_skip, tried};
use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;
use std::process::{Child, Command, Stdio};

/// A process on one CPU, ended when it is dropped.
struct Busy(Child);

impl Busy {
    /// A shell that computes; with a `pause`, for some milliseconds at a time only.
    fn start(cpu: u32, pause: Option<&str>) -> Self {
        let body = match pause {
            None => "while :; do :; done".to_owned(),
            Some(pause) => format!(
                "while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep {pause}; done"
            ),
        };
        let shell = Command::new("taskset")
            .args(["-c", &cpu.to_string(), "sh", "-c", &body])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Self(shell.unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The state of a process, from `/proc/PID/stat`.
fn state(pid: &str) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().chars().next().unwrap()
}

fn prove(arguments: &[&str]) -> Value {
    let usual = ["prove", "--yes", "--json", "-q", "-d", "4", "--block", "1", "--seed", "5"];
    let done = cargo_bin_cmd!("deburr").args(usual).args(arguments).assert().success();
    serde_json::from_slice(&done.get_output().stdout).unwrap()
}

#[test]
fn a_neighbour_is_confirmed_and_one_on_another_cpu_is_refuted() {
    let name = "a_neighbour_is_confirmed_and_one_on_another_cpu_is_refuted";
    if !root_or_skip("kernel", name) {
        return;
    }
    tried("kernel", name, || {
        let victim = Busy::start(0, Some("0.01"));
        let neighbour = Busy::start(0, None);
        let suspect = Busy::start(1, None);
        let of = |busy: &Busy| {
            let set = format!("pause:{}=90%", busy.pid());
            prove(&["--set", &set, "--measure", "queued", "--least", "50", "-p", &victim.pid()])
        };
        let is = of(&neighbour);
        assert_eq!(is["result"]["outcome"], "confirmed", "{is:#}");
        let is_not = of(&suspect);
        assert_eq!(is_not["result"]["outcome"], "refuted", "{is_not:#}");
        for busy in [&neighbour, &suspect] {
            assert_ne!(state(&busy.pid()), 'T', "what was paused goes on");
        }
        // The document says what was done, and each block has its number.
        let blocks = is["blocks"].as_array().unwrap();
        assert!(blocks.len() >= 8 && blocks.len() % 4 == 0, "{is:#}");
        assert!(blocks.iter().all(|block| block["value"].is_number()), "{is:#}");
        assert_eq!(is["plan"]["changes"][0]["from"], "running", "{is:#}");
    });
}

#[test]
fn an_experiment_that_harms_the_host_is_called_off_in_the_middle_of_a_block() {
    let name = "an_experiment_that_harms_the_host_is_called_off_in_the_middle_of_a_block";
    if !root_or_skip("kernel", name) {
        return;
    }
    tried("kernel", name, || {
        let victim = Busy::start(0, Some("0.01"));
        // What is changed starts 40 threads; without the change it sleeps.
        let shell = "while :; do cut -d' ' -f19 /proc/$$/stat | grep -qx 5 && \
             [ ! -e $0 ] && touch $0 && for i in $(seq 40); do timeout 30 sh -c 'while :; do :; done' & done; sleep 0.1; done";
        let scratch = tempfile::tempdir().unwrap();
        let mut many = Command::new("sh");
        many.args(["-c", shell]).arg(scratch.path().join("started"));
        let many =
            Busy(std::os::unix::process::CommandExt::process_group(&mut many, 0).spawn().unwrap());
        let set = format!("nice:{}=5", many.pid());
        let mut command = cargo_bin_cmd!("deburr");
        command.args(["prove", "--yes", "--json", "-q", "-d", "4", "--block", "20", "--seed", "5"]);
        command.args(["--set", &set, "--measure", "queued", "-p", &victim.pid()]);
        let begin = std::time::Instant::now();
        let done = command.assert();
        let group = rustix::process::Pid::from_child(&many.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let done = done.code(1);
        let outcome: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
        let sentence = outcome["result"]["sentence"].as_str().unwrap();
        assert!(sentence.starts_with("the change harms the host: "), "{outcome:#}");
        let blocks = outcome["blocks"].as_array().unwrap();
        assert!(blocks.iter().all(|block| block["arm"] == "before"), "{outcome:#}");
        assert!(begin.elapsed().as_secs() < 4 + 20 * (blocks.len() as u64 + 1), "{outcome:#}");
    });
}

#[test]
fn a_change_that_somebody_undoes_in_the_middle_of_a_block_ends_the_experiment() {
    let name = "a_change_that_somebody_undoes_in_the_middle_of_a_block_ends_the_experiment";
    if !root_or_skip("kernel", name) {
        return;
    }
    tried("kernel", name, || {
        let victim = Busy::start(0, Some("0.01"));
        let neighbour = Busy::start(0, None);
        let pid = neighbour.pid();
        let nice = |of: &str| {
            let stat = std::fs::read_to_string(format!("/proc/{of}/stat")).unwrap();
            stat.rsplit(") ").next().unwrap().split(' ').nth(16).unwrap().to_owned()
        };
        let set = format!("nice:{pid}=5");
        let mut command = Command::new(env!("CARGO_BIN_EXE_deburr"));
        command.args(["prove", "--yes", "--json", "-q", "-d", "2", "--block", "4", "--seed", "5"]);
        command.args(["--set", &set, "--measure", "queued", "-p", &victim.pid()]);
        let experiment = command.stdout(Stdio::piped()).spawn().unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while nice(&pid) != "5" && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let neighbour_pid = rustix::process::Pid::from_child(&neighbour.0);
        rustix::process::setpriority_process(Some(neighbour_pid), 3).unwrap();
        let done = experiment.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(1));
        let outcome: Value = serde_json::from_slice(&done.stdout).unwrap();
        let sentence = outcome["result"]["sentence"].as_str().unwrap();
        assert!(sentence.contains("in the block somebody has set it to 3"), "{outcome:#}");
        let notes = outcome["notes"].as_array().unwrap();
        assert!(notes.iter().any(|it| it.as_str().unwrap().contains("it stays so")), "{outcome:#}");
        assert_eq!(nice(&pid), "3");
    });
}

#[test]
fn what_cannot_be_an_experiment_is_refused_and_changes_nothing() {
    if !root_or_skip("kernel", "what_cannot_be_an_experiment_is_refused_and_changes_nothing") {
        return;
    }
    let victim = Busy::start(0, Some("0.01"));
    let pid = victim.pid();
    let set = format!("nice:{pid}=1");
    let refused = [
        (vec!["SCH009"], "no code of a finding"),
        (vec!["OBS001"], "there is no experiment for OBS001"),
        (vec!["--set", "vm.no_such=1", "--measure", "queued"], "no such setting"),
        (vec!["--set", "vm.swappiness=900", "--measure", "queued"], "0 to 200"),
        (vec!["--set", "vm.swappiness=60", "--measure", "speed"], "`speed` is no measure"),
        (vec!["--set", "vm.swappiness=60", "--measure", "probe"], "--probe"),
        (vec!["--set", "nice:999999999=1", "--measure", "queued"], "999999999"),
        (vec!["--follow", "vm.swappiness", "--measure", "stall-period"], "is no clock"),
        (vec!["--set", &set], "--measure"),
    ];
    for (arguments, message) in refused {
        let mut command = cargo_bin_cmd!("deburr");
        let command = command.args(["prove", "--yes", "-d", "1", "-p", &pid]).args(&arguments);
        let done = command.assert().code(2);
        let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
        assert!(said.contains(message), "{arguments:?}: {said}");
    }
    // Without a terminal nobody can agree.
    let arguments = ["prove", "-d", "1", "-p", &pid, "--set", &set, "--measure", "wait:p50"];
    let done = cargo_bin_cmd!("deburr").args(arguments).assert().code(2);
    let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
    assert!(said.contains("--yes"), "{said}");
    // The plan alone changes nothing, and needs nobody.
    let done = cargo_bin_cmd!("deburr").args(arguments).arg("--dry-run").assert().success();
    let plan = String::from_utf8_lossy(&done.get_output().stdout).into_owned();
    for part in ["hypothesis", "change", "risk", "if true", "if not", "undone"] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
}
