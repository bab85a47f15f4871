// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The findings: each claim with what it costs whom because of whom, the plots that show it, the numbers, and what to do.

use super::super::words::finding as words;
use super::markup::{Markup, class, none};
use super::{Cell, details, heat, plots, table, time};
use crate::finding::{Evidence, FileTable, Finding, Fix};
use crate::text::escape::{command, label, sentence};
use crate::text::units::{share, value};
use crate::view::{Heat, Plots};

/// Width of names of numbers and files.
const NAME_COLUMNS: usize = 80;

pub(super) fn all(to: &mut Markup, findings: &[Finding], plots: Option<&Plots>) {
    for (i, finding) in findings.iter().enumerate() {
        to.newline();
        let attributes = class(format_args!("finding {}", words::severity(finding.severity)));
        to.element("article", &attributes.and("id", format_args!("finding-{i}")), |to| {
            let waits = plots.and_then(|it| Some((it.of_findings.get(i)?.as_ref()?, it.window_ns)));
            write(to, finding, waits);
        });
    }
}

fn write(to: &mut Markup, finding: &Finding, waits: Option<(&Heat, u64)>) {
    to.element("h3", &none(), |to| {
        to.tag("span", &class("tag"), &words::tag(finding));
        to.text(" ");
        to.words(&sentence(&finding.title));
    });
    to.element("dl", &class("facts"), |to| {
        let mut facts = words::facts(finding, true);
        facts.push(("confidence", share(finding.confidence)));
        for (name, text) in facts {
            to.tag("dt", &none(), name);
            to.prose("dd", &none(), &text);
        }
    });
    causes(to, finding);
    if let Some(chart) = &finding.chart {
        time::chart(to, chart);
    }
    plots::sizes(to, &finding.sizes);
    if let Some((waits, window_ns)) = waits {
        heat::write(to, waits, window_ns, "how long the victim waited for a CPU", "waits");
    }
    if let Some(files) = &finding.files {
        self::files(to, files);
    }
    evidence(to, &finding.evidence);
    advice(to, finding);
}

fn causes(to: &mut Markup, finding: &Finding) {
    let (name, rows) = words::causes(finding, true);
    if rows.is_empty() {
        return;
    }
    let cells = |row: words::CauseRow| {
        let who = match row.whom {
            Some(whom) => format!("{}; {whom}", row.who),
            None => row.who,
        };
        vec![Cell::Number(share(row.share)), Cell::Bar(row.share, "c-blame"), Cell::Words(who)]
    };
    table(to, &["of the loss", "", name], rows.into_iter().map(cells).collect());
}

/// What the disk's IO was for, by transfers and by bytes, because neither follows from the other.
fn files(to: &mut Markup, files: &FileTable) {
    let mut rows = Vec::new();
    for row in &files.rows {
        let [name, number, ios, ios_share, bytes, bytes_share] = words::file(row, "", NAME_COLUMNS);
        rows.push(vec![
            Cell::Number(ios),
            Cell::Number(ios_share),
            Cell::Bar(row.ios_share, "c-count"),
            Cell::Number(bytes),
            Cell::Number(bytes_share),
            Cell::Bar(row.bytes_share, "c-bytes"),
            Cell::Number(number),
            Cell::Words(name),
        ]);
    }
    let of = sentence(&files.of);
    table(to, &["IOs", "", "", "bytes", "", "", "files", &of], rows);
}

fn evidence(to: &mut Markup, evidence: &[Evidence]) {
    if evidence.is_empty() {
        return;
    }
    details(to, "evidence", |to| {
        for (origin, items) in words::evidence(evidence) {
            to.tag("p", &class("aside"), &origin);
            let cells = |item: &Evidence| {
                vec![
                    Cell::Words(label(&item.name, NAME_COLUMNS)),
                    Cell::Number(value(item.value, item.unit)),
                    Cell::Words(item.note.as_deref().map(sentence).unwrap_or_default()),
                ]
            };
            table(to, &["what", "value", "remark"], items.into_iter().map(cells).collect());
        }
    });
}

fn advice(to: &mut Markup, finding: &Finding) {
    if finding.fix.is_empty() && finding.confirm.is_none() && finding.prove.is_none() {
        return;
    }
    to.element("ul", &class("advice"), |to| {
        for fix in &finding.fix {
            to.element("li", &none(), |to| remedy(to, fix));
        }
        if let Some(confirm) = &finding.confirm {
            to.element("li", &none(), |to| {
                to.tag("b", &none(), "confirm:");
                to.tag("pre", &none(), &command(&confirm.command));
                if let Some(expect) = &confirm.expect {
                    remark(to, "expect", &sentence(expect));
                }
            });
        }
        if let Some(prove) = &finding.prove {
            to.element("li", &none(), |to| {
                to.tag("b", &none(), "prove");
                to.words(", by an experiment that says what it will change, and asks");
                to.words(words::prove_with(finding));
                to.words(":");
                to.tag("pre", &none(), &command(prove));
            });
        }
    });
}

fn remedy(to: &mut Markup, fix: &Fix) {
    to.tag("b", &none(), "fix: ");
    to.words(&sentence(&fix.action));
    if let Some(text) = &fix.command {
        to.tag("pre", &none(), &command(text));
    }
    if let Some(risk) = &fix.risk {
        remark(to, "risk", &sentence(risk));
    }
    if let Some(promise) = &fix.expect {
        remark(to, "expect", &words::promise(promise));
    }
}

fn remark(to: &mut Markup, name: &'static str, text: &str) {
    to.element("p", &none(), |to| {
        to.tag("b", &none(), name);
        to.text(": ");
        to.words(text);
    });
}
