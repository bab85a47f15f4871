// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr cpu-check` on this machine, whatever it is. The verdict depends on other load, so only the form of the
//! output is checked. `tests/vm/cpu-check` starts machines whose CPUs are known.

use crate::program::{Running, deburr, deburr_after, expect, refuse, run, scratch, stdout, until};
use crate::repo::root;
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

fn document(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn usable_cpus() -> Vec<u64> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u64).collect()
}

/// Collects the names of all fields.
fn fields(document: &Value, names: &mut BTreeSet<String>) {
    match document {
        Value::Object(map) => {
            names.extend(map.keys().cloned());
            map.values().for_each(|value| fields(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, names)),
        _ => {}
    }
}

/// The words of a text, without its layout.
fn in_words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn this_machine_is_measured_recorded_and_judged_again() {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    let shown = path.to_str().unwrap();
    let page = directory.path().join("x.html");
    let page = page.to_str().unwrap();
    let arguments = ["cpu-check", "--quick", "--json", "-o", shown, "--html", page];
    let live = document(&run(&arguments, 0).stdout);
    let cpus = usable_cpus();
    assert_eq!(live["schema"], "deburr.cpu-check/1");
    assert_eq!(live["cpus"]["used"], serde_json::json!(cpus));
    let n = cpus.len() as u64;
    assert_eq!(live["pairs_in_all"], n * (n - 1) / 2);
    let steps = live["sweep"].as_array().unwrap();
    let workers: Vec<_> = steps.iter().map(|step| step["workers"].as_u64().unwrap()).collect();
    assert!(workers.is_sorted() && workers.first() == Some(&1) && workers.last() == Some(&(2 * n)));
    for step in steps {
        assert_eq!(Some(step["speeds"].as_array().unwrap().len() as u64), step["workers"].as_u64());
        assert!(step["share"].as_f64().unwrap() <= 1.01, "{step}");
    }
    if n > 1 {
        let pair = &live["pairs"][0];
        assert!(pair["rounds"].as_u64().unwrap() >= 1, "{pair}");
    }
    assert!(live["window"]["seconds"].as_f64().unwrap() < 60.0, "15 s, and a busy machine");

    assert!(stdout(&run(&["check", shown], 0)).contains("consistent"));
    let report = document(&run(&["report", shown, "--json"], 0).stdout);
    let said: Vec<_> = ["findings", "ruled_out", "not_checked"]
        .into_iter()
        .flat_map(|list| report[list].as_array().unwrap())
        .filter(|item| item["code"] == "CPU002")
        .collect();
    assert_eq!(said.len(), 1);
    // The text of the report begins with the check, and agrees with the live result.
    let text = stdout(&run(&["report", shown], 0));
    assert!(text.contains("usable cores") && text.contains("workers"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let words = in_words(&text);
    let verdict = &live["verdict"];
    assert!(words.starts_with(&in_words(verdict["summary"].as_str().unwrap())), "{text}");
    for said in ["advice", "doubts"].iter().flat_map(|list| verdict[list].as_array().unwrap()) {
        assert!(words.contains(&in_words(said.as_str().unwrap())), "{said}: {text}");
    }
    for pair in live["pairs"].as_array().unwrap().iter().take(10) {
        let place = format!("{} {} ", pair["a"], pair["b"]);
        let rounds = format!(" {}/{} ", pair["valid"], pair["rounds"]);
        let row = text.lines().find(|line| line.trim_start().starts_with(&place));
        assert!(row.is_some_and(|row| row.contains(&rounds)), "{pair}: {text}");
    }
    let of_steps = |field: &str| -> Vec<String> {
        steps.iter().map(|step| format!("{:.2}", step[field].as_f64().unwrap())).collect()
    };
    // The page holds the check, and `report` says the same of it.
    assert_eq!(document(&run(&["report", "--json", page], 0).stdout), live);
    let of_page = in_words(&stdout(&run(&["report", page], 0)));
    assert!(words.starts_with(&of_page), "{of_page}");
    assert!(words.contains(&format!("evenness {}", of_steps("evenness").join(" "))), "{text}");
    assert!(words.contains(&format!("CPU share {}", of_steps("share").join(" "))), "{text}");

    let page = std::fs::read_to_string(root().join("docs/cpu-check.md")).unwrap();
    let mut names = BTreeSet::new();
    fields(&live, &mut names);
    let missing: Vec<_> = names.iter().filter(|name| !page.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "not in docs/cpu-check.md: {missing:?}");
}

/// Number of steps of the sweep that are in a recording so far.
fn steps_in(path: &Path) -> i64 {
    let count = "SELECT count(DISTINCT workers) FROM cpu_worker";
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .and_then(|connection| connection.query_row(count, [], |row| row.get(0)))
        .unwrap_or(0)
}

#[test]
fn an_interrupt_ends_it_at_once_with_what_was_seen() {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    let shown = path.to_str().unwrap();
    let mut check = deburr(&["cpu-check", "--json", "-o", shown]);
    let running = Running::start(check.stdout(Stdio::piped()));
    until("the sweep has begun", || steps_in(&path) > 0);
    running.signal(Signal::INT);
    let output = running.wait();
    assert_eq!(output.status.code(), Some(0));
    let said = document(&output.stdout);
    assert!(said["window"]["events"][0].as_str().unwrap().contains("SIGINT"), "{said}");
    assert!(!said["sweep"].as_array().unwrap().is_empty(), "{said}");
    assert!(said["verdict"]["summary"].is_string());
    assert!(stdout(&run(&["check", shown], 0)).contains("consistent"));
}

#[test]
fn one_cpu_is_a_machine_too() {
    let bind = format!("taskset -pc {} $$ >/dev/null", usable_cpus()[0]);
    let arguments = ["cpu-check", "--quick", "--json"];
    let said = document(&expect(&mut deburr_after(&bind, &arguments), 0).stdout);
    assert_eq!(said["cpus"]["used"].as_array().unwrap().len(), 1);
    if usable_cpus().len() > 1 {
        assert_eq!(said["cpus"]["kept_by"], "affinity", "{said}");
        assert!(said["verdict"]["doubts"].to_string().contains("affinity mask"), "{said}");
    }
    assert_eq!(said["pairs_in_all"], 0);
    let workers: Vec<_> =
        said["sweep"].as_array().unwrap().iter().map(|step| step["workers"].as_u64()).collect();
    assert_eq!(workers, [Some(1), Some(2)]);
}

#[test]
fn a_file_that_is_there_is_not_replaced() {
    let directory = scratch();
    let path = directory.path().join("x.deburr");
    std::fs::write(&path, "mine").unwrap();
    let said = refuse(&["cpu-check", "-o", path.to_str().unwrap()]);
    assert!(said.contains("--force"), "{said}");
    assert!(refuse(&["cpu-check", "--force"]).contains("--output"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}
