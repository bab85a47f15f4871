// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages are read by a strict reader of tags: whatever a host names its processes, a page has the elements and
//! attributes that the program wrote, and no others.

use super::super::golden::{SAMPLES, any_text, sample, scramble};
use super::*;
use crate::finding::{Entity, EntityKind, Ledger, LedgerPart, LedgerState};
use crate::host_diff::{HostInput, Measured};
use crate::recording::{IoOp, WaitHist};
use crate::snapshot::Snapshot;
use crate::stats::Span;
use crate::sweep::Sweep;
use crate::view::{DevicePlot, Heat, LoadPlot, ThreadPlot};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeSet;

/// The elements of a page.
const ELEMENTS: &str = "a article b body circle code dd details div dl dt figcaption figure g h1 h2 h3 head header html image li line \
                        link main meta p path pre rect script section span style summary svg table tbody td text th thead \
                        title tr ul";
/// The attributes of a page. None of them runs anything, and only `href` leads anywhere.
const ATTRIBUTES: &str = "aria-hidden aria-label charset class content cx cy d data-seconds height hidden href http-equiv id lang name open \
                          preserveAspectRatio r rel role tabindex text-anchor type viewBox width x x1 x2 y y1 y2";

/// A tag: its name and its attributes.
type Tag = (String, Vec<(String, String)>);

/// The tags of a page, in order. Fails on anything that a browser could read in another way: an unquoted attribute, a
/// stray `<` or `>`, an element that is not closed.
fn tags(html: &str) -> Vec<Tag> {
    let mut rest = html.strip_prefix("<!doctype html>").expect("a doctype");
    let (mut tags, mut open) = (Vec::new(), Vec::<String>::new());
    while let Some(at) = rest.find(['<', '>']) {
        assert!(rest[at..].starts_with('<'), "a stray `>`: {}", &rest[..at]);
        rest = &rest[at + 1..];
        if let Some(end) = rest.strip_prefix('/') {
            let (name, after) = end.split_once('>').unwrap();
            assert_eq!(open.pop().as_deref(), Some(name), "an element that is not closed");
            rest = after;
            continue;
        }
        let (tag, after) = tag(rest);
        let name = tag.0.clone();
        rest = after;
        if ["script", "style"].contains(&name.as_str()) {
            let end = rest.find("</").unwrap();
            assert!(rest[end..].starts_with(&format!("</{name}>")));
            let content = &rest[..end];
            assert!(content == SCRIPT || !content.contains('<'), "{content}");
            if name == "script" && content != SCRIPT {
                let kind = ("type".to_owned(), "application/json".to_owned());
                assert!(tag.1.contains(&kind), "a script that is not the program's");
            }
            rest = &rest[end..];
        }
        if !["meta", "link"].contains(&name.as_str()) {
            open.push(name);
        }
        tags.push(tag);
    }
    assert!(open.is_empty(), "{open:?}");
    tags
}

/// A start tag, and what is after it.
fn tag(from: &str) -> (Tag, &str) {
    let end = from.find([' ', '>']).unwrap();
    let (name, mut rest) = from.split_at(end);
    let mut attributes = Vec::new();
    while let Some(attribute) = rest.strip_prefix(' ') {
        let (key, value) = attribute.split_once("=\"").unwrap();
        let (value, after) = value.split_once('"').unwrap();
        attributes.push((key.to_owned(), value.to_owned()));
        rest = after;
    }
    ((name.to_owned(), attributes), rest.strip_prefix('>').expect("the end of a tag"))
}

/// The report that is read back of a page.
fn report_in(page: &str) -> Option<Report> {
    match read_page(page.as_bytes()) {
        Ok(InPage::Report(report, _)) => Some(*report),
        _ => None,
    }
}

/// Fails on a page that holds anything active, or leads anywhere else.
pub(crate) fn check(html: &str) {
    let (elements, attributes): (BTreeSet<&str>, BTreeSet<&str>) =
        (ELEMENTS.split_whitespace().collect(), ATTRIBUTES.split_whitespace().collect());
    let mut ids = BTreeSet::new();
    for (name, its) in tags(html) {
        assert!(elements.contains(name.as_str()), "<{name}>");
        let value =
            |key: &str| its.iter().find(|(it, _)| it == key).map(|(_, value)| value.as_str());
        for (key, value) in &its {
            assert!(attributes.contains(key.as_str()), "<{name} {key}>");
            let here = value.starts_with('#') || value.starts_with("data:image/png;base64,");
            assert!(key != "href" || here || value == "data:,", "{value}");
            assert!(key != "id" || ids.insert(value.clone()), "the id `{value}` is there twice");
        }
        if value("role") == Some("img") {
            assert!(value("aria-label").is_some_and(|label| !label.is_empty()));
        }
    }
}

#[test]
fn pages_are_well_formed_small_and_read_back() {
    for (name, _) in SAMPLES {
        let report = sample(name);
        let page = html(&report, None, None).unwrap();
        check(&page);
        assert!(page.len() < 100_000, "{name}: {} bytes", page.len());
        assert!(is_page(page.as_bytes()));
        assert_eq!(report_in(&page), Some(report), "{name}");
    }
}

#[test]
fn a_page_says_what_the_text_says() {
    let report = sample("rhythm");
    let page = html(&report, None, None).unwrap();
    let plain = |text: &str| text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ");
    let text = plain_text(&page);
    for finding in &report.findings {
        for sentence in [Some(&finding.title), finding.victim.note.as_ref()].into_iter().flatten() {
            assert!(text.contains(&plain(sentence)), "{sentence}");
        }
        for fix in &finding.fix {
            assert!(text.contains(&plain(&fix.action)), "{}", fix.action);
        }
    }
    for it in &report.ruled_out {
        assert!(text.contains(&it.code) && text.contains(&plain(&it.closest)), "{}", it.closest);
    }
}

#[test]
fn plots_and_their_tables_are_there() {
    let page = html(&sample("rhythm"), None, None).unwrap();
    let plots = page.matches("role=\"img\"").count();
    // Two time lines, one histogram, one ledger.
    assert_eq!(plots, 4);
    assert_eq!(page.matches("<summary>as a table</summary>").count(), plots);
}

#[test]
fn a_hostile_name_is_inert() {
    let mut report = sample("neighbour");
    let name = "</script><img src=x onerror=alert(1)>";
    report.findings[0].victim.comm = Some(name.into());
    report.findings[0].causes[0].entity.cgroup = Some(name.into());
    report.findings[0].title = name.into();
    report.host.name = format!("\"><script>alert(1)</script>{name}");
    let page = html(&report, None, None).unwrap();
    check(&page);
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("</script>").count(), 1);
    assert_eq!(report_in(&page), Some(report));
}

#[test]
fn the_policy_names_the_style_and_allows_nothing_else() {
    assert_eq!(base64(b""), "");
    assert_eq!(base64(b"f"), "Zg==");
    assert_eq!(base64(b"fo"), "Zm8=");
    assert_eq!(base64(b"foobar"), "Zm9vYmFy");
    let page = html(&sample("healthy"), None, None).unwrap();
    let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    let hash = base64(&Sha256::digest(style.as_bytes()));
    let policy = page.split_once("Content-Security-Policy\" content=\"").unwrap().1;
    let policy = policy.split_once('"').unwrap().0.replace("&#39;", "'");
    assert!(policy.starts_with(&format!(
        "default-src 'none'; style-src 'sha256-{hash}'; script-src 'none'; "
    )));
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    let active = html(&sample("healthy"), Some(&plots()), None).unwrap();
    let hash = base64(&Sha256::digest(SCRIPT.as_bytes()));
    assert!(active.contains(&format!("script-src &#39;sha256-{hash}&#39;; ")));
    assert_eq!(active.matches(&format!("<script>{SCRIPT}</script>")).count(), 1);
    for address in ["http://", "https://", "//", "url(", "@import"] {
        assert!(!style.contains(address), "{address}");
    }
}

#[test]
fn other_pages_are_refused() {
    assert!(!is_page(b"SQLite format 3\0") && !is_page(b"<!doc") && is_page(b"<!DOCTYPE HTML>"));
    let refusal = |page: &str| read_page(page.as_bytes()).unwrap_err().to_string();
    assert!(refusal("<!doctype html><p>hello").contains("holds no report"));
    let page = html(&sample("healthy"), None, None).unwrap();
    let cut = &page[..page.find("deburr-report").unwrap() + 100];
    assert!(refusal(cut).contains("cut short"));
    assert!(
        refusal(&page.replace("deburr.report/1", "deburr.report/9")).contains("deburr.report/9")
    );
    let nested = "[".repeat(100_000);
    let start = "<script type=\"application/json\" id=\"deburr-report\">";
    assert!(
        refusal(&format!("<!doctype html>{start}{nested}</script>")).contains("cannot be read")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_of_a_host_becomes_markup(
        texts in prop::collection::vec(prop_oneof![
            any_text(),
            r#"(?s)(</?(script|style|img|svg|title|textarea)( onload=x)?>|<!--|-->|\]\]>|['"`<>&=/ ]|&lt;|.){0,20}"#,
        ], 1..20),
        which in 0..SAMPLES.len(),
    ) {
        let mut document: Value = serde_json::from_str(SAMPLES[which].1).unwrap();
        scramble(&mut document, "", &mut texts.into_iter().cycle());
        let report: Report = serde_json::from_value(document).unwrap();
        let page = html(&report, None, None).unwrap();
        check(&page);
        let body = page.split_once("</style>").unwrap().1;
        prop_assert!(!body.contains(|c| c != '\n' && crate::text::name::is_hidden(c)));
        let back = report_in(&page);
        let readable = report.schema == crate::finding::REPORT_SCHEMA;
        prop_assert_eq!(back, readable.then_some(report));
    }

    #[test]
    fn no_page_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), json in any_text()) {
        let _ = read_page(&bytes);
        let start = "<!doctype html><script type=\"application/json\" id=\"deburr-report\">";
        let _ = read_page(format!("{start}{json}</script>").as_bytes());
    }

    #[test]
    fn no_number_breaks_a_page(
        numbers in prop::collection::vec(any::<f64>().prop_filter("JSON has no others", |x| x.is_finite()), 4),
        counts in prop::collection::vec(any::<u64>(), 4),
        values in prop::collection::vec(any::<f64>(), 0..300),
    ) {
        let mut report = sample("rhythm");
        report.window.seconds = numbers[0];
        report.ledger[0].wall_ns = counts[2];
        let finding = &mut report.findings[0];
        finding.confidence = numbers[2];
        finding.cost.lost_ns_per_s = counts[3];
        for (class, count) in finding.sizes.iter_mut().zip(&counts) {
            class.count = *count;
            class.ns = *count;
        }
        if let Some(chart) = &mut finding.chart {
            chart.from_s = numbers[1];
            chart.step_s = numbers[3];
            chart.rows[0].values = values;
        }
        // Values that JSON has no number for are refused, not shown.
        if let Ok(page) = html(&report, None, None) {
            check(&page);
            prop_assert!(!page.contains("NaN") && !page.contains("=\"inf"));
        }
    }
}

/// A sweep of a service in four variants, at six rates.
fn sweep() -> Sweep {
    serde_json::from_str(include_str!("../../../../../fixtures/sweep/example.json")).unwrap()
}

#[test]
fn a_sweep_is_shown_with_what_its_text_says() {
    let sweep = sweep();
    let page = sweep_html(&sweep).unwrap();
    check(&page);
    let text = plain_text(&page);
    let style = TextStyle { columns: 100, color: false, verbosity: 1 };
    let shown = super::super::sweep_text(&sweep, style);
    let words = |text: &str| text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ");
    for said in sweep.verdict.iter().chain(&sweep.notes) {
        assert!(text.contains(&words(said)) && words(&shown).contains(&words(said)), "{said}");
    }
    assert_eq!(page.matches("role=\"img\"").count(), 2);
    // A dot for each value.
    let values = sweep
        .points
        .iter()
        .map(|it| usize::from(it.p99_ns.is_some()) + usize::from(it.cpu_per_request_ns.is_some()));
    assert_eq!(page.matches("<circle ").count(), values.sum::<usize>());
    assert_eq!(read_page(page.as_bytes()).unwrap(), InPage::Sweep(Box::new(sweep)));
}

#[test]
fn a_comparison_shows_the_lengths_of_both_recordings_once() {
    let comparison = crate::compare::tests::sample();
    let page = comparison_html(&comparison).unwrap();
    check(&page);
    let text = plain_text(&page);
    // The waits of the victim below the verdict, and the requests below what is measured of them.
    let [verdict, waits, measures, requests] =
        ["behind", "how long api (pid", "mean latency of requests", "how long writes of sda took"]
            .map(|it| text.find(it).unwrap_or_else(|| panic!("`{it}` is not in {text}")));
    assert!(verdict < waits && waits < measures && measures < requests);
    assert_eq!(page.matches("role=\"img\"").count(), 2);
    assert_eq!(page.matches("<summary>as a table</summary>").count(), 2);
    // Each recording is a series, the first one first.
    let series = |name: &str| page.find(&format!("class=\"{name}\" x=")).unwrap();
    assert!(series("v-0") < series("v-1"), "A is not first");
    assert!(text.contains("A a.deburr B b.deburr"));
    let label = page.split("aria-label=\"").nth(1).unwrap();
    assert!(label.starts_with("histogram of waits by length: in A, most waits are "), "{label}");
    assert_eq!(read_page(page.as_bytes()).unwrap(), InPage::Comparison(Box::new(comparison)));
}

#[test]
fn a_comparison_of_an_older_version_opens_without_its_requests() {
    let mut comparison = crate::compare::tests::sample();
    for pair in &mut comparison.devices {
        for side in [&mut pair.a, &mut pair.b].into_iter().flatten() {
            side.requests.clear();
        }
    }
    let document = serde_json::to_string(&comparison).unwrap();
    assert!(!document.contains("\"requests\":["));
    let older: Comparison = serde_json::from_str(&document).unwrap();
    assert_eq!(comparison_html(&older).unwrap().matches("role=\"img\"").count(), 1);
}

#[test]
fn a_histogram_that_was_read_is_shown_with_the_limits_of_its_time() {
    let mut reader = transcript::Reader::new(transcript::Given::default());
    reader.file("<b>.txt");
    let text = include_str!("../../../../../fixtures/transcripts/neighbour-runqlat.txt");
    text.lines().for_each(|line| reader.line(line.as_bytes()));
    let document = reader.finish("0.1.0").document;
    let page = read_html(&document).unwrap();
    check(&page);
    let with_sizes = document.statements.iter().filter(|it| it.sizes.len() > 1).count();
    assert!(with_sizes > 0);
    assert_eq!(page.matches("role=\"img\"").count(), with_sizes);
    let rows: usize = document.statements.iter().map(|it| it.sizes.len()).sum();
    assert_eq!(page.matches("<line class=\"range\"").count(), rows);
    assert_eq!(page.matches("<summary>as a table</summary>").count(), with_sizes);
    assert_eq!(read_page(page.as_bytes()).unwrap(), InPage::Read(Box::new(document)));
}

#[test]
fn of_a_comparison_that_is_too_large_some_plots_are_left_out() {
    let mut comparison = crate::compare::tests::sample();
    let pair = comparison.processes.iter().find(|it| it.a.process.comm.as_deref() == Some("api"));
    let pair = pair.unwrap().clone();
    for pid in 0..100 {
        let mut pair = pair.clone();
        pair.b.process.pid = Some(pid);
        comparison.processes.push(pair);
    }
    let page = comparison_html(&comparison).unwrap();
    check(&page);
    let plots = page.matches("role=\"img\"").count();
    assert!(plots > 0 && plots < 100 && page.len() <= MOST_PAGE_BYTES, "{plots}");
    assert!(plain_text(&page).contains("It lacks: further plots"));
}

/// Holds a page to its document: it is read back whole, and not at all if it was cut short.
fn holds(page: &str, id: &'static str, document: &InPage) {
    check(page);
    assert!(is_page(page.as_bytes()) && page.len() <= MOST_PAGE_BYTES);
    assert_eq!(read_page(page.as_bytes()).unwrap(), *document);
    let start = page.find(&embedded::start(id)).unwrap();
    let refusal = read_page(&page.as_bytes()[..start + 100]).unwrap_err().to_string();
    assert!(refusal.contains("cut short"), "{refusal}");
}

#[test]
fn an_experiment_is_read_back_from_its_page() {
    let outcome = super::super::prove::tests::outcome();
    let page = experiment_html(&outcome).unwrap();
    holds(&page, embedded::EXPERIMENT, &InPage::Experiment(Box::new(outcome)));
}

/// What differs between a fast host and a slow one, as a measurement says, and how to find out which difference it is.
pub(super) fn drifted() -> HostDiff {
    let snapshots = [
        include_bytes!("../../../../../fixtures/snapshots/drift-healthy.json").as_slice(),
        include_bytes!("../../../../../fixtures/snapshots/drift-slow.json"),
    ]
    .map(|document| Snapshot::parse(document).unwrap());
    let host = |(snapshot, slow)| HostInput {
        snapshot,
        label: "</script><img src=x>",
        slow: Some(slow),
        golden: false,
    };
    let hosts: Vec<HostInput<'_>> = snapshots.iter().zip([false, true]).map(host).collect();
    let times = [(0, 0.11, [0.01, 0.10]), (1, 5.87, [0.05, 5.80])];
    let measured = times.map(|(host, wall, cpu)| Measured::time(host, wall, Some(cpu)));
    let diff = crate::rules::diff(&hosts, &measured, "0.1.0");
    assert!(!diff.differences.is_empty() && diff.measured.is_some() && diff.plan.is_some());
    diff
}

#[test]
fn a_comparison_of_hosts_is_read_back_from_its_page() {
    let mut diff = drifted();
    diff.hosts[0].name = "</script><script>alert(1)</script>".into();
    let page = host_diff_html(&diff).unwrap();
    holds(&page, embedded::HOST_DIFF, &InPage::HostDiff(Box::new(diff)));
}

/// The text of the body of a page. Elements within a sentence are not words of their own.
pub(crate) fn plain_text(page: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in page.split_once("<body>").unwrap().1.split("<script").next().unwrap().chars() {
        match c {
            '<' => inside = true,
            '>' => inside = false,
            c if !inside => text.push(c),
            _ => {}
        }
    }
    for c in ['&', '<', '>', '"', '\''] {
        text = text.replace(&format!("&#{};", u32::from(c)), &c.to_string());
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Plots of a window of 75 s, with a device that is busy now and then.
fn threads(comm: &str) -> ThreadPlot {
    let ledger = |entity: Entity, queued_ns, sleep_ns| Ledger {
        victim: entity,
        awaited: false,
        wall_ns: queued_ns + sleep_ns,
        threads: 1,
        parts: [(LedgerState::Queued, queued_ns), (LedgerState::Sleep, sleep_ns)]
            .map(|(state, ns)| LedgerPart { state, ns })
            .to_vec(),
        in_kernel: None,
        interrupted: None,
        interrupted_by: vec![],
        mem_stall_by: vec![],
        asleep: vec![],
        tasks_of: vec![],
        excess_ns: 0,
        unseen_ns: 0,
        tails: vec![],
    };
    let thread = |tid| {
        let comm = Some(comm.into());
        Entity { tid: Some(tid), pid: Some(7), comm, ..Entity::new(EntityKind::Thread) }
    };
    const MS: u64 = 1_000_000;
    ThreadPlot {
        threads: vec![ledger(thread(8), 900 * MS, 100 * MS), ledger(thread(9), 30 * MS, 970 * MS)],
        rest: ledger(Entity::new(EntityKind::Process), 5 * MS, 70_000 * MS),
    }
}

pub(super) fn plots() -> Plots {
    const S: u64 = 1_000_000_000;
    let heat = |step: u64| Heat {
        column_ns: S,
        columns: (0..75)
            .map(|second| {
                let mut waits = WaitHist::default();
                (0..second % step * 10).for_each(|i| waits.add(900 << (i % 14)));
                waits
            })
            .collect(),
    };
    Plots {
        window_ns: 75 * S,
        cpus: 2,
        load: Some(LoadPlot {
            step_ns: S / 2,
            states: vec![
                (LedgerState::OnCpu, (0..150).map(|i| f64::from(i % 3)).collect()),
                (LedgerState::Queued, (0..149).map(|i| f64::from(i % 7)).collect()),
            ],
        }),
        waits: Some(heat(7)),
        of_findings: vec![Some(heat(3)), None],
        threads: vec![Some(threads("api<b>\u{1b}[1m"))],
        devices: vec![DevicePlot {
            device: "sdb".into(),
            step_ns: S / 100,
            busy: (0..7000).map(|i| f64::from(u8::from(i % 500 < 90))).collect(),
            marks: vec![("stalls", vec![Span::new(S, 2 * S), Span::new(9 * S, 9 * S)])],
            requests: vec![(IoOp::Write, heat(5))],
        }],
    }
}

#[test]
fn threads_are_shown_below_their_ledger_and_their_names_are_inert() {
    let page = html(&sample("rhythm"), Some(&plots()), None).unwrap();
    check(&page);
    let text = plain_text(&page);
    let about = "by thread, without the time asleep: the 2 threads that lost most, and all others";
    assert!(text.contains(about), "{text}");
    assert!(!page.contains("api<b>") && !page.contains('\u{1b}'));
    assert!(text.contains("tid 8 of pid 7") && text.contains("all others70 s"), "{text}");
}

#[test]
fn what_happened_when_is_shown_with_its_tables_and_in_little_room() {
    let report = sample("rhythm");
    let (without, page) =
        (html(&report, None, None).unwrap(), html(&report, Some(&plots()), None).unwrap());
    check(&page);
    assert!(page.len() < without.len() + 100_000, "{} bytes", page.len() - without.len());
    // Three pairs of heatmaps.
    assert_eq!(page.matches("<image ").count(), 6);
    let shown = page.matches("role=\"img\"").count();
    assert_eq!(shown, without.matches("role=\"img\"").count() + 6);
    assert_eq!(page.matches("<summary>as a table</summary>").count(), shown);
    assert_eq!(report_in(&page), Some(report.clone()));
    let nothing = html(&report, Some(&Plots::default()), None).unwrap();
    assert!(nothing.len() < without.len() + 10_000, "the script, and nothing else");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_amount_over_time_breaks_a_page(
        values in prop::collection::vec(any::<f64>(), 0..40),
        steps in prop::collection::vec(prop_oneof![0..5u64, any::<u64>(), Just(1_000_000_000)], 3),
        window_ns in prop_oneof![0..5u64, any::<u64>(), Just(75_000_000_000u64)],
        spans in prop::collection::vec((any::<u64>(), any::<u64>()), 0..5),
    ) {
        let mut plots = plots();
        plots.window_ns = window_ns;
        if let Some(load) = &mut plots.load {
            load.step_ns = steps[0];
            load.states[0].1 = values.clone();
        }
        let device = &mut plots.devices[0];
        // A device has as many steps as fit into the window.
        device.step_ns = steps[1].max(window_ns / 10_000);
        device.busy = values;
        device.marks[0].1 = spans.iter().map(|(a, b)| Span::new(*a.min(b), *a.max(b))).collect();
        device.requests[0].1.column_ns = steps[2];
        let page = html(&sample("rhythm"), Some(&plots), None).unwrap();
        check(&page);
        let plotted = page.split("<svg").skip(1).filter_map(|it| it.split("</svg>").next());
        for plot in plotted {
            prop_assert!(!plot.contains("\"inf") && !plot.contains("=\"NaN"), "{}", plot);
        }
    }
}
