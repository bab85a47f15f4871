// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose code waits on a futex: glibc, musl, or somebody else, by what the process has mapped where the call was made. Others
//! make it in the function `syscall` of these libraries, too.

use super::super::super::Roots;
use super::kind::is_marked_futex;
use crate::limits;
use crate::limits::{FILE_BYTES, FileImage, places};
use deburr_bpf::sched::{Caller, Context, Sleep};
use deburr_core::limits::Metered;
use deburr_core::limits::elf::Elf;
use deburr_core::procfs::maps::CodeMapping;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::Duration;

/// Most time for which an answer is waited for. Whoever keeps its address space locked is not waited for again.
const PATIENCE: Duration = Duration::from_millis(20);
/// Processes that are asked about in a second, at some 100 us each.
const ASKED: u32 = 64;
/// Words that are kept, and processes.
const WORDS: usize = 16_384;
const PROCESSES: usize = 4096;

/// What a part of a process's memory that may be executed belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Glibc,
    Musl,
    Other,
}

/// Parts of memory, from their first addresses to their ends. The first one that contains an address is meant.
type Parts = Vec<(u64, u64, Library)>;

/// A word on which threads wait, while it has a value that may be that of a lock.
#[derive(Debug)]
struct Word {
    /// The thread that has waited on it.
    tid: u32,
    /// Others have, too.
    is_shared: bool,
    /// When a thread ended such a sleep for the first time, on the run queues' clock.
    woken_ns: u64,
    /// A sleep began later than that: it had that value again.
    is_again: bool,
}

#[derive(Debug)]
enum Known {
    /// It was asked, and has not answered.
    Asked,
    Parts(Parts),
}

/// Reads what processes have mapped. A process can hold that up for as long as it likes, so another thread does it.
#[derive(Debug)]
struct Reader {
    ask: SyncSender<u32>,
    answers: Receiver<(u32, io::Result<Parts>)>,
    /// Processes that were asked about and have not answered.
    open: usize,
}

/// Whose code waits on which words.
#[derive(Debug, Default)]
pub(super) struct Callers {
    asked: u32,
    /// `None` = it is not there yet, or there is no room for a thread.
    reader: Option<Reader>,
    of: HashMap<u32, Known>,
    /// By process and address.
    words: HashMap<(u32, u64), Word>,
}

impl Callers {
    /// A second is over.
    pub(super) fn second(&mut self) {
        self.asked = 0;
        if self.words.len() > WORDS {
            self.words.clear();
        }
        if self.of.len() > PROCESSES {
            self.of.clear();
        }
    }

    /// The pid is another process's now.
    pub(super) fn forget(&mut self, tgid: u32) {
        self.of.remove(&tgid);
        self.words.retain(|(of, _), _| *of != tgid);
    }

    /// Finds out whose code waits, where the word may be a lock.
    pub(super) fn meet(&mut self, roots: &Roots, sleep: &mut Sleep) {
        let Caller::At(at) = sleep.caller else { return };
        if !is_marked_futex(sleep) {
            return;
        }
        sleep.caller = match self.library(roots, sleep.tgid, at) {
            Library::Glibc => Caller::Glibc,
            Library::Musl => Caller::Musl,
            Library::Other if self.is_taken_in_turn(roots, sleep) => Caller::Shared,
            Library::Other => Caller::Other,
        };
    }

    fn is_taken_in_turn(&mut self, roots: &Roots, sleep: &Sleep) -> bool {
        let &Sleep { tgid, tid, arguments: [address, ..], since_ns, slept_ns, waker, .. } = sleep;
        let new = || Word { tid, is_shared: false, woken_ns: u64::MAX, is_again: false };
        let word = self.words.entry((tgid, address)).or_insert_with(new);
        if !word.is_shared && word.tid != tid {
            // A word on the stack of a thread that has ended may be on that of a new one.
            let task = roots.proc.join(format!("{tgid}/task/{}", word.tid));
            *word = if task.exists() { Word { is_shared: true, ..*word } } else { new() };
        }
        word.is_again |= since_ns > word.woken_ns;
        if waker.context == Context::Thread {
            word.woken_ns = word.woken_ns.min(since_ns.saturating_add(slept_ns));
        }
        word.is_shared && word.is_again
    }

    fn library(&mut self, roots: &Roots, tgid: u32, at: u64) -> Library {
        self.take_answers(Duration::ZERO);
        if let Some(found) = self.found(tgid, at) {
            return found;
        }
        // What it has mapped since it was asked, or it was not asked yet.
        self.ask(roots, tgid);
        self.found(tgid, at).unwrap_or(Library::Other)
    }

    fn found(&self, tgid: u32, at: u64) -> Option<Library> {
        let Known::Parts(parts) = self.of.get(&tgid)? else { return Some(Library::Other) };
        let within = |&&(start, end, _): &&(u64, u64, Library)| (start..end).contains(&at);
        parts.iter().find(within).map(|&(_, _, library)| library)
    }

    fn ask(&mut self, roots: &Roots, tgid: u32) {
        if self.asked >= ASKED {
            return;
        }
        self.asked += 1;
        if self.reader.is_none() {
            self.reader = Reader::start(roots);
        }
        let Some(reader) = &mut self.reader else { return };
        if reader.ask.try_send(tgid).is_err() {
            return;
        }
        let is_held_up = reader.open > 0;
        reader.open += 1;
        self.of.insert(tgid, Known::Asked);
        if !is_held_up {
            self.take_answers(PATIENCE);
        }
    }

    /// Takes the answers that are there, or come within that time.
    fn take_answers(&mut self, patience: Duration) {
        let Some(reader) = &mut self.reader else { return };
        let mut patience = patience;
        while reader.open > 0
            && let Ok((tgid, parts)) = reader.answers.recv_timeout(patience)
        {
            reader.open -= 1;
            patience = Duration::ZERO;
            // Meanwhile the pid may be another process's.
            if let Entry::Occupied(mut known) = self.of.entry(tgid) {
                match parts {
                    Ok(parts) => _ = known.insert(Known::Parts(parts)),
                    Err(_) => _ = known.remove(),
                }
            }
        }
    }
}

impl Reader {
    fn start(roots: &Roots) -> Option<Self> {
        let (ask, asked) = sync_channel::<u32>(ASKED as usize);
        let (answer, answers) = sync_channel(ASKED as usize);
        let roots = roots.clone();
        let work = move || {
            for tgid in asked {
                let parts = limits::code_mappings(&roots, tgid)
                    .map(|all| all.iter().flat_map(|it| parts(&roots, tgid, it)).collect());
                if answer.send((tgid, parts)).is_err() {
                    return;
                }
            }
        };
        Builder::new().name("callers".into()).spawn(work).ok()?;
        Some(Self { ask, answers, open: 0 })
    }
}

fn parts(roots: &Roots, tgid: u32, it: &CodeMapping) -> Parts {
    let &CodeMapping { start, end, offset, .. } = it;
    let library = library_of(&it.path);
    if library == Library::Other {
        return vec![(start, end, library)];
    }
    let places = places((start, end), &it.path, roots, tgid);
    let Some((from, bytes)) = places.iter().find_map(|path| function_for_others(path)) else {
        return vec![(start, end, Library::Other)];
    };
    let from = start.saturating_add(from.saturating_sub(offset));
    vec![(from, from.saturating_add(bytes), Library::Other), (start, end, library)]
}

/// Offset and length of the function of a library with which others make calls; of none that has it not.
fn function_for_others(library: &Path) -> Option<(u64, u64)> {
    let file = FileImage::open(library).ok()?;
    let file = Metered::new(&file, FILE_BYTES);
    let elf = Elf::read(&file).ok()?;
    Some(elf.function(&file, "syscall").unwrap_or_default())
}

/// By the name of the file. glibc's `libc.so` is a text for the linker: what is mapped by that name is musl.
fn library_of(path: &[u8]) -> Library {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let is_musl = |it: &[u8]| {
        it == b"libc.so" || it.starts_with(b"ld-musl-") || it.starts_with(b"libc.musl-")
    };
    let is_glibc = |it: &[u8]| {
        let libraries: [&[u8]; 4] =
            [b"libc.so.6", b"libpthread.so.0", b"libc-2.", b"libpthread-2."];
        libraries.iter().any(|library| it.starts_with(library))
    };
    match name {
        name if is_musl(name) => Library::Musl,
        name if is_glibc(name) => Library::Glibc,
        _ => Library::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::sleep;
    use super::*;
    use deburr_bpf::sched::{Call, Context, Object};
    use std::fs;

    /// A `/proc` in which process 7 has mapped its program and this machine's C library, and where that has `syscall`.
    fn process_with_libraries(proc: &Path) -> (Roots, u64, u64) {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let code = |line: &&str| line.contains("r-xp") && line.contains("/libc.so.6");
        let line = maps.lines().find(code).unwrap();
        let path = line.split_whitespace().last().unwrap();
        let mapping = deburr_core::procfs::maps::code(line.as_bytes()).unwrap();
        let (from, bytes) = function_for_others(Path::new(path)).unwrap();
        assert!(bytes > 0 && from > mapping.offset);
        let within = mapping.start + (from - mapping.offset);
        let libraries = proc.join("7").join("root").join("lib");
        fs::create_dir_all(&libraries).unwrap();
        fs::copy(path, libraries.join("libc.so.6")).unwrap();
        fs::copy(path, libraries.join("ld-musl-x86_64.so.1")).unwrap();
        let CodeMapping { start, end, offset, .. } = mapping;
        let maps = format!(
            "400000-500000 r-xp 00000000 fe:00 1 /opt/server\n\
             {start:x}-{end:x} r-xp {offset:x} fe:00 2 /lib/libc.so.6\n\
             600000-700000 r-xp 00000000 fe:00 3 /lib/ld-musl-x86_64.so.1\n"
        );
        fs::write(proc.join("7/maps"), maps).unwrap();
        (Roots { proc: proc.into(), ..Roots::default() }, within, start + 1)
    }

    fn waits(tid: u32, at: u64, value: u64) -> Sleep {
        let it = sleep(Object::None, Context::Thread);
        let arguments = [0x1000, 128, value];
        Sleep { tid, call: Call::System(202), arguments, caller: Caller::At(at), ..it }
    }

    fn met(callers: &mut Callers, roots: &Roots, sleep: &Sleep) -> Caller {
        let mut it = *sleep;
        callers.meet(roots, &mut it);
        it.caller
    }

    #[test]
    fn whose_code_it_is_says_the_library() {
        let scratch = tempfile::tempdir().unwrap();
        let (roots, syscall, glibc) = process_with_libraries(scratch.path());
        let mut callers = Callers::default();
        let mut of = |at, value| met(&mut callers, &roots, &waits(7, at, value));
        assert_eq!(of(glibc, 2), Caller::Glibc);
        assert_eq!(of(syscall + 1, 2), Caller::Other);
        assert_eq!(of(0x60_0001, 0x8000_0010), Caller::Musl);
        assert_eq!(of(0x40_0001, 2), Caller::Other);
        // A condition is nobody's.
        assert_eq!(of(0x40_0001, 0), Caller::At(0x40_0001));
        // What was mapped since is found, and what is not there any more is nobody's.
        assert_eq!(of(0x80_0001, 2), Caller::Other);
        let maps = scratch.path().join("7/maps");
        let more =
            fs::read_to_string(&maps).unwrap() + "800000-900000 r-xp 0 0:1 1 /lib/libc.so.6\n";
        fs::write(&maps, more).unwrap();
        assert_eq!(of(0x80_0001, 2), Caller::Glibc);
        callers.forget(7);
        fs::remove_file(maps).unwrap();
        assert_eq!(met(&mut callers, &roots, &waits(7, glibc, 2)), Caller::Other);
    }

    #[test]
    fn what_threads_take_in_turn_is_shared() {
        let scratch = tempfile::tempdir().unwrap();
        let roots = Roots { proc: scratch.path().into(), ..Roots::default() };
        fs::create_dir_all(scratch.path().join("7/task/1")).unwrap();
        let mut callers = Callers::default();
        let mut slept = |address, tid, since_ns| {
            let it = waits(tid, 0x40_0001, 2);
            let arguments = [address, 128, 2];
            met(&mut callers, &roots, &Sleep { arguments, since_ns, slept_ns: 100, ..it })
        };
        use Caller::{Other, Shared};
        // One thread alone, again and again.
        assert_eq!([0, 200, 400].map(|at| slept(1, 1, at)), [Other; 3]);
        // Two in turn.
        assert_eq!(
            [(1, 0), (2, 50), (1, 200)].map(|(tid, at)| slept(2, tid, at)),
            [Other, Other, Shared]
        );
        // Two at a time, once.
        assert_eq!([(1, 0), (2, 50), (3, 99)].map(|(tid, at)| slept(3, tid, at)), [Other; 3]);
        // The stack of one that has ended is another one's now.
        assert_eq!([(8, 0), (9, 200), (9, 400)].map(|(tid, at)| slept(4, tid, at)), [Other; 3]);
    }

    #[test]
    fn who_holds_its_address_space_locked_holds_up_nobody_twice() {
        let scratch = tempfile::tempdir().unwrap();
        let roots = Roots { proc: scratch.path().into(), ..Roots::default() };
        for pid in ["7", "8"] {
            fs::create_dir(scratch.path().join(pid)).unwrap();
        }
        // Nobody ever writes to it.
        let fifo = scratch.path().join("7/maps");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let (_, _, glibc) = process_with_libraries(&scratch.path().join("other"));
        fs::rename(scratch.path().join("other/7/maps"), scratch.path().join("8/maps")).unwrap();
        fs::rename(scratch.path().join("other/7/root"), scratch.path().join("8/root")).unwrap();
        let mut callers = Callers::default();
        let mut of = |tgid| met(&mut callers, &roots, &Sleep { tgid, ..waits(7, glibc, 2) });
        assert_eq!(of(7), Caller::Other);
        let begin = std::time::Instant::now();
        let many = (0..100).map(|_| [of(7), of(8)]).all(|it| it == [Caller::Other; 2]);
        assert!(many && begin.elapsed() < 10 * PATIENCE, "{:?}", begin.elapsed());
        // Once it lets go, the other is known, too.
        drop(fs::OpenOptions::new().write(true).open(&fifo).unwrap());
        while of(8) != Caller::Glibc {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(PATIENCE);
        }
    }

    #[test]
    fn libraries_have_their_names() {
        let all = [
            ("/usr/lib64/libc-2.17.so", Library::Glibc),
            ("/usr/lib64/libpthread-2.17.so", Library::Glibc),
            ("/lib/x86_64-linux-gnu/libpthread.so.0", Library::Glibc),
            ("/lib/x86_64-linux-musl/libc.so", Library::Musl),
            ("/lib/libc.musl-x86_64.so.1", Library::Musl),
            ("/usr/lib/libtbb.so.12.8", Library::Other),
            ("/usr/lib/libc-client.so.2007e", Library::Other),
            ("/libc.so.6/server", Library::Other),
            ("[vdso]", Library::Other),
            ("", Library::Other),
        ];
        for (path, library) in all {
            assert_eq!(library_of(path.as_bytes()), library, "{path}");
        }
    }
}
