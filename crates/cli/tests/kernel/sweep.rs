// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr sweep` with small services: its figures have the right shape, errors name what went wrong, and no process,
//! cgroup or directory is left behind.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const DEBURR: &str = env!("CARGO_BIN_EXE_deburr");
/// Environment variable: the port on which this test program is to serve.
const SERVE: &str = "DEBURR_TEST_SERVE";
/// Environment variable: how that service misbehaves (`late`, `dead`, `silent`, `chatty`, `heavy`, `no`).
const MOOD: &str = "DEBURR_TEST_MOOD";

/// A TCP port of 127.0.0.1 that was free just now.
pub(crate) fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn sweep(arguments: &[&str], command: &[&str]) -> Command {
    let mut sweep = Command::new(DEBURR);
    sweep.args(["sweep", "--json", "-q"]).args(arguments).arg("--").args(command);
    sweep
}

pub(crate) fn document(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn message(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Whether a cgroup or a directory of the sweep with this process id is left.
fn left(pid: u32) -> bool {
    let name = format!("deburr-sweep-{pid}-");
    let trees = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
    let more = ["/sys/fs/cgroup".into(), std::env::temp_dir(), "/run/deburr".into()];
    let dirs = trees.map(|tree| tree.path()).chain(more);
    let mut entries = dirs.flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
    entries.any(|entry| entry.file_name().to_string_lossy().starts_with(&name))
}

/// Not a test itself: the service that the other tests start, with a thread for each connection. Passes at once without
/// [`SERVE`].
#[test]
fn be_a_service_if_told() {
    let Ok(port) = std::env::var(SERVE) else { return };
    let mood = std::env::var(MOOD).unwrap_or_default();
    if mood == "late" {
        thread::sleep(Duration::from_secs(3600));
    }
    if mood == "dead" {
        println!("cannot find my configuration");
        std::process::exit(3);
    }
    let listener = TcpListener::bind(("127.0.0.1", port.parse().unwrap())).unwrap();
    for mut stream in listener.incoming().flatten() {
        let mood = mood.clone();
        thread::spawn(move || {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while let Some(Ok(line)) = lines.next() {
                if !line.is_empty() || mood == "silent" {
                    continue;
                }
                if mood == "chatty" {
                    println!("{}", "talk ".repeat(1 << 14));
                }
                // A quarter of a millisecond of CPU time, or ten times as much.
                let rounds = if mood == "heavy" { 10 } else { 1 };
                let until = cpu_ns() + rounds * 250_000;
                while cpu_ns() < until {}
                let status = if mood == "no" { "500 No" } else { "200 OK" };
                let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
            }
        });
    }
}

fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Command line that makes this test program the service.
fn service() -> Vec<String> {
    let program = std::env::current_exe().unwrap().display().to_string();
    [&program, "--exact", "sweep::be_a_service_if_told", "--nocapture"].map(str::to_owned).to_vec()
}

fn serve(port: u16, arguments: &[&str]) -> Command {
    let url = format!("http://127.0.0.1:{port}/work");
    let words = service();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let mut command = sweep(&[&["--url", &url], arguments].concat(), &words);
    command.env(SERVE, port.to_string()).env_remove(MOOD);
    command
}

#[test]
fn a_service_that_needs_more_than_its_limit_bends_and_is_throttled() {
    common::tried(
        "kernel",
        "a_service_that_needs_more_than_its_limit_bends_and_is_throttled",
        try_a_service_that_needs_more_than_its_limit_bends_and_is_throttled,
    );
}

fn try_a_service_that_needs_more_than_its_limit_bends_and_is_throttled() {
    if !common::root_or_skip("kernel", "a_service_that_needs_more_than_its_limit_bends") {
        return;
    }
    // 100 requests per second of 0.25 ms each need 2.5 % of a CPU, of 2.5 ms each 25 %: the limit is in between.
    let mut command = serve(
        port(),
        &[
            "--rate",
            "100",
            "--cpus",
            "0.12",
            "--seconds",
            "2",
            "--reps",
            "2",
            "--vary",
            &format!("env:{MOOD}=light,heavy"),
        ],
    );
    let sweep = document(&command.output().unwrap());
    assert_eq!(sweep["schema"], "deburr.sweep/1");
    assert_eq!(sweep["runs"].as_array().unwrap().len(), 4);
    let order: Vec<_> = sweep["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["variant"].as_u64().unwrap())
        .collect();
    assert_eq!(order, [0, 1, 1, 0], "interleaved");
    let [light, heavy] = [0, 1].map(|i| &sweep["points"][i]);
    let value = |point: &Value, field: &str| point[field]["value"].as_f64().unwrap();
    assert!(
        value(heavy, "cpu_per_request_ns") > 3.0 * value(light, "cpu_per_request_ns"),
        "{sweep}"
    );
    assert!(value(heavy, "throttled_share") > 0.8, "{heavy}");
    assert!(value(light, "throttled_share") < 0.5 * value(heavy, "throttled_share"), "{light}");
    // The limit is enforced: CPU use equals the quota, within the share that one quota period has in the window.
    assert!((0.09..0.15).contains(&value(heavy, "cpus")), "{heavy}");
    assert!(value(heavy, "answered_per_s") < 90.0, "{heavy}");
    assert!(
        heavy["at_least"] == true || value(heavy, "mean_ns") > 3.0 * value(light, "mean_ns"),
        "{heavy}"
    );
    assert!(light["memory_bytes"]["value"].as_f64().unwrap() > 1e5, "{light}");
    assert!(light["threads"].as_u64().unwrap() >= 3, "{light}");
    assert!(value(light, "switches_per_s") > 50.0, "a request wakes a thread: {light}");
    assert_eq!(sweep["runs"][0]["requests"]["due"], 200);
}

#[test]
fn an_echo_over_tcp_is_driven_too() {
    if !common::root_or_skip("kernel", "an_echo_over_tcp_is_driven_too") {
        return;
    }
    let port = port();
    let url = format!("tcp://127.0.0.1:{port}");
    let mut command = sweep(
        &[
            "--rate",
            "50,100",
            "--url",
            &url,
            "--seconds",
            "1",
            "--reps",
            "1",
            "--vary",
            "env:TOKIO_WORKER_THREADS=1,8",
        ],
        &[DEBURR, "lab-worker", "fanout", "--port", &port.to_string()],
    );
    let sweep = document(&command.output().unwrap());
    for run in sweep["runs"].as_array().unwrap() {
        assert_eq!(run["requests"]["failed"], 0, "{run}");
        assert!(run["requests"]["answered"].as_u64().unwrap() > 0, "{run}");
        assert!(run.get("throttling").is_none(), "there is no limit: {run}");
        let workers = [1, 8][run["variant"].as_u64().unwrap() as usize];
        assert!(run["threads"].as_u64().unwrap() > workers, "the main thread and {workers}: {run}");
    }
}

#[test]
fn a_commands_own_time_is_measured() {
    common::tried("kernel", "a_commands_own_time_is_measured", try_a_commands_own_time_is_measured);
}

fn try_a_commands_own_time_is_measured() {
    if !common::root_or_skip("kernel", "a_commands_own_time_is_measured") {
        return;
    }
    let arguments = ["--cmd", "--reps", "3", "--vary", "env:NAP=0.1,0.4"];
    let output = sweep(&arguments, &["sh", "-c", "sleep $NAP"]).output().unwrap();
    let sweep = document(&output);
    let wall = |i: usize| sweep["points"][i]["wall_ns"]["value"].as_f64().unwrap();
    assert!(wall(0) >= 0.1e9 && wall(1) >= 0.4e9, "{sweep}");
    assert!(wall(1) > wall(0), "{sweep}");
    assert!(sweep["knees"].as_array().unwrap().is_empty());
    let failed = sweep_of_failure();
    assert!(failed.contains("exit status: 7") && failed.contains("no such table"), "{failed}");
}

/// Output of any length does not block a command, and an error message quotes its last lines.
#[test]
fn a_command_may_write_as_much_as_it_likes() {
    if !common::root_or_skip("kernel", "a_command_may_write_as_much_as_it_likes") {
        return;
    }
    let script = "yes 'so much to say' | head -c 50000000; echo the last words >&2; exit 7";
    let failed =
        message(&sweep(&["--cmd", "--reps", "1"], &["sh", "-c", script]).output().unwrap());
    assert!(failed.contains("exit status: 7") && failed.contains("the last words"), "{failed}");
    assert!(failed.len() < 2000, "{} bytes", failed.len());
    let arguments = ["--rate", "40", "--seconds", "1", "--reps", "1"];
    let mut talker = serve(port(), &arguments);
    let sweep = document(&talker.env(MOOD, "chatty").output().unwrap());
    let requests = &sweep["runs"][0]["requests"];
    assert_eq!((&requests["failed"], &requests["unanswered"]), (&0.into(), &0.into()), "{sweep}");
}

/// A service that accepts every request and answers none is distinguished from one that the generator did not reach.
#[test]
fn silence_is_an_answer_of_0_percent() {
    if !common::root_or_skip("kernel", "silence_is_an_answer_of_0_percent") {
        return;
    }
    let mut silent = serve(port(), &["--rate", "30", "--seconds", "2", "--reps", "1"]);
    let sweep = document(&silent.env(MOOD, "silent").output().unwrap());
    assert_eq!(sweep["runs"][0]["requests"]["unanswered"], 60, "{sweep}");
    assert_eq!(
        (&sweep["knees"][0]["bad_per_s"], &sweep["knees"][0]["reason"]),
        (&30.0.into(), &"behind".into())
    );
    assert!(sweep["verdict"][0].as_str().unwrap().contains("it answers 0 %"), "{sweep}");
    assert!(sweep["notes"].to_string().contains("not one request was answered"), "{sweep}");
}

/// A service that ignores signals, or starts processes in sessions of their own, is ended all the same.
#[test]
fn a_stubborn_service_is_ended_with_all_that_it_started() {
    if !common::root_or_skip("kernel", "a_stubborn_service_is_ended_with_all_that_it_started") {
        return;
    }
    let script = "trap '' TERM INT HUP; setsid sleep 3600 & exec \"$@\"";
    let words = service();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let port = port();
    let url = format!("http://127.0.0.1:{port}/work");
    let arguments = ["--rate", "20", "--seconds", "0.5", "--reps", "2", "--url", &url];
    let mut command = sweep(&arguments, &[&["sh", "-c", script, "sh"][..], &words].concat());
    command.env(SERVE, port.to_string()).env_remove(MOOD);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let sweep = document(&child.wait_with_output().unwrap());
    assert_eq!(sweep["runs"].as_array().unwrap().len(), 2, "the port was free again: {sweep}");
    assert!(sweep["points"][0]["threads"].as_u64().unwrap() >= 2, "the other process is counted");
    assert!(!left(pid));
}

fn sweep_of_failure() -> String {
    let script = "echo no such table >&2; exit 7";
    message(&sweep(&["--cmd"], &["sh", "-c", script]).output().unwrap())
}

#[test]
fn services_that_do_not_serve_are_named_with_what_they_said() {
    if !common::root_or_skip("kernel", "services_that_do_not_serve_are_named_with_what_they_said") {
        return;
    }
    let with = |mood: &str, port: u16| {
        let arguments =
            ["--rate", "50", "--seconds", "0.5", "--start-timeout", "0.5", "--reps", "1"];
        let mut command = serve(port, &arguments);
        message(&command.env(MOOD, mood).output().unwrap())
    };
    let dead = with("dead", port());
    assert!(
        dead.contains("before it listened") && dead.contains("cannot find my configuration"),
        "{dead}"
    );
    let background = ["--rate", "5", "--url", &format!("http://127.0.0.1:{}", port())];
    let background = message(&sweep(&background, &["sh", "-c", "sleep 3600 &"]).output().unwrap());
    assert!(background.contains("must stay in the foreground"), "{background}");
    let late = with("late", port());
    assert!(
        late.contains("does not listen at 127.0.0.1:") && late.contains("--start-timeout"),
        "{late}"
    );
    let no = with("no", port());
    assert!(no.contains("no request was answered well: HTTP status 500"), "{no}");
    // What was measured before a failure is shown, and the failure is told.
    let vary = format!("env:{MOOD}=well,dead");
    let arguments = ["--rate", "50", "--seconds", "0.5", "--reps", "1", "--vary", &vary];
    let half = serve(port(), &arguments).output().unwrap();
    assert!(message(&half).contains("cannot find my configuration"), "{half:?}");
    let shown: Value = serde_json::from_slice(&half.stdout).unwrap();
    assert_eq!(shown["runs"].as_array().map(Vec::len), Some(1), "{shown:#}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = with("", listener.local_addr().unwrap().port());
    assert!(taken.contains("somebody listens at"), "{taken}");
    let nothing = message(
        &sweep(
            &["--rate", "1", "--url", &format!("tcp://127.0.0.1:{}", port())],
            &["/no/such/program"],
        )
        .output()
        .unwrap(),
    );
    assert!(nothing.contains("/no/such/program"), "{nothing}");
}

#[test]
fn nothing_is_left_whatever_ends_it() {
    if !common::root_or_skip("kernel", "nothing_is_left_whatever_ends_it") {
        return;
    }
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::KILL] {
        let port = port();
        let child = serve(port, &["--rate", "50", "--seconds", "600"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // As soon as the service listens, its cgroup exists too.
        let up = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(up.elapsed() < Duration::from_secs(60), "the service does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(left(child.id()));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        if signal == rustix::process::Signal::INT {
            let sweep = document(&output);
            assert_eq!(
                (&sweep["interrupted"], &sweep["runs"]),
                (&true.into(), &Value::Array(vec![]))
            );
            assert!(sweep["notes"].to_string().contains("nothing was measured"), "{sweep}");
        }
        let ended = Instant::now();
        while left(pid) || TcpListener::bind(("127.0.0.1", port)).is_err() {
            assert!(ended.elapsed() < Duration::from_secs(60), "{signal:?} leaves something");
            thread::sleep(Duration::from_millis(20));
        }
    }
    assert!(Path::new("/sys/fs/cgroup").exists());
}
