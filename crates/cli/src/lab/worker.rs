// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes of the lab: this program itself, executed as a hidden subcommand, so that the lab needs nothing else
//! installed.

use super::computes::{self, ComputesArgs};
use super::crew::{self, CrewArgs};
use super::disk::{self, DiskArgs};
use super::drive::{self, DriveArgs};
use super::event_loop::{self, ClientsArgs, LoopArgs};
use super::exchange::{self, BackendArgs, ExchangeArgs};
use super::fanout::{self, FanoutArgs};
use super::forks::{self, ForksArgs};
use super::fragments::{self, FragmentsArgs};
use super::heap::{self, HeapArgs};
use super::io::{self, IoArgs, SyncsArgs};
use super::network::{self, NetworkArgs};
use super::packets::{self, PacketsArgs};
use super::reader::{self, ReadArgs};
use super::stops::{self, StopsArgs};
use super::timers::{self, TimersArgs};
use super::victim::{self, Demand};
use crate::host::cgroup;
use crate::host::guard::{self, JanitorArgs};
use crate::host::keeper::{self, KeeperArgs};
use crate::prove::{self, ChangesArgs};
use anyhow::{Context as _, Result, bail};
use rustix::process::{Signal, set_parent_process_death_signal, setpriority_process};
use rustix::thread::{CpuSet, sched_setaffinity, set_name};
use std::ffi::{CString, OsString};
use std::hint::black_box;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    /// cgroup directory to move into first; several are of several trees
    #[arg(long)]
    cgroup: Vec<PathBuf>,
    /// Name to take
    #[arg(long)]
    comm: Option<String>,
    /// Nice value to take
    #[arg(long, allow_negative_numbers = true)]
    nice: Option<i32>,
    /// CPU to stay on; may be given several times
    #[arg(long)]
    cpu: Vec<usize>,
    /// Go before all ordinary tasks (SCHED_FIFO)
    #[arg(long)]
    realtime: bool,
    #[command(subcommand)]
    work: Work,
}

/// What to do then.
#[derive(Debug, clap::Subcommand)]
enum Work {
    /// Compute for ever
    Spin,
    /// Serve requests from the first line of standard input to the second, a window, then print its summary
    Serve(DemandArgs),
    /// Serve requests for ever
    Load(DemandArgs),
    /// Become this program with other arguments
    Exec {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Become another program
    Tool {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Serve lines over TCP, with many tasks each
    Fanout(FanoutArgs),
    /// Drive a service until the second line of standard input, a window, then print its summary
    Drive(DriveArgs),
    /// Be a slow disk until it is unmounted
    Disk(DiskArgs),
    /// Write as a broker does from the first line of standard input to the second
    Broker(IoArgs),
    /// Read a file from the first line of standard input to the second
    Reader(ReadArgs),
    /// Work with threads that wait for each other from the first line of standard input to the second
    Crew(CrewArgs),
    /// Exchange messages with a backend from the first line of standard input to the second
    Exchange(ExchangeArgs),
    /// Take messages for ever
    Backend(BackendArgs),
    /// Serve all clients with one thread, for ever
    Loop(LoopArgs),
    /// Be the clients of a loop from the first line of standard input to the second
    Clients(ClientsArgs),
    /// Send or receive over the network
    Network(NetworkArgs),
    /// Compute from the first line of standard input to the second, and look when that stood still
    Computes(ComputesArgs),
    /// Send packets that another CPU receives, for ever
    Packets(PacketsArgs),
    /// Have timers expire on its CPU, for ever
    Timers(TimersArgs),
    /// Have the free memory lie in small pieces, for ever
    Fragments(FragmentsArgs),
    /// Use more and more memory from the first line of standard input to the second
    Heap(HeapArgs),
    /// Start programs that end at once, for ever
    Forks(ForksArgs),
    /// Stop the processes of a cgroup again and again, for ever
    Stops(StopsArgs),
    /// Have everything written out at intervals, for ever
    Syncs(SyncsArgs),
    /// Write to one file for ever
    Writer(IoArgs),
    /// Make and remove files for ever
    Committer(IoArgs),
    /// Start a command, and end it at the end of standard input
    Keeper(KeeperArgs),
    /// Undo what a journal names, at the end of standard input
    Janitor(JanitorArgs),
    /// Change settings and put them back, again and again, until the end of standard input
    Changes(ChangesArgs),
}

#[derive(Debug, clap::Args)]
struct DemandArgs {
    #[arg(long, default_value_t = 1)]
    threads: u32,
    #[arg(long)]
    work_us: u64,
    #[arg(long)]
    period_us: u64,
}

impl DemandArgs {
    fn demand(&self) -> Demand {
        Demand { threads: self.threads, work_us: self.work_us, period_us: self.period_us }
    }
}

/// Sets the process up according to its arguments, prints `ready`, and works.
pub(crate) fn run(args: &WorkerArgs) -> Result<()> {
    if let Work::Janitor(janitor) = &args.work {
        return guard::janitor(janitor);
    }
    if let Work::Keeper(keeper) = &args.work {
        return keeper::keep(keeper);
    }
    // No process outlives the runner, except the janitor, which finds the others by their cgroup, a keeper, which ends a
    // command, and a disk, which must be there until it is unmounted.
    if !matches!(args.work, Work::Disk(_)) {
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    for dir in &args.cgroup {
        cgroup::join(dir)?;
    }
    if !args.cpu.is_empty() {
        let mut set = CpuSet::new();
        for &cpu in &args.cpu {
            if cpu >= CpuSet::MAX_CPU {
                bail!("there is no CPU {cpu}");
            }
            set.set(cpu);
        }
        sched_setaffinity(None, &set).context("cannot choose CPUs")?;
    }
    if let Some(nice) = args.nice {
        setpriority_process(None, nice).context("cannot set the nice value")?;
    }
    if args.realtime {
        deburr_sys::realtime::take_precedence().context("cannot go before ordinary tasks")?;
    }
    if let Work::Exec { arguments } = &args.work {
        let program = std::env::current_exe()?;
        let error = Command::new(&program).args(arguments).exec();
        return Err(error).with_context(|| format!("cannot execute `{}`", program.display()));
    }
    if let Work::Tool { command } = &args.work {
        let (program, arguments) = command.split_first().context("no program is named")?;
        let error = Command::new(program).args(arguments).exec();
        return Err(error).with_context(|| format!("cannot execute `{}`", program.display()));
    }
    if let Some(comm) = &args.comm {
        set_name(&CString::new(comm.as_bytes())?).context("cannot set the name")?;
    }
    match &args.work {
        Work::Disk(disk) => return disk::serve(disk),
        Work::Changes(changes) => return prove::change_again_and_again(changes),
        Work::Fanout(service) => return fanout::serve(service),
        Work::Broker(broker) => return io::serve_broker(broker),
        Work::Writer(writer) => return io::write(writer),
        Work::Committer(committer) => return io::commit(committer),
        Work::Network(network) => return network::work(network),
        Work::Backend(backend) => return exchange::serve(backend),
        Work::Loop(args) => return event_loop::serve(args),
        Work::Packets(packets) => return packets::send_for_ever(packets),
        Work::Timers(timers) => return timers::set_for_ever(timers),
        Work::Fragments(fragments) => return fragments::fragment_for_ever(fragments),
        _ => println!("ready"),
    }
    match &args.work {
        Work::Drive(load) => drive::drive(load),
        Work::Reader(args) => reader::read_until_told(args),
        Work::Heap(args) => heap::grow_until_told(args),
        Work::Computes(args) => computes::compute_until_told(args),
        Work::Crew(args) => crew::work_until_told(args),
        Work::Exchange(args) => exchange::work_until_told(args),
        Work::Clients(args) => event_loop::ask_until_told(args),
        Work::Serve(demand) => victim::serve_until_told(demand.demand()),
        Work::Load(demand) => victim::serve_for_ever(demand.demand()),
        Work::Forks(forks) => forks::fork_for_ever(forks),
        Work::Stops(args) => stops::stop_for_ever(args),
        Work::Syncs(syncs) => io::sync_for_ever(syncs),
        _ => spin(),
    }
}

fn spin() -> ! {
    let mut number: u64 = 1;
    loop {
        number = black_box(number.wrapping_mul(3));
    }
}
