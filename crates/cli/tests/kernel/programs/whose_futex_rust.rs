// SPDX-License-Identifier: Apache-2.0 OR MIT
// What whose_futex.c does, with the locks and conditions of Rust's standard library. The value of such a condition is how
// often it was notified: two threads wait on one that was notified twice, all the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

static STOP: AtomicBool = AtomicBool::new(false);
static POOL: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
static TWICE: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
static WANTED: Mutex<()> = Mutex::new(());
static KEPT: Mutex<()> = Mutex::new(());
static WORK_NS: AtomicU64 = AtomicU64::new(0);
static LOCKS_NS: AtomicU64 = AtomicU64::new(0);
static LONE_NS: AtomicU64 = AtomicU64::new(0);

fn nap(ms: u64) {
    sleep(Duration::from_millis(ms));
}

fn timed<T>(sum: &AtomicU64, what: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let it = what();
    sum.fetch_add(begin.elapsed().as_nanos() as u64, Relaxed);
    it
}

fn pooled((mutex, condition): &'static (Mutex<()>, Condvar)) {
    while !STOP.load(Relaxed) {
        let guard = mutex.lock().unwrap();
        drop(timed(&WORK_NS, || condition.wait(guard).unwrap()));
    }
}

fn wants() {
    while !STOP.load(Relaxed) {
        let guard = timed(&LOCKS_NS, || WANTED.lock().unwrap());
        nap(10);
        drop(guard);
        nap(2);
    }
}

fn keeps() {
    while !STOP.load(Relaxed) {
        let guard = KEPT.lock().unwrap();
        nap(20);
        drop(guard);
        nap(5);
    }
}

fn lone() {
    while !STOP.load(Relaxed) {
        drop(timed(&LONE_NS, || KEPT.lock().unwrap()));
        nap(10);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, told, seconds, mode] = &arguments[..] else { panic!("FILE SECONDS idle|locks") };
    for _ in 0..2 {
        TWICE.1.notify_all();
    }
    let mut threads = vec![];
    for _ in 0..2 {
        threads.push(spawn(|| pooled(&POOL)));
        threads.push(spawn(|| pooled(&TWICE)));
    }
    if mode == "locks" {
        for work in [wants, wants, wants, keeps, lone] {
            threads.push(spawn(work));
        }
    }
    for _ in 0..50 * seconds.parse::<u32>().unwrap() {
        nap(20);
        POOL.1.notify_all();
    }
    STOP.store(true, Relaxed);
    for _ in 0..50 {
        nap(2);
        POOL.1.notify_all();
        TWICE.1.notify_all();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    let [work, locks, lone] =
        [&WORK_NS, &LOCKS_NS, &LONE_NS].map(|it| it.load(Relaxed) as f64 / 1e9);
    std::fs::write(told, format!("{} {work:.9} {locks:.9} {lone:.9}\n", std::process::id()))
        .unwrap();
}
