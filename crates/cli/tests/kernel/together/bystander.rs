// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whoever an interrupt comes to has nothing to do with the sleep that it ends, whatever call it is in.

use crate::scratch::{in_scratch, record};
use rusqlite::Connection;
use std::path::Path;

/// A sender whose messages do not fit into the buffers, and one that reads each 45 ms after the one before: 40 ms after it has
/// read, the kernel's timer confirms that on its CPU, where a third process reads zeros all the time.
const PROGRAM: &str = r#"
import os, socket, sys, time
cpus = sorted(os.sched_getaffinity(0))
SIZE, BUFFER = 65536, 16384

def child(work, cpu):
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, {cpu})
        work()
        os._exit(0)
    return pid

def reads_zeros():
    zeros = os.open("/dev/zero", os.O_RDONLY)
    while True:
        os.read(zeros, 1 << 16)

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
listener.bind(("127.0.0.1", 0))
listener.listen()

def reads_late():
    connection = listener.accept()[0]
    while True:
        left = SIZE
        while left:
            left -= len(connection.recv(left))
        time.sleep(0.045)

def sends():
    it = socket.socket()
    it.connect(listener.getsockname())
    it.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        it.sendall(bytes(SIZE))

bystander, reader = child(reads_zeros, cpus[0]), child(reads_late, cpus[0])
sender = child(sends, cpus[-1])
os.waitpid(sender, 0)
for pid in (bystander, reader):
    os.kill(pid, 9)
    os.waitpid(pid, 0)
with open(sys.argv[1], "w") as told:
    print(bystander, reader, sender, file=told)
"#;

/// Sleep of a process in its sends in nanoseconds, in all, and what a process was told to have ended.
fn in_sends(recording: &Path, sender: u32, by: u32) -> (f64, f64) {
    let connection = Connection::open(recording).unwrap();
    let sum = |condition: &str| {
        let sql = format!(
            "SELECT sum(ns) FROM sleep JOIN processes USING (proc)
             WHERE pid = {sender} AND call = 'sendto' AND {condition}"
        );
        let sum = connection.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0));
        sum.unwrap().unwrap_or(0) as f64
    };
    let ended =
        format!("json_extract(woken, '$.proc') IN (SELECT proc FROM processes WHERE pid = {by})");
    (sum("1"), sum(&ended))
}

#[test]
fn who_is_interrupted_in_a_call_on_a_file_wakes_nobody() {
    in_scratch("who_is_interrupted_in_a_call_on_a_file_wakes_nobody", |scratch| {
        let [recording, told] = ["x.deburr", "told"].map(|it| scratch.join(it));
        let mut run = record(&recording, &[]);
        assert!(run.args(["python3", "-c", PROGRAM]).arg(&told).status().unwrap().success());
        let told = std::fs::read_to_string(told).unwrap();
        let pids: Vec<u32> = told.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        let [bystander, reader, sender] = pids[..] else { panic!("{told}") };
        let (all, by_bystander) = in_sends(&recording, sender, bystander);
        let (_, by_reader) = in_sends(&recording, sender, reader);
        // It sends for 4 s, and hardly computes.
        assert!(all > 2e9, "{all} ns in sends");
        assert!(by_bystander < all * 0.01, "{by_bystander} ns of {all} ns by the bystander");
        assert!(by_reader > all * 0.02, "{by_reader} ns of {all} ns by the reader");
        None
    });
}
