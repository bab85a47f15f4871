// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports as HTML pages: `--html`, and `deburr report` of a page.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::program::{refuse, run, scratch, stderr, stdout};
use crate::repo::root;
use deburr_core::render::{self, MOST_PAGE_BYTES};
use std::fs;

fn recording(scenario: &str) -> String {
    root().join("fixtures/lab").join(scenario).join("recording.deburr").display().to_string()
}

#[test]
fn a_page_is_small_and_is_read_back_as_the_same_report() {
    let here = scratch();
    let path = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    for scenario in ["neighbour-4", "writeback", "quota"] {
        let (file, page, again) = (recording(scenario), path(scenario), path("again"));
        let text = stdout(&run(&["report", &file], 0));
        let shown = run(&["report", &file, "--html", &page], 0);
        assert_eq!(stdout(&shown), text, "the page is written besides the text");
        let html = fs::read_to_string(&page).unwrap();
        assert!(
            html.starts_with("<!doctype html>") && html.len() < MOST_PAGE_BYTES,
            "{}",
            html.len()
        );
        assert_eq!(stdout(&run(&["report", &page], 0)), text);
        for option in ["-v", "-q", "--json"] {
            let (now, then) =
                (run(&["report", option, &page], 0), run(&["report", option, &file], 0));
            assert_eq!(stdout(&now), stdout(&then), "{option}");
            assert!(stderr(&now).contains("nothing of it was checked"), "{}", stderr(&now));
        }
        run(&["report", &page, "--html", &again, "--force"], 0);
        assert!(fs::read_to_string(&again).unwrap().starts_with("<!doctype html>"));
    }
}

#[test]
fn a_session_writes_a_page() {
    let here = scratch();
    let page = here.path().join("live.html");
    let shown = page.to_str().unwrap();
    let output = run(&["-d0.2", "--html", shown], 0);
    assert!(stdout(&output).contains("watched host"));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("watched host"), "{html}");
    assert!(refuse(&["-d1h", "--html", shown]).contains("--force"));
}

#[test]
fn a_page_goes_to_standard_output_alone() {
    let file = recording("quota");
    let page = stdout(&run(&["report", &file, "--html", "-"], 0));
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(refuse(&["report", &file, "--json", "--html", "-"]).contains("standard output"));
}

#[test]
fn a_page_replaces_no_other_file_of_the_command() {
    let here = scratch();
    let shown = here.path().join("x").to_str().unwrap().to_owned();
    fs::copy(recording("quota"), &shown).unwrap();
    let both = refuse(&["report", &shown, "--html", &shown, "--force"]);
    assert!(both.contains("is given twice"), "{both}");
    let both = refuse(&["-d1h", "-o", &shown, "--html", &shown, "--force"]);
    assert!(both.contains("is given twice"), "{both}");
    assert!(refuse(&["report", &shown, "--force"]).contains("--html"));
    assert!(refuse(&["-d1h", "--force"]).contains("--html"));
}

#[test]
fn pages_of_others_are_refused_or_read_within_bounds() {
    let here = scratch();
    let path = here.path().join("x.html");
    let shown = path.to_str().unwrap();
    let file = fs::File::create(&path).unwrap();
    let start = "<!DOCTYPE html><script type=\"application/json\" id=\"deburr-report\">";
    for (content, expected) in [
        ("<!doctype html><title>hello</title>".to_owned(), "holds no report"),
        (start.to_owned(), "cut short"),
        (format!("{start}{{}}</script>"), "cannot be read"),
        (format!("{start}{}</script>", "[".repeat(1_000_000)), "cannot be read"),
    ] {
        fs::write(&path, content).unwrap();
        let message = refuse(&["report", shown]);
        assert!(message.contains(expected) && message.lines().count() == 1, "{message}");
    }
    // A hole takes no room, and could be of any length.
    file.set_len(1 << 40).unwrap();
    assert!(refuse(&["report", shown]).contains("longer than 8 MiB"));
}

#[test]
fn comparisons_of_hosts_and_experiments_are_read_back() {
    let here = scratch();
    let file = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    let fixture = |name: &str| fs::read(root().join("fixtures").join(name)).unwrap();
    let [healthy, slow] = ["drift-healthy.json", "drift-slow.json"].map(|name| {
        fs::write(file(name), fixture(&format!("snapshots/{name}"))).unwrap();
        file(name)
    });
    let hosts = ["diff", &healthy, &slow, "--slow", "B"];
    let (page, again) = (file("page.html"), file("again.html"));
    let shown = |arguments: &[&str]| stdout(&run(arguments, 0));
    run(&[&hosts[..], &["--html", &page]].concat(), 0);
    for option in ["-v", "-q", "--json"] {
        assert_eq!(shown(&["report", option, &page]), shown(&[&hosts[..], &[option]].concat()));
    }
    run(&["report", "--fail-on", "medium", &page], 1);
    run(&["report", &page, "--html", &again], 0);
    assert_eq!(fs::read(&again).unwrap(), fs::read(&page).unwrap());
    for name in ["prove/falls.json", "prove/follows.json"] {
        let document = fixture(name);
        let outcome = serde_json::from_slice(&document).unwrap();
        fs::write(&page, render::experiment_html(&outcome).unwrap()).unwrap();
        let text = shown(&["report", &page]);
        assert!(text.starts_with("confirmed: ") && text.contains("\n  hypothesis "), "{text}");
        assert_eq!(shown(&["report", "--json", &page]).as_bytes(), document);
        run(&["report", &page, "--html", &again, "--force"], 0);
        assert_eq!(fs::read(&again).unwrap(), fs::read(&page).unwrap());
    }
}

#[test]
fn comparisons_and_transcripts_have_pages() {
    let here = scratch();
    let page = here.path().join("x.html");
    let shown = page.to_str().unwrap();
    let (a, b) = (recording("neighbour-2"), recording("neighbour-8"));
    let text = stdout(&run(&["compare", &a, &b, "--html", shown], 0));
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        html.len() < MOST_PAGE_BYTES && html.contains("id=\"deburr-compare\""),
        "{}",
        html.len()
    );
    let title = text.lines().next().unwrap().split('`').next().unwrap();
    assert!(html.contains(title), "{title}");
    assert_eq!(stdout(&run(&["report", shown], 0)), text, "the page is read back");
    assert!(refuse(&["compare", &a, &b, "--html", &a, "--force"]).contains("is given twice"));
    let vmstat = here.path().join("vmstat.txt");
    let columns = "r b swpd free buff cache si so bi bo in cs us sy id wa st";
    fs::write(
        &vmstat,
        format!("{columns}\n{}", "9 0 0 1 1 1 0 0 0 0 1 1 50 10 40 0 0\n".repeat(5)),
    )
    .unwrap();
    let text = stdout(&run(&["read", vmstat.to_str().unwrap(), "--html", shown, "--force"], 0));
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(stdout(&run(&["report", shown], 0)), text, "the page is read back");
    assert!(html.contains("vmstat") && html.contains("id=\"deburr-read\""), "{html}");
}
