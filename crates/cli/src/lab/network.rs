// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Victims of the network, and the processes that send to them: one that sends messages over TCP, one that receives
//! datagrams, and one that accepts connections. Each measures or counts what it lost itself.

use super::scenario::check_period_us;
use super::stage::Stage;
use super::victim::{Summary, Window, now_ns, sleep_until};
use super::victims::{Running, Victim, VictimSpec, WhichRun};
use anyhow::{Context as _, Result, bail, ensure};
use deburr_sys::namespace::own_network;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::thread::{ClockId, LinkNameSpaceType, gettid, move_into_link_name_space};
use serde::Deserialize;
use std::fs::File;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// How long a thread waits before it looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);
/// Name of the thread in whose network namespace the bridge is, and of the bridge's device on the receiver's side.
pub(super) const PATH_THREAD: &str = "path";
pub(super) const PATH_DEVICE: &str = "far-b";
const NEAR: &str = "10.111.0.1/24";
const FAR: &str = "10.111.0.2/24";
const FAR_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 111, 0, 2);

/// A victim of the network, as scenario files write it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "does", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum NetworkSpec {
    /// Sends messages of some bytes over TCP to a thread of its own, and waits for an answer to each. Both are in network
    /// namespaces of their own, with a bridge between them in a third one.
    Sends { bytes: u32, period_us: u64 },
    /// Reads the datagrams that came, at intervals, from a socket whose receive buffer has that size.
    Receives { buffer_bytes: u32, period_us: u64 },
    /// Accepts a connection at intervals, and closes it; so many may wait.
    Accepts { queue: u32, period_us: u64 },
}

/// Where faults find a victim of the network.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Its port, which it chooses before it starts.
    pub(super) port: Option<u16>,
    /// Its process id, once it runs.
    pub(super) victim: Option<u32>,
}

impl Place {
    /// Chooses a port for TCP that is free now, and that no other process is expected to take.
    pub(super) fn choose_port(&mut self) -> Result<()> {
        self.port = Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port());
        Ok(())
    }

    pub(crate) fn port(&self) -> Result<u16> {
        self.port.context("the scenario has no victim that uses the network")
    }

    pub(crate) fn victim(&self) -> Result<u32> {
        self.victim.context("the victim does not run yet")
    }
}

impl NetworkSpec {
    fn period_us(&self) -> u64 {
        match self {
            Self::Sends { period_us, .. }
            | Self::Receives { period_us, .. }
            | Self::Accepts { period_us, .. } => *period_us,
        }
    }
}

impl Victim for NetworkSpec {
    fn validate(&self, _cgroup: &str) -> Result<()> {
        check_period_us("victim.network.period_us", self.period_us())?;
        match self {
            Self::Sends { bytes, .. } => {
                ensure!((1..=1 << 24).contains(bytes), "`victim.network.bytes` must be 1 to 2^24");
            }
            Self::Receives { buffer_bytes, .. } => {
                ensure!(*buffer_bytes > 0, "`victim.network.buffer_bytes` must be positive");
            }
            Self::Accepts { queue, .. } => {
                ensure!((1..=4096).contains(queue), "`victim.network.queue` must be 1 to 4096");
            }
        }
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        let ms = self.period_us() as f64 / 1000.0;
        vec![match self {
            Self::Sends { bytes, .. } => format!(
                "sends {bytes} bytes over TCP every {ms} ms through a bridge, and waits for an answer"
            ),
            Self::Receives { buffer_bytes, .. } => format!(
                "reads the datagrams that came every {ms} ms; its buffer has {buffer_bytes} bytes"
            ),
            Self::Accepts { queue, .. } => {
                format!("accepts a connection every {ms} ms; {queue} may wait")
            }
        }]
    }

    fn prepare(&self, stage: &mut Stage) -> Result<()> {
        match self {
            Self::Receives { .. } => {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                stage.place.port = Some(socket.local_addr()?.port());
                Ok(())
            }
            _ => stage.place.choose_port(),
        }
    }

    fn start(&self, spec: &VictimSpec, stage: &Stage, _run: WhichRun<'_>) -> Result<Running> {
        let (does, amount) = match self {
            Self::Sends { bytes, .. } => ("sends", bytes),
            Self::Receives { buffer_bytes, .. } => ("receives", buffer_bytes),
            Self::Accepts { queue, .. } => ("accepts", queue),
        };
        let what = [
            "network".into(),
            format!("--does={does}"),
            format!("--amount={amount}"),
            format!("--period-us={}", self.period_us()),
            format!("--port={}", stage.place.port()?),
        ];
        spec.start_worker(stage, &what)
    }
}

/// Arguments of the hidden subcommands.
#[derive(Debug, clap::Args)]
pub(crate) struct NetworkArgs {
    #[arg(long)]
    does: String,
    /// Bytes, or connections that may wait
    #[arg(long)]
    amount: u32,
    #[arg(long)]
    period_us: u64,
    #[arg(long)]
    port: u16,
    /// Process whose network namespace it works in, to send to the far end of its path
    #[arg(long)]
    beside: Option<u32>,
}

impl NetworkArgs {
    /// The words of a command line that has such a process work.
    pub(super) fn words(does: &str, amount: u32, period_us: u64, port: u16) -> Vec<String> {
        vec![
            "network".into(),
            format!("--does={does}"),
            format!("--amount={amount}"),
            format!("--period-us={period_us}"),
            format!("--port={port}"),
        ]
    }

    fn address(&self) -> SocketAddr {
        let is_far = self.does == "sends" || self.beside.is_some();
        (if is_far { FAR_ADDRESS } else { Ipv4Addr::LOCALHOST }, self.port).into()
    }
}

/// Does what is asked for; says when it is ready. A victim works from the first line on standard input to the second, which
/// gives a [`Window`], and prints the [`Summary`] of that window as JSON.
pub(crate) fn work(args: &NetworkArgs) -> Result<()> {
    if let Some(pid) = args.beside {
        let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    match args.does.as_str() {
        "sends" => {
            make_path(args)?;
            let peer = TcpStream::connect(args.address())?;
            until_told(|stop| send(args, &peer, stop))
        }
        "receives" => {
            let socket = UdpSocket::bind(args.address())?;
            set_socket_recv_buffer_size(&socket, usize::try_from(args.amount)? / 2)?;
            socket.set_nonblocking(true)?;
            until_told(|stop| receive(args, &socket, stop))
        }
        "accepts" => {
            let listener = listen(args)?;
            until_told(|stop| accept(args, &listener, stop))
        }
        "floods" => flood(args),
        "connects" => connect(args),
        other => bail!("`{other}` is nothing that a process of the network does"),
    }
}

/// Moves this thread into a network namespace of its own, and makes a path from there through that of a thread with a bridge
/// to that of a thread that answers. The namespaces, and what is in them, end with this process.
fn make_path(args: &NetworkArgs) -> Result<()> {
    own_network().context("cannot make a network namespace")?;
    let (address, size) = (args.address(), usize::try_from(args.amount)?);
    let (bridge, _) = in_namespace(PATH_THREAD, || ())?;
    let (ready, listens) = mpsc::channel();
    let (far, go) = in_namespace("answers", move || {
        let listener = TcpListener::bind(address);
        let _ = ready.send(listener.is_ok());
        // It ends with the connection.
        let _ = listener.map(|listener| answer(&listener, size));
    })?;
    let own = gettid().as_raw_nonzero().get().to_string();
    ip(&own, &["link", "add", "near", "type", "veth", "peer", "name", "near-b", "netns", &bridge])?;
    ip(
        &far,
        &["link", "add", "far", "type", "veth", "peer", "name", PATH_DEVICE, "netns", &bridge],
    )?;
    ip(&bridge, &["link", "add", "name", "br0", "type", "bridge"])?;
    for device in ["near-b", PATH_DEVICE] {
        ip(&bridge, &["link", "set", device, "master", "br0", "up"])?;
    }
    ip(&bridge, &["link", "set", "br0", "up"])?;
    for (of, device, address) in [(&own, "near", NEAR), (&far, "far", FAR)] {
        ip(of, &["addr", "add", address, "dev", device])?;
        ip(of, &["link", "set", device, "up"])?;
    }
    go.send(())?;
    ensure!(listens.recv()?, "nobody can listen at {address}");
    Ok(())
}

/// Starts a thread of that name in a network namespace of its own. It works when it is told to go on. Returns its id.
fn in_namespace(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<(String, mpsc::Sender<()>)> {
    let (made, is_made) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    std::thread::Builder::new().name(name.into()).spawn(move || {
        let id = gettid().as_raw_nonzero().get().to_string();
        let _ = made.send(own_network().map(|()| id));
        if goes.recv().is_ok() {
            work();
        } else {
            // Whoever made it does not tell it to go on: it only holds the namespace.
            loop {
                std::thread::park();
            }
        }
    })?;
    let id = is_made.recv()?.context("cannot make a network namespace")?;
    Ok((id, go))
}

/// Runs `ip` in the network namespace of a thread.
fn ip(thread: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("nsenter");
    command.args([&*format!("--net=/proc/{thread}/ns/net"), "ip"]).args(arguments);
    let output = command.output().context("cannot run `nsenter`")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {}` failed: {}", arguments.join(" "), said.trim());
    Ok(())
}

fn listen(args: &NetworkArgs) -> Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&listener, &args.address())?;
    listen(&listener, i32::try_from(args.amount)?)?;
    Ok(TcpListener::from(listener))
}

/// Works until the second line on standard input, a window, and prints the summary of it. What is measured: when each
/// piece of work was due, and when it was done.
fn until_told(work: impl FnOnce(&AtomicBool) -> Result<Vec<(u64, u64)>> + Send) -> Result<()> {
    println!("ready");
    let mut stdin = std::io::stdin().lock();
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    line.clear();
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&stop));
        let told = stdin.read_line(&mut line);
        stop.store(true, Ordering::Relaxed);
        let done = worker.join().expect("a worker does not panic");
        told?;
        done
    })?;
    let window: Window = line.parse()?;
    println!("{}", serde_json::to_string(&Summary::of_answers(&done, window))?);
    Ok(())
}

/// Calls `step` at intervals until `stop` is set; `step` says whether it did anything.
fn at_intervals(
    args: &NetworkArgs,
    stop: &AtomicBool,
    mut step: impl FnMut() -> Result<bool>,
) -> Result<Vec<(u64, u64)>> {
    let mut done = Vec::new();
    let mut due_ns = now_ns(ClockId::Monotonic);
    while !stop.load(Ordering::Relaxed) {
        sleep_until(due_ns);
        if step()? {
            done.push((due_ns, now_ns(ClockId::Monotonic)));
        }
        due_ns += args.period_us * 1000;
    }
    Ok(done)
}

/// Takes messages of that size, and answers each with a byte, for ever.
fn answer(listener: &TcpListener, size: usize) -> Result<()> {
    let (mut peer, _) = listener.accept()?;
    let mut message = vec![0; size];
    loop {
        peer.read_exact(&mut message)?;
        peer.write_all(b"x")?;
    }
}

/// A message whose answer has not come by the end counts as answered then: after some losses the timer that sends it again
/// takes longer than anybody waits.
fn send(args: &NetworkArgs, mut peer: &TcpStream, stop: &AtomicBool) -> Result<Vec<(u64, u64)>> {
    let message = vec![0; usize::try_from(args.amount)?];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
            // Whoever waits on it goes on.
            let _ = peer.shutdown(Shutdown::Both);
        });
        at_intervals(args, stop, || {
            let answered = peer.write_all(&message).and_then(|()| peer.read_exact(&mut [0]));
            match answered {
                Err(_) if stop.load(Ordering::Relaxed) => {}
                other => other?,
            }
            Ok(true)
        })
    })
}

fn receive(args: &NetworkArgs, socket: &UdpSocket, stop: &AtomicBool) -> Result<Vec<(u64, u64)>> {
    let mut datagram = [0; 2048];
    at_intervals(args, stop, || {
        let mut any = false;
        while socket.recv(&mut datagram).is_ok() {
            any = true;
        }
        Ok(any)
    })
}

fn accept(
    args: &NetworkArgs,
    listener: &TcpListener,
    stop: &AtomicBool,
) -> Result<Vec<(u64, u64)>> {
    listener.set_nonblocking(true)?;
    at_intervals(args, stop, || Ok(listener.accept().is_ok()))
}

/// Sends that many datagrams at once, again and again, for ever.
fn flood(args: &NetworkArgs) -> Result<()> {
    println!("ready");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    at_intervals(args, &AtomicBool::new(false), || {
        for _ in 0..args.amount {
            // Nobody may be there any more.
            let _ = socket.send_to(&[0; 500], args.address());
        }
        Ok(false)
    })?;
    Ok(())
}

/// Connects that many clients at once, again and again, for ever. Each gives up after a while.
fn connect(args: &NetworkArgs) -> Result<()> {
    println!("ready");
    let (address, patience) = (args.address(), 30 * LOOK);
    at_intervals(args, &AtomicBool::new(false), || {
        for _ in 0..args.amount {
            std::thread::spawn(move || {
                drop(TcpStream::connect_timeout(&address, patience));
            });
        }
        Ok(false)
    })?;
    Ok(())
}
