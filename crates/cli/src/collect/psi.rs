// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pressure-stall information (PSI) of the host, once a second.

use super::{Beat, BeatTime, Collector, Context, Emit, reread};
use deburr_core::procfs::pressure;
use deburr_core::recording::{Coverage, PsiReading, PsiResource, Record, Source, State};
use std::fs::File;
use std::io;

const FILES: [(PsiResource, &str); 3] = [
    (PsiResource::Cpu, "pressure/cpu"),
    (PsiResource::Io, "pressure/io"),
    (PsiResource::Memory, "pressure/memory"),
];

#[derive(Debug)]
pub(crate) struct PsiCollector {
    files: Vec<(PsiResource, File)>,
    state: State,
}

impl PsiCollector {
    /// Opens the pressure files that can be read; `Err` if there are none.
    pub(crate) fn open(cx: &Context) -> Result<Self, State> {
        let mut files = Vec::new();
        let mut refused = Vec::new();
        for (resource, name) in FILES {
            // Without PSI accounting some kernels have no file, others refuse to open or to read it.
            let opened = File::open(cx.roots.proc.join(name))
                .and_then(|file| reread::text(&file).map(|_| file));
            match opened {
                Ok(file) => files.push((resource, file)),
                Err(error) => refused.push(format!("`/proc/{name}`: {}", reason(&error))),
            }
        }
        match (files.is_empty(), refused.is_empty()) {
            (true, _) => Err(State::Missing {
                reason: refused.join("; "),
                gain: "boot with `psi=1` for a second witness of CPU, memory and block IO pressure"
                    .into(),
            }),
            (false, false) => {
                Ok(Self { files, state: State::Partial { reason: refused.join("; ") } })
            }
            (false, true) => Ok(Self { files, state: State::Active }),
        }
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "this kernel does not account pressure".into(),
        io::ErrorKind::Unsupported => "accounting of pressure is switched off".into(),
        _ => error.to_string(),
    }
}

impl Collector for PsiCollector {
    fn beat(&mut self, _: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if now.beat == Beat::Start {
            let state = self.state.clone();
            emit(Record::Coverage(Coverage { t_ns: 0, source: Source::Psi, state }));
        } else if !now.beat.is_second() {
            return Ok(());
        }
        for (resource, file) in &self.files {
            let pressure = pressure::parse(&reread::text(file)?)?;
            emit(Record::Psi(PsiReading {
                t_ns: now.t_ns,
                cgroup: None,
                resource: *resource,
                some_ns: pressure.some_ns,
                full_ns: pressure.full_ns,
            }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::PsiCollector;
    use crate::collect::Beat;
    use crate::collect::fixture::{Host, beat};
    use deburr_core::recording::{PsiResource, Record, State};

    const CPU: &str = "some avg10=0.21 avg60=0.53 avg300=0.89 total=1000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";

    #[test]
    fn totals_are_read_each_second_from_kept_files() {
        let host = Host::empty();
        for name in ["cpu", "io", "memory"] {
            host.write(&format!("proc/pressure/{name}"), CPU);
        }
        let mut cx = host.context();
        let mut collector = PsiCollector::open(&cx).unwrap();
        let start = beat(&mut collector, &mut cx, Beat::Start);
        let Record::Coverage(coverage) = &start[0] else { panic!("{start:?}") };
        assert_eq!((&coverage.state, start.len()), (&State::Active, 4));
        assert_eq!(beat(&mut collector, &mut cx, Beat::Bin), []);
        host.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000\n");
        let second = beat(&mut collector, &mut cx, Beat::Second);
        let Record::Psi(reading) = second[0] else { panic!("{second:?}") };
        assert_eq!((reading.resource, reading.cgroup), (PsiResource::Cpu, None));
        assert_eq!((reading.some_ns, reading.full_ns), (3_000_000, None));
    }

    #[test]
    fn what_is_not_there_is_said() {
        let host = Host::empty();
        let State::Missing { reason, gain } = PsiCollector::open(&host.context()).unwrap_err()
        else {
            panic!()
        };
        assert!(reason.contains("`/proc/pressure/cpu`: this kernel does not"), "{reason}");
        assert!(gain.contains("psi=1"));

        host.write("proc/pressure/io", CPU);
        let mut cx = host.context();
        let start = beat(&mut PsiCollector::open(&cx).unwrap(), &mut cx, Beat::Start);
        let Record::Coverage(coverage) = &start[0] else { panic!("{start:?}") };
        let State::Partial { reason } = &coverage.state else { panic!("{coverage:?}") };
        assert!(reason.contains("memory") && !reason.contains("io`"), "{reason}");
    }
}
