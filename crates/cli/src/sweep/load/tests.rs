// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the generator against small servers in this process. Times are compared with each other and with sleeps of
//! the servers, which never last shorter than requested.

use super::*;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

const MS: u64 = 1_000_000;

/// Serves each connection in a thread of its own until the test program exits.
fn server(serve: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Reads the head of one request; returns whether it is the expected one.
fn head(stream: &mut TcpStream) -> bool {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"\r\n\r\n") {
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return false;
        }
        seen.push(byte[0]);
    }
    seen.starts_with(b"GET /work?x=1 HTTP/1.1\r\n") && seen.windows(6).any(|it| it == b"host: ")
}

fn say(stream: &mut TcpStream, status: &str) {
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
    let _ = stream.write_all(answer.as_bytes());
}

fn http(address: SocketAddr) -> Target {
    Target::Http { address, path: "/work?x=1".parse().unwrap(), host: address.to_string() }
}

fn load(target: Target, rate_per_s: f64, window_ms: u64) -> Load {
    let start_ns = monotonic_ns() + 10 * MS;
    let from_ns = start_ns + 100 * MS;
    let to_ns = from_ns + window_ms * MS;
    Load { target, rate_per_s, start_ns, from_ns, to_ns, drain_ns: 2000 * MS, max_connections: 64 }
}

fn never() -> bool {
    false
}

#[test]
fn every_request_of_the_window_is_accounted_for() {
    let address = server(|mut stream| {
        while head(&mut stream) {
            say(&mut stream, "200 OK");
        }
    });
    let outcome = drive(&load(http(address), 200.0, 500), &never).unwrap();
    let requests = &outcome.requests;
    assert!((99..=101).contains(&requests.due), "{requests:?}");
    assert_eq!((requests.answered, requests.failed, requests.unanswered), (requests.due, 0, 0));
    assert!(outcome.warmup.answered > 0 && requests.connections >= 1, "{outcome:?}");
    assert!(!outcome.latency.unwrap().at_least && !outcome.stopped);
    assert!(requests.generator_busy_ns.is_some_and(|ns| ns > 0), "{requests:?}");
}

/// A stall of the server delays all requests that are due during it, not only those in flight when it begins.
#[test]
fn a_stall_is_felt_by_all_who_come_meanwhile() {
    static GATE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    static SERVED: AtomicU32 = AtomicU32::new(0);
    let address = server(|mut stream| {
        while head(&mut stream) {
            let gate = GATE.lock().unwrap();
            if SERVED.fetch_add(1, Ordering::Relaxed) == 40 {
                thread::sleep(Duration::from_millis(400));
            }
            drop(gate);
            say(&mut stream, "200 OK");
        }
    });
    // 20 requests are due before the window. The stall begins after 20 of the window, and 80 of its 200 requests are
    // due during the stall.
    let outcome = drive(&load(http(address), 200.0, 1000), &never).unwrap();
    let latency = outcome.latency.unwrap();
    assert_eq!(outcome.requests.answered, outcome.requests.due, "{outcome:?}");
    assert!(latency.max_ns >= 395 * MS, "{latency:?}");
    // In a closed loop only one request of 200 would meet the stall. Here latencies fall from 400 ms to 0 over the
    // stall: their sum alone is 16 s, which is 80 ms for each of the 200.
    assert!(latency.mean_ns >= 60e6, "{latency:?}");
    assert!(latency.p99_ns.unwrap() >= 350 * MS, "{latency:?}");
}

#[test]
fn refusals_errors_and_silence_are_told_apart() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = drive(&load(http(closed), 100.0, 200), &never).unwrap();
    assert_eq!(refused.requests.failed, refused.requests.due);
    assert!(refused.requests.failures.contains_key("connection refused"), "{refused:?}");
    assert!(
        refused.latency.is_none() && refused.warmup.failures.contains_key("connection refused")
    );

    let no = server(|mut stream| {
        while head(&mut stream) {
            say(&mut stream, "503 Service Unavailable");
        }
    });
    let no = drive(&load(http(no), 100.0, 200), &never).unwrap().requests;
    assert_eq!(no.failures.get("HTTP status 503"), Some(&no.due));

    let junk = server(|mut stream| {
        let _ = head(&mut stream);
        let _ = stream.write_all(b"\x00\x01 nonsense\r\n\r\n");
    });
    let junk = drive(&load(http(junk), 100.0, 200), &never).unwrap().requests;
    assert_eq!(junk.failures.get("the answer is no HTTP"), Some(&junk.due), "{junk:?}");

    let silent = server(|mut stream| while head(&mut stream) {});
    let mut load = load(http(silent), 100.0, 200);
    load.drain_ns = 100 * MS;
    let silent = drive(&load, &never).unwrap();
    assert_eq!(silent.requests.unanswered, silent.requests.due);
    assert!(silent.latency.is_none(), "nothing was answered: {silent:?}");
}

/// Servers may close idle connections; the next request must not count as failed.
#[test]
fn a_connection_that_was_closed_in_between_is_replaced() {
    let address = server(|mut stream| {
        if head(&mut stream) {
            say(&mut stream, "200 OK");
        }
    });
    let requests = drive(&load(http(address), 100.0, 400), &never).unwrap().requests;
    assert_eq!((requests.failed, requests.answered), (0, requests.due), "{requests:?}");
}

#[test]
fn no_more_connections_than_allowed_and_said() {
    let address = server(|mut stream| {
        while head(&mut stream) {
            thread::sleep(Duration::from_millis(50));
            say(&mut stream, "200 OK");
        }
    });
    let mut load = load(http(address), 200.0, 300);
    load.max_connections = 4;
    let outcome = drive(&load, &never).unwrap();
    assert_eq!(outcome.requests.connections, 4);
    assert!(outcome.requests.connections_exhausted);
    // Four at a time, 50 ms each, are 80/s at most. The other requests waited, which their latency includes.
    assert!(outcome.requests.answered_in_window <= 30, "{outcome:?}");
    assert!(outcome.latency.unwrap().max_ns > 150 * MS, "{outcome:?}");
}

#[test]
fn lines_are_echoed_or_wrong() {
    let echo = server(|mut stream| {
        let mut buffer = [0; 256];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            let _ = stream.write_all(&buffer[..read]);
        }
    });
    let requests =
        drive(&load(Target::Tcp { address: echo }, 100.0, 200), &never).unwrap().requests;
    assert_eq!((requests.failed, requests.answered), (0, requests.due), "{requests:?}");
    let wrong = server(|mut stream| {
        let mut buffer = [0; 256];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            let _ = stream.write_all(&vec![b'!'; read]);
        }
    });
    let requests =
        drive(&load(Target::Tcp { address: wrong }, 100.0, 200), &never).unwrap().requests;
    assert_eq!(requests.failures.get("the answer is not what was sent"), Some(&requests.due));
}

#[test]
fn it_stops_when_told() {
    let address = server(|mut stream| while head(&mut stream) {});
    let load = load(http(address), 10.0, 600_000);
    let outcome = drive(&load, &|| true).unwrap();
    assert!(outcome.stopped && monotonic_ns() < load.to_ns);
}

/// Requests that the generator never began count as late, however punctual the ones were that it did begin.
#[test]
fn requests_that_were_never_begun_are_late() {
    let pool = Pool::new(Target::Tcp { address: "127.0.0.1:9".parse().unwrap() }, 1);
    let lateness_ns = |begun: usize| {
        let ledger = Ledger {
            window: vec![State::Open; 200],
            late_ns: vec![1000; begun],
            ..Ledger::default()
        };
        let dues = (0..).map(|i| i * MS);
        ledger.outcome(dues, 1200 * MS, &pool, false).requests.generator_late_p99_ns
    };
    assert_eq!(lateness_ns(200), 1000);
    assert_eq!(lateness_ns(199), 1000, "one of 200 is none of the hundredth");
    assert!((1000 * MS..=1200 * MS).contains(&lateness_ns(100)), "{}", lateness_ns(100));
}
