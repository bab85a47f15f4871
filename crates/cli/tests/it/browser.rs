// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages in a real browser: headless Chromium opens them in light and dark, says nothing, asks nobody, and draws.
//!
//! The browser is driven through a pair of pipes (`--remote-debugging-pipe`): messages of the DevTools protocol as JSON,
//! each with a final NUL.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common::skip_or_fail;
use crate::program::{run, scratch};
use crate::repo::root;
use deburr_core::render;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const BROWSERS: [&str; 3] = ["chromium", "google-chrome", "chromium-browser"];
/// Longest time for an answer. A browser on a busy machine takes seconds for the first one.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one tab.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    number: u64,
    /// What came besides answers since the last look.
    events: Vec<Value>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Starts the first browser that is here; `None` without one.
    fn start(home: &Path) -> Option<Self> {
        let start = |name: &&str| {
            // The browser reads messages from file 3 and writes to file 4.
            let mut command = Command::new("sh");
            command.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh", name]);
            command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
            command.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
            command.args(["--disable-component-update", "--disable-dev-shm-usage"]);
            command.args(["--remote-debugging-pipe", "--window-size=1100,900"]);
            command.arg(format!("--user-data-dir={}", home.join("profile").display()));
            command.env("HOME", home).env("LANG", "en_US.UTF-8").arg("about:blank");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        let is_here = |name: &&&str| {
            Command::new(name).arg("--version").output().is_ok_and(|it| it.status.success())
        };
        let mut child = start(BROWSERS.iter().find(is_here)?);
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (send, receive) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(from).split(0) {
                let Ok(message) = message else { return };
                let Ok(value) = serde_json::from_slice(&message) else { continue };
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Self { child, to, from: receive, session: String::new(), number: 0, events: vec![] };
        let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", target);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Network", "Log", "Runtime", "Audits"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a message and waits for its answer.
    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        loop {
            let answer = self.from.recv_timeout(PATIENCE).expect("the browser answers");
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// Opens a page in a theme, and waits until it is shown. Returns what it asked others for, and what the browser had
    /// to say about it.
    fn open(&mut self, page: &Path, theme: &str) -> (Vec<String>, Vec<Value>) {
        let feature = json!({ "name": "prefers-color-scheme", "value": theme });
        self.ask("Emulation.setEmulatedMedia", json!({ "features": [feature] }));
        self.events.clear();
        let address = format!("file://{}", page.display());
        let answer = self.ask("Page.navigate", json!({ "url": address }));
        assert!(answer["errorText"].is_null(), "{answer}");
        let is_shown = "new Promise(done => document.readyState === 'complete' ? done(true) \
                        : addEventListener('load', () => done(true)))";
        while !self.events.iter().any(|it| it["method"] == "Page.loadEventFired") {
            self.value(is_shown);
        }
        // The whole page is in the window, which need not be scrolled.
        let height = self.value("document.documentElement.scrollHeight");
        let window =
            json!({ "width": 1100, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.ask("Emulation.setDeviceMetricsOverride", window);
        let asked = |it: &Value| Some(it["params"]["request"]["url"].as_str()?.to_owned());
        let requests = self.events.iter().filter(|it| it["method"] == "Network.requestWillBeSent");
        let outside = |url: &String| *url != address && !url.starts_with("data:");
        let requests = requests.filter_map(asked).filter(outside).collect();
        let said = [
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Audits.issueAdded",
        ];
        let is_said = |it: &&Value| it["method"].as_str().is_some_and(|name| said.contains(&name));
        let said = self.events.iter().filter(is_said).cloned().collect();
        (requests, said)
    }

    /// The value of an expression in the page.
    fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.ask("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// A picture of a part of the page.
    fn picture(&mut self, part: &Value) -> String {
        let mut clip = part.clone();
        clip["scale"] = 1.into();
        let parameters = json!({ "format": "png", "clip": clip, "optimizeForSpeed": true });
        self.ask("Page.captureScreenshot", parameters)["data"].as_str().unwrap().to_owned()
    }
}

/// Pages of tables and sentences.
const WITHOUT_PLOTS: [&str; 1] = ["read-iostat"];
/// Where the plots are.
const PLOTS: &str = "[...document.querySelectorAll('svg[role=img]')].filter(it => it.checkVisibility()).map(it => { \
                     const at = it.getBoundingClientRect(); \
                     return { x: at.x + scrollX, y: at.y + scrollY, width: at.width, height: at.height } })";
/// Hides what is drawn in the plots. Scripts of the debugger may do what those of the page may not.
const HIDE: &str =
    "document.querySelectorAll('svg[role=img] > *').forEach(it => it.style.visibility = 'hidden')";

#[test]
fn pages_open_without_a_word_and_draw() {
    const TEST: &str = "pages_open_without_a_word_and_draw";
    let home = scratch();
    let Some(mut browser) = Browser::start(home.path()) else {
        let missing = format!("none of {} is here (`scripts/setup --lab`)", BROWSERS.join(", "));
        return skip_or_fail("program", TEST, &missing);
    };
    it_is_seen_what_a_page_does(&mut browser, home.path());
    for (name, html) in pages(home.path()) {
        let page = home.path().join(format!("{name}.html"));
        std::fs::write(&page, html).unwrap();
        let mut open = |theme: &str| {
            let (requests, said) = browser.open(&page, theme);
            assert!(requests.is_empty() && said.is_empty(), "{name}: {requests:?} {said:?}");
            let wide = browser.value("document.documentElement.scrollWidth - innerWidth");
            assert!(wide.as_i64().unwrap() <= 0, "{name} is wider than the window");
            let plots = browser.value(PLOTS).as_array().unwrap().clone();
            assert_eq!(plots.is_empty(), WITHOUT_PLOTS.contains(&name), "{name}: {plots:?}");
            let shown: Vec<String> = plots.iter().map(|it| browser.picture(it)).collect();
            (plots, shown)
        };
        let (_, light) = open("light");
        let (plots, dark) = open("dark");
        assert!(light.iter().zip(&dark).all(|(light, dark)| light != dark), "{name}");
        if name == "writeback" {
            plots_have_one_cursor_and_one_zoom(&mut browser);
        }
        browser.value(HIDE);
        for (plot, shown) in plots.iter().zip(&dark) {
            assert!(browser.picture(plot) != *shown, "{name}: nothing is drawn at {plot}");
        }
    }
}

/// A pointer over one of the plots over time moves a cursor in all of them, and a drag zooms all of them.
fn plots_have_one_cursor_and_one_zoom(browser: &mut Browser) {
    let plots = browser.value("document.querySelectorAll('svg.time').length").as_u64().unwrap();
    assert!(plots > 3, "{plots}");
    let at = browser.value(
        "(() => { const at = document.querySelector('svg.time').getBoundingClientRect(); \
         return [at.x + at.width / 2, at.y + at.height / 3] })()",
    );
    let [x, y] = [0, 1].map(|i| at[i].as_f64().unwrap());
    let mouse = |browser: &mut Browser, kind: &str, x: f64, buttons: u32| {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let event = json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1 });
        browser.ask("Input.dispatchMouseEvent", event);
    };
    let number = "document.querySelectorAll('line.cursor[visibility=visible]').length";
    mouse(browser, "mouseMoved", x, 0);
    assert_eq!(browser.value(number), plots);
    // The widths of what is shown of the time: one for all plots.
    let widths = "[...new Set([...document.querySelectorAll('svg.span')].map(it => Math.round(it.viewBox.baseVal.width)))]";
    let whole = browser.value(widths);
    mouse(browser, "mousePressed", x, 1);
    mouse(browser, "mouseMoved", x + 60.0, 1);
    mouse(browser, "mouseReleased", x + 60.0, 0);
    let zoomed = browser.value(widths);
    let of = |widths: &Value| widths[0].as_u64().unwrap();
    assert!(of(&zoomed) < of(&whole) / 5, "{whole} {zoomed}");
    browser.value("document.querySelector('svg.time').focus()");
    let key = json!({ "type": "keyDown", "key": "Escape", "code": "Escape" });
    browser.ask("Input.dispatchKeyEvent", key);
    assert_eq!(browser.value(widths), whole);
}

/// A page of each kind, with its name.
fn pages(home: &Path) -> Vec<(&'static str, String)> {
    let report = |scenario: &str| {
        let recording = root().join("fixtures/lab").join(scenario).join("recording.deburr");
        let page = home.join(scenario);
        let arguments =
            ["report", "-q", recording.to_str().unwrap(), "--html", page.to_str().unwrap()];
        run(&arguments, 0);
        std::fs::read_to_string(&page).unwrap()
    };
    let of = |name: &'static str, arguments: &[&str]| {
        let page = home.join(name);
        run(&[arguments, &["-q", "--html", page.to_str().unwrap()]].concat(), 0);
        (name, std::fs::read_to_string(&page).unwrap())
    };
    let path = |name: &str| root().join("fixtures").join(name).display().to_string();
    let recording = |name: &str| path(&format!("lab/{name}/recording.deburr"));
    let [two, eight, busy, slow] =
        ["neighbour-2", "neighbour-8", "io-neighbour", "slow-device"].map(recording);
    let [runqlat, iostat] = ["neighbour-runqlat.txt", "writeback-iostat-xmt.txt"]
        .map(|name| path(&format!("transcripts/{name}")));
    let fixture = |name: &str| std::fs::read(root().join("fixtures").join(name)).unwrap();
    let check = serde_json::from_slice(&fixture("cpu-check/busy-vm.json")).unwrap();
    let sweep = serde_json::from_slice(&fixture("sweep/example.json")).unwrap();
    let [falls, follows] = ["prove/falls.json", "prove/follows.json"]
        .map(|name| serde_json::from_slice(&fixture(name)).unwrap());
    vec![
        ("neighbour", report("neighbour-4")),
        ("writeback", report("writeback")),
        ("cpu-check", render::cpu_check_html(&check).unwrap()),
        ("sweep", render::sweep_html(&sweep).unwrap()),
        ("prove", render::experiment_html(&falls).unwrap()),
        ("prove-period", render::experiment_html(&follows).unwrap()),
        of("compare", &["compare", &two, &eight]),
        of("compare-io", &["compare", &busy, &slow]),
        of("read", &["read", &runqlat]),
        of("read-iostat", &["read", &iostat]),
        // Root or not: what is seen differs, the page must not.
        of("live", &["diagnose", "-d1"]),
    ]
}

/// Fails if a page that talks, or asks others, looks like one that does not.
fn it_is_seen_what_a_page_does(browser: &mut Browser, home: &Path) {
    let page = home.join("talks.html");
    let image = "http://127.0.0.1:9/image.png";
    std::fs::write(&page, format!("<script>console.log(1)</script><img src='{image}'>")).unwrap();
    let (requests, said) = browser.open(&page, "light");
    assert_eq!(requests, [image]);
    assert!(said.iter().any(|it| it["method"] == "Runtime.consoleAPICalled"), "{said:?}");
    let forbidden = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\">";
    std::fs::write(&page, format!("{forbidden}<script>document.title = 'ran'</script>")).unwrap();
    let (requests, said) = browser.open(&page, "light");
    assert!(requests.is_empty() && !said.is_empty(), "{requests:?}, {said:?}");
    assert_eq!(browser.value("document.title"), "");
}
