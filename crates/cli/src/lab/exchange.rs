// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A victim whose threads exchange messages with another process, over connections that they may share.

use super::scenario::check_period_us;
use super::stage::{Job, Stage};
use super::stalls::{Calls, For, Stalls};
use super::victim::{Summary, Window, now_ns, sleep_until};
use super::victims::{Running, Victim, VictimSpec, WhichRun};
use anyhow::{Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{ClockId, set_name};
use serde::Deserialize;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of a message, and of the buffers of those who do not wait for answers: one message fills them, unless the sender
/// waits for room. Then they have room for a whole one, so that nobody waits who need not.
const QUESTION: usize = 64;
const LOAD: usize = 64 << 10;
const BUFFER: usize = 16 << 10;
const LARGE_BUFFER: usize = 128 << 10;

/// A victim with a backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExchangeSpec {
    does: Does,
    workers: u32,
    /// Connections to the backend. A worker that finds all of them taken waits for one.
    connections: u32,
    /// Time from one message of a worker to the next, in microseconds.
    period_us: u64,
    /// Time that the backend sleeps for each message with the fault, in microseconds.
    hold_us: u64,
    /// The same in the control run.
    control_hold_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Does {
    /// Waits for an answer to each message.
    Asks,
    /// Sends large messages, which nobody answers.
    Sends,
    /// The same without ever standing in a call that sends: it waits until there is room, as an event loop does.
    Streams,
    /// The same to those that have asked for the connection.
    Serves,
}

impl Does {
    fn word(self) -> &'static str {
        match self {
            Self::Asks => "asks",
            Self::Sends => "sends",
            Self::Streams => "streams",
            Self::Serves => "serves",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Asks => QUESTION,
            Self::Sends | Self::Streams | Self::Serves => LOAD,
        }
    }

    fn buffer(self) -> usize {
        if self.waits_for_room() { LARGE_BUFFER } else { BUFFER }
    }

    fn waits_for_room(self) -> bool {
        matches!(self, Self::Streams | Self::Serves)
    }
}

impl Victim for ExchangeSpec {
    fn validate(&self, _cgroup: &str) -> Result<()> {
        ensure!((1..=64).contains(&self.workers), "`victim.exchange.workers` must be 1 to 64");
        ensure!(
            (1..=64).contains(&self.connections),
            "`victim.exchange.connections` must be 1 to 64"
        );
        check_period_us("victim.exchange.period_us", self.period_us)?;
        for (key, value) in [("hold_us", self.hold_us), ("control_hold_us", self.control_hold_us)] {
            ensure!(value <= 1_000_000, "`victim.exchange.{key}` must be at most 1000000");
        }
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        let ms = |us: u64| us as f64 / 1000.0;
        let (workers, connections) = (self.workers, self.connections);
        let what = match self.does {
            Does::Asks => "asks a backend",
            Does::Sends => "sends 64 KiB to a backend",
            Does::Streams => "streams 64 KiB to a backend",
            Does::Serves => "sends 64 KiB to a client",
        };
        vec![
            format!(
                "{workers} threads, each of which {what} every {} ms, over {connections} connections",
                ms(self.period_us)
            ),
            format!(
                "the {} sleeps {} ms for each message, in the control run {} ms",
                if self.does == Does::Serves { "client" } else { "backend" },
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
        let common =
            [format!("--does={}", self.does.word()), format!("--port={}", stage.place.port()?)];
        let words = |name: &str, own: &[String]| -> Vec<String> {
            std::iter::once(name.into()).chain(common.iter().chain(own).cloned()).collect()
        };
        let backend = stage.start_one(&Job {
            comm: "backend",
            cgroup: "backend",
            cpus: None,
            nice: None,
            realtime: false,
            what: &words(
                "backend",
                &[format!("--hold-us={hold_us}"), format!("--connections={}", self.connections)],
            ),
        })?;
        let own = [
            format!("--workers={}", self.workers),
            format!("--connections={}", self.connections),
            format!("--period-us={}", self.period_us),
        ];
        let running = spec.start_worker(stage, &words("exchange", &own))?;
        Ok(Running { beside: Some(backend), ..running })
    }
}

/// Arguments of the hidden subcommand of the victim.
#[derive(Debug, clap::Args)]
pub(crate) struct ExchangeArgs {
    #[arg(long)]
    does: Does,
    #[arg(long)]
    port: u16,
    #[arg(long)]
    workers: u32,
    #[arg(long)]
    connections: u32,
    #[arg(long)]
    period_us: u64,
}

/// Arguments of the hidden subcommand of its backend.
#[derive(Debug, clap::Args)]
pub(crate) struct BackendArgs {
    #[arg(long)]
    does: Does,
    #[arg(long)]
    port: u16,
    /// Time to sleep for each message
    #[arg(long)]
    hold_us: u64,
    /// Connections that it asks for, if it is a client
    #[arg(long)]
    connections: u32,
}

/// Takes messages, for ever. A connection has a thread of its own.
pub(crate) fn serve(args: &BackendArgs) -> Result<()> {
    if args.does == Does::Serves {
        return ask(args);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port))?;
    if args.does != Does::Asks {
        set_socket_recv_buffer_size(&listener, args.does.buffer())?;
    }
    println!("ready");
    std::thread::scope(|scope| {
        for connection in listener.incoming() {
            let connection = connection?;
            scope.spawn(move || take(args, connection));
        }
        Ok(())
    })
}

/// Takes messages, for ever, on connections that it asks the victim for.
fn ask(args: &BackendArgs) -> Result<()> {
    println!("ready");
    let connect = || -> io::Result<TcpStream> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        set_socket_recv_buffer_size(&socket, args.does.buffer())?;
        rustix::net::connect(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, args.port)))?;
        Ok(socket.into())
    };
    std::thread::scope(|scope| {
        // It ends with the experiment. Further connections than the victim accepts stay in its queue.
        let mut connected = 0;
        while connected < args.connections {
            match connect() {
                Ok(connection) => {
                    connected += 1;
                    scope.spawn(move || take(args, connection));
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    })
}

fn take(args: &BackendArgs, mut connection: TcpStream) {
    let mut message = vec![0; args.does.bytes()];
    // It ends with the connection.
    while connection.read_exact(&mut message).is_ok() {
        std::thread::sleep(Duration::from_micros(args.hold_us));
        if args.does == Does::Asks && connection.write_all(b"x").is_err() {
            break;
        }
    }
}

/// Connections that nobody uses.
struct Pool {
    free: Mutex<Vec<TcpStream>>,
    given_back: Condvar,
    /// The socket on which clients asked for them: it listens on.
    _listener: Option<TcpListener>,
}

impl Pool {
    fn of(args: &ExchangeArgs) -> Result<Self> {
        let address = (Ipv4Addr::LOCALHOST, args.port);
        let listener = match args.does {
            Does::Serves => Some(TcpListener::bind(address)?),
            _ => None,
        };
        let connect = |_| -> Result<TcpStream> {
            let connection = match &listener {
                Some(listener) => listener.accept()?.0,
                None => TcpStream::connect(address)?,
            };
            if args.does != Does::Asks {
                set_socket_send_buffer_size(&connection, args.does.buffer())?;
            }
            connection.set_nonblocking(args.does.waits_for_room())?;
            Ok(connection)
        };
        let free = (0..args.connections).map(connect).collect::<Result<_>>()?;
        Ok(Self { free: Mutex::new(free), given_back: Condvar::new(), _listener: listener })
    }

    fn take(&self) -> TcpStream {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(connection) = free.pop() {
                return connection;
            }
            free = self.given_back.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, connection: TcpStream) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        self.given_back.notify_one();
    }
}

/// Works from the first line on standard input to the second, which gives a [`Window`]. Prints the [`Summary`] of that
/// window as JSON.
pub(crate) fn work_until_told(args: &ExchangeArgs) -> Result<()> {
    let pool = Pool::of(args)?;
    let mut stdin = io::stdin().lock();
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    line.clear();
    let stop = AtomicBool::new(false);
    let (answers, calls) = std::thread::scope(|scope| {
        let worker = |_| scope.spawn(|| work(args, &pool, &stop));
        let workers: Vec<_> = (0..args.workers).map(worker).collect();
        let told = stdin.read_line(&mut line);
        stop.store(true, Ordering::Relaxed);
        let (mut answers, mut calls) = (Vec::new(), Calls::default());
        for worker in workers {
            let (own, slept) = worker.join().expect("a worker does not panic")?;
            answers.extend(own);
            calls.extend(slept);
        }
        told?;
        anyhow::Ok((answers, calls))
    })?;
    let window: Window = line.parse()?;
    let summary = Summary::of_answers(&answers, window);
    let summary = Summary { slept: Some(calls.within(window)), ..summary };
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}

/// When each request was due and when it was done, in nanoseconds.
type Answers = Vec<(u64, u64)>;

fn work(args: &ExchangeArgs, pool: &Pool, stop: &AtomicBool) -> Result<(Answers, Calls)> {
    // Only for the report: it works under any name.
    let _ = set_name(c"worker");
    let message = vec![0; args.does.bytes()];
    let (mut answers, mut stalls) = (Vec::new(), Stalls::of_this_thread()?);
    let mut due_ns = now_ns(ClockId::Monotonic);
    while !stop.load(Ordering::Relaxed) {
        stalls.during(For::Timer, || sleep_until(due_ns));
        // Clients that are slow to take what they asked for delay nobody but themselves.
        let what = if args.does == Does::Serves { For::Idle } else { For::Others };
        let connection = stalls.during(what, || {
            let mut connection = pool.take();
            if args.does.waits_for_room() {
                send_as_there_is_room(&mut connection, &message)?;
            } else {
                connection.write_all(&message)?;
            }
            if args.does == Does::Asks {
                connection.read_exact(&mut [0])?;
            }
            io::Result::Ok(connection)
        })?;
        pool.give_back(connection);
        let done_ns = now_ns(ClockId::Monotonic);
        answers.push((due_ns, done_ns));
        due_ns = (due_ns + args.period_us * 1000).max(done_ns);
    }
    Ok((answers, stalls.calls()))
}

/// Sends a message over a connection that does not block.
fn send_as_there_is_room(connection: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let mut left = message;
    while !left.is_empty() {
        match connection.write(left) {
            Ok(sent) => left = &left[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(&*connection, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
