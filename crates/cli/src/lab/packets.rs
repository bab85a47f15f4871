// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that sends datagrams to itself, which another CPU than its own receives: the kernel steers them there (RPS). All
//! of it is in a network namespace of its own, whose settings end with it.

use super::victim::{now_ns, sleep_until};
use anyhow::{Context as _, Result, ensure};
use deburr_sys::namespace::own_network;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, socket};
use rustix::thread::ClockId;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Command;

/// Sockets that get a copy of each datagram: receiving takes longer than sending.
const RECEIVERS: usize = 16;
const PORT: u16 = 9;
/// The address of all sockets on the loopback device.
const EVERYBODY: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct PacketsArgs {
    /// CPU that receives what is sent
    #[arg(long)]
    to_cpu: usize,
    /// Datagrams that are sent at once
    #[arg(long)]
    count: u32,
    #[arg(long)]
    period_us: u64,
}

impl PacketsArgs {
    /// The words of a command line that has such a process work.
    pub(super) fn words(to_cpu: usize, count: u32, period_us: u64) -> Vec<String> {
        vec![
            "packets".into(),
            format!("--to-cpu={to_cpu}"),
            format!("--count={count}"),
            format!("--period-us={period_us}"),
        ]
    }
}

/// Sends that many datagrams at once, again and again, for ever. Nobody reads them: the kernel drops them at the socket.
pub(crate) fn send_for_ever(args: &PacketsArgs) -> Result<()> {
    own_network().context("cannot make a network namespace")?;
    run("ip", &["link", "set", "lo", "up"])?;
    let steer = format!(
        "mount -t sysfs none /sys && echo {} > /sys/class/net/lo/queues/rx-0/rps_cpus",
        mask_of(args.to_cpu)
    );
    // The mount is seen by this command only.
    run("unshare", &["--mount", "sh", "-c", &steer])?;
    let _receivers = (0..RECEIVERS).map(|_| receiver()).collect::<Result<Vec<_>>>()?;
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    sender.set_broadcast(true)?;
    sender.connect((EVERYBODY, PORT))?;
    println!("ready");
    let mut due_ns = now_ns(ClockId::Monotonic);
    loop {
        sleep_until(due_ns);
        let start_ns = now_ns(ClockId::Monotonic);
        for _ in 0..args.count {
            let _ = sender.send(&[0; 64]);
        }
        // On a slow machine, too, packets come in bursts: what comes without a pause is received by the kernel's thread.
        let end_ns = now_ns(ClockId::Monotonic);
        due_ns = (end_ns + (end_ns - start_ns)).max(due_ns + args.period_us * 1000);
    }
}

/// A socket beside others of the same port. Nobody reads what it receives.
fn receiver() -> Result<OwnedFd> {
    let receiver = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    set_socket_reuseaddr(&receiver, true)?;
    bind(&receiver, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)))?;
    Ok(receiver)
}

/// A set of one CPU as the kernel reads it: words of 32 bits, the highest first.
fn mask_of(cpu: usize) -> String {
    format!("{:x}{}", 1_u32 << (cpu % 32), ",00000000".repeat(cpu / 32))
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run `{program}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{program} {}` failed: {}", arguments.join(" "), said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::mask_of;

    #[test]
    fn sets_of_cpus_are_written_as_the_kernel_reads_them() {
        assert_eq!(
            [0, 1, 31, 32, 69].map(mask_of),
            ["1", "2", "80000000", "1,00000000", "20,00000000,00000000"]
        );
    }
}
