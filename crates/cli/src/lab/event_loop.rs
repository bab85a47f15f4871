// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A victim that serves all its clients with one thread, an event loop. Its fault is a request that occupies it for long. The
//! clients measure the latency.

use super::scenario::check_period_us;
use super::stage::{Job, Stage};
use super::victim::{Summary, Window, compute, now_ns, sleep_until};
use super::victims::{Running, Victim, VictimSpec, WhichRun};
use anyhow::{Context as _, Result, ensure};
use rustix::event::epoll;
use rustix::thread::ClockId;
use serde::Deserialize;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A request that is answered at once, and one that takes long.
const QUICK: u8 = b'q';
const LONG: u8 = b'l';

/// An event loop and its clients.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoopSpec {
    /// Clients with a connection each, whose requests are answered at once.
    clients: u32,
    /// Time from one request of a client to the next, in microseconds.
    period_us: u64,
    /// Time from one long request to the next, in microseconds.
    long_period_us: u64,
    /// What the loop does for a long request.
    meanwhile: Meanwhile,
    /// For how long it does so with the fault, in microseconds.
    hold_us: u64,
    /// The same in the control run.
    control_hold_us: u64,
}

/// What occupies the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Meanwhile {
    Computes,
    Sleeps,
}

impl Meanwhile {
    fn word(self) -> &'static str {
        match self {
            Self::Computes => "computes",
            Self::Sleeps => "sleeps",
        }
    }
}

impl Victim for LoopSpec {
    fn validate(&self, _cgroup: &str) -> Result<()> {
        ensure!((1..=64).contains(&self.clients), "`victim.loop.clients` must be 1 to 64");
        check_period_us("victim.loop.period_us", self.period_us)?;
        check_period_us("victim.loop.long_period_us", self.long_period_us)?;
        for (key, value) in [("hold_us", self.hold_us), ("control_hold_us", self.control_hold_us)] {
            ensure!(value <= 1_000_000, "`victim.loop.{key}` must be at most 1000000");
        }
        Ok(())
    }

    fn threads(&self, _with_faults: bool) -> u32 {
        1
    }

    fn describe(&self) -> Vec<String> {
        let ms = |us: u64| us as f64 / 1000.0;
        vec![
            format!(
                "one thread serves {} clients, each of which asks it every {} ms",
                self.clients,
                ms(self.period_us)
            ),
            format!(
                "every {} ms it {} for {} ms, in the control run for {} ms",
                ms(self.long_period_us),
                self.meanwhile.word(),
                ms(self.hold_us),
                ms(self.control_hold_us)
            ),
        ]
    }

    fn prepare(&self, stage: &mut Stage) -> Result<()> {
        stage.place.choose_port()
    }

    fn start(&self, spec: &VictimSpec, stage: &Stage, run: WhichRun<'_>) -> Result<Running> {
        let hold_us = if run.with_faults { self.hold_us } else { self.control_hold_us };
        let port = format!("--port={}", stage.place.port()?);
        let job = |comm, cgroup, cpus, what| {
            let (nice, realtime) = (None, false);
            stage.start_one(&Job { comm, cgroup, cpus, nice, realtime, what })
        };
        let what = [
            "loop".into(),
            port.clone(),
            format!("--meanwhile={}", self.meanwhile.word()),
            format!("--hold-us={hold_us}"),
        ];
        let served = job("victim", &spec.cgroup, spec.cpus.as_deref(), &what)?;
        let what = [
            "clients".into(),
            port,
            format!("--clients={}", self.clients),
            format!("--period-us={}", self.period_us),
            format!("--long-period-us={}", self.long_period_us),
        ];
        let measures = job("clients", "clients", None, &what)?;
        Ok(Running { pid: served.pid(), measures, beside: Some(served), limit: None })
    }
}

/// Arguments of the hidden subcommand of the victim.
#[derive(Debug, clap::Args)]
pub(crate) struct LoopArgs {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    meanwhile: Meanwhile,
    #[arg(long)]
    hold_us: u64,
}

/// Arguments of the hidden subcommand of its clients.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientsArgs {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    clients: u32,
    #[arg(long)]
    period_us: u64,
    #[arg(long)]
    long_period_us: u64,
}

/// Serves all who connect, for ever.
pub(crate) fn serve(args: &LoopArgs) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port))?;
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = |it: &dyn std::os::fd::AsFd, number: usize| {
        let data = epoll::EventData::new_u64(number as u64 + 1);
        epoll::add(&poll, it, data, epoll::EventFlags::IN)
    };
    let data = epoll::EventData::new_u64(0);
    epoll::add(&poll, &listener, data, epoll::EventFlags::IN)?;
    println!("ready");
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(64);
    loop {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let Some(number) = usize::try_from(event.data.u64())?.checked_sub(1) else {
                if let Ok((connection, _)) = listener.accept() {
                    watch(&connection, connections.len())?;
                    connections.push(Some(connection));
                }
                continue;
            };
            let goes_on = connections[number].as_mut().is_some_and(|it| answer(args, it).is_ok());
            if !goes_on {
                connections[number] = None;
            }
        }
    }
}

fn answer(args: &LoopArgs, connection: &mut TcpStream) -> io::Result<()> {
    let mut request = [0];
    connection.read_exact(&mut request)?;
    if request[0] == LONG {
        match args.meanwhile {
            Meanwhile::Computes => compute(args.hold_us * 1000),
            Meanwhile::Sleeps => std::thread::sleep(Duration::from_micros(args.hold_us)),
        }
    }
    connection.write_all(b"x")
}

/// Asks from the first line on standard input to the second, which gives a [`Window`]. Prints the [`Summary`] of that
/// window as JSON: of the requests that take no time.
pub(crate) fn ask_until_told(args: &ClientsArgs) -> Result<()> {
    let mut stdin = io::stdin().lock();
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    line.clear();
    let stop = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let client = |period_us, request| {
            let stop = &stop;
            scope.spawn(move || ask(args.port, period_us, request, stop))
        };
        let long = client(args.long_period_us, LONG);
        let clients: Vec<_> = (0..args.clients).map(|_| client(args.period_us, QUICK)).collect();
        let told = stdin.read_line(&mut line);
        stop.store(true, Ordering::Relaxed);
        let mut answers = Vec::new();
        for client in clients {
            answers.extend(client.join().expect("a client does not panic")?);
        }
        long.join().expect("a client does not panic")?;
        told?;
        anyhow::Ok(answers)
    })?;
    let window: Window = line.parse()?;
    println!("{}", serde_json::to_string(&Summary::of_answers(&answers, window))?);
    Ok(())
}

/// Returns when each request was due and when it was answered, in nanoseconds.
fn ask(port: u16, period_us: u64, request: u8, stop: &AtomicBool) -> Result<Vec<(u64, u64)>> {
    let mut connection =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("the loop does not listen")?;
    let mut answers = Vec::new();
    let mut due_ns = now_ns(ClockId::Monotonic);
    while !stop.load(Ordering::Relaxed) {
        sleep_until(due_ns);
        connection.write_all(&[request])?;
        connection.read_exact(&mut [0])?;
        let done_ns = now_ns(ClockId::Monotonic);
        answers.push((due_ns, done_ns));
        due_ns = (due_ns + period_us * 1000).max(done_ns);
    }
    Ok(answers)
}
