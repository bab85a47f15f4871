// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose code waits on a futex: glibc, musl, or somebody else, by what the process has mapped where the call was made. Others
//! make it in the function `syscall` of these libraries, too.

use super::super::super::Roots;
use super::kind::{is_condition, is_handed_over, is_marked_futex};
use crate::limits;
use crate::limits::{FILE_BYTES, FileImage, places};
use deburr_bpf::sched::{Caller, Sleep};
use deburr_core::limits::Metered;
use deburr_core::limits::elf::Elf;
use deburr_core::procfs::maps::CodeMapping;
use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Most time in a second for which answers are waited for. While one is missing, as of somebody who keeps its address space
/// locked, no other is waited for.
const PATIENCE: Duration = Duration::from_millis(20);
/// Processes that are asked about in a second, at some 100 us each.
const ASKED: u32 = 64;
/// Words that are kept, and processes; and of each the parts of libraries, and places elsewhere at which calls were made.
const WORDS: usize = 16_384;
const PROCESSES: usize = 4096;
const PARTS: usize = 32;
const PLACES: usize = 64;
/// Bytes of the data of an interpreter at most: there are some 200 000.
const MOST_DATA: u64 = 4 << 20;
/// Threads of a word that are kept.
const WAITERS: usize = 16;

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
    value: u64,
    /// Threads that have waited on it.
    waiters: Vec<u32>,
    /// When one of them was first woken by another one, on the run queues' clock.
    woken_ns: u64,
    /// A sleep began later than that: it had that value again.
    is_again: bool,
    /// One of them has woken another one: who has waited has it, and gives it on.
    is_given_on: bool,
}

impl Word {
    fn of(value: u64) -> Self {
        Self { value, waiters: vec![], woken_ns: u64::MAX, is_again: false, is_given_on: false }
    }
}

/// What a process has mapped.
#[derive(Debug, Default)]
struct Mapped {
    libraries: Parts,
    /// The data of CPython, which the lock of its interpreter is in: first address and end.
    interpreter: Option<(u64, u64)>,
}

/// What is known of a process.
#[derive(Debug, Default)]
struct Known {
    /// Once it has answered.
    mapped: Mapped,
    /// Places that are in none of them, as far as that is known.
    elsewhere: Vec<u64>,
}

impl Known {
    fn at(&self, at: u64) -> Option<Library> {
        let within = |&&(start, end, _): &&(u64, u64, Library)| (start..end).contains(&at);
        let found = self.mapped.libraries.iter().find(within).map(|&(.., library)| library);
        let is_elsewhere = || self.elsewhere.contains(&at) || self.elsewhere.len() >= PLACES;
        found.or_else(|| is_elsewhere().then_some(Library::Other))
    }
}

/// Reads what processes have mapped. A process can hold that up for as long as it likes, so another thread does it.
#[derive(Debug)]
struct Reader {
    ask: SyncSender<u32>,
    answers: Receiver<(u32, Mapped)>,
    /// Processes that were asked about and have not answered.
    open: usize,
}

/// Whose code waits on which words.
#[derive(Debug, Default)]
pub(super) struct Callers {
    asked: u32,
    waited: Duration,
    /// `None` = it is not there yet, or there is no room for a thread.
    reader: Option<Reader>,
    of: HashMap<u32, Known>,
    /// By process and address.
    words: HashMap<(u32, u64), Word>,
}

impl Callers {
    /// A second is over.
    pub(super) fn second(&mut self) {
        (self.asked, self.waited) = (0, Duration::ZERO);
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
            if let Some(data) = self.interpreter(roots, sleep) {
                sleep.caller = Caller::Interpreter(data);
            }
            return;
        }
        sleep.caller = match self.library(roots, sleep.tgid, at) {
            Library::Glibc if is_shared_lock(sleep) && self.is_taken_in_turn(roots, sleep) => {
                Caller::Shared
            }
            Library::Glibc => Caller::Glibc,
            Library::Musl => Caller::Musl,
            // Nor are conditions of a glibc that is a part of the program.
            Library::Other if has_clock(sleep) => Caller::Other,
            Library::Other if self.is_taken_in_turn(roots, sleep) => Caller::Shared,
            Library::Other => Caller::Other,
        };
    }

    /// The interpreter for whose lock a thread waits. CPython does so with a limit, whatever for it waits without.
    fn interpreter(&mut self, roots: &Roots, sleep: &Sleep) -> Option<u64> {
        if !sleep.is_timed || !is_condition(sleep) {
            return None;
        }
        self.take_answers(Duration::ZERO);
        if !self.of.contains_key(&sleep.tgid) {
            self.ask(roots, sleep.tgid);
        }
        let (start, end) = self.of.get(&sleep.tgid)?.mapped.interpreter?;
        (start..end).contains(&sleep.arguments[0]).then_some(start)
    }

    fn is_taken_in_turn(&mut self, roots: &Roots, sleep: &Sleep) -> bool {
        let &Sleep { tgid, tid, arguments: [address, _, value], since_ns, .. } = sleep;
        // Who wants to read and who wants to write wait on the same word, with another value each.
        let value = if is_shared_lock(sleep) { value | 1 } else { value };
        let word = self.words.entry((tgid, address)).or_insert_with(|| Word::of(value));
        // A counter, or an event.
        if word.value != value {
            *word = Word::of(value);
        }
        if word.waiters.len() < WAITERS && !word.waiters.contains(&tid) {
            // A word on the stack of a thread that has ended may be on that of a new one.
            word.waiters.retain(|it| roots.proc.join(format!("{tgid}/task/{it}")).exists());
            word.waiters.push(tid);
        }
        word.is_again |= since_ns > word.woken_ns;
        if is_handed_over(sleep) {
            word.woken_ns = word.woken_ns.min(since_ns.saturating_add(sleep.slept_ns));
            word.is_given_on |= word.waiters.contains(&sleep.waker.tid);
        }
        word.waiters.len() > 1 && word.is_again && word.is_given_on
    }

    fn library(&mut self, roots: &Roots, tgid: u32, at: u64) -> Library {
        self.take_answers(Duration::ZERO);
        if let Some(found) = self.of.get(&tgid).and_then(|known| known.at(at)) {
            return found;
        }
        // It was not asked yet, or it was not met there: what is there may have been mapped since.
        if !self.ask(roots, tgid) {
            return Library::Other;
        }
        let known = self.of.entry(tgid).or_default();
        known.at(at).unwrap_or_else(|| {
            known.elsewhere.push(at);
            Library::Other
        })
    }

    /// Asks what a process has mapped; whether it was asked.
    fn ask(&mut self, roots: &Roots, tgid: u32) -> bool {
        if self.asked >= ASKED {
            return false;
        }
        self.asked += 1;
        if self.reader.is_none() {
            self.reader = Reader::start(roots);
        }
        let Some(reader) = &mut self.reader else { return false };
        if reader.ask.try_send(tgid).is_err() {
            return false;
        }
        let is_held_up = reader.open > 0;
        reader.open += 1;
        self.of.entry(tgid).or_default();
        if !is_held_up {
            let begin = Instant::now();
            self.take_answers(PATIENCE.saturating_sub(self.waited));
            self.waited += begin.elapsed();
        }
        true
    }

    /// Takes the answers that are there, or come within that time.
    fn take_answers(&mut self, patience: Duration) {
        let Some(reader) = &mut self.reader else { return };
        let mut patience = patience;
        while reader.open > 0
            && let Ok((tgid, mapped)) = reader.answers.recv_timeout(patience)
        {
            reader.open -= 1;
            patience = Duration::ZERO;
            // It may have ended, and be forgotten.
            if let Some(known) = self.of.get_mut(&tgid) {
                known.mapped = mapped;
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
                if answer.send((tgid, Mapped::of(&roots, tgid))).is_err() {
                    return;
                }
            }
        };
        Builder::new().name("callers".into()).spawn(work).ok()?;
        Some(Self { ask, answers, open: 0 })
    }
}

impl Mapped {
    fn of(roots: &Roots, tgid: u32) -> Self {
        let is_asked =
            |it: &CodeMapping| library_of(&it.path) != Library::Other || is_interpreter(&it.path);
        let all = limits::code_mappings_of(roots, tgid, is_asked, PARTS).unwrap_or_default();
        let data = |it: &CodeMapping| {
            let places = places((it.start, it.end), &it.path, roots, tgid);
            places.iter().find_map(|path| interpreter_data(path, it))
        };
        Self {
            libraries: all.iter().flat_map(|it| parts(roots, tgid, it)).collect(),
            interpreter: all.iter().filter(|it| is_interpreter(&it.path)).find_map(data),
        }
    }
}

/// Where the data of CPython are that a process has mapped: first address and end.
fn interpreter_data(file: &Path, code: &CodeMapping) -> Option<(u64, u64)> {
    let file = FileImage::open(file).ok()?;
    let file = Metered::new(&file, FILE_BYTES);
    let elf = Elf::read(&file).ok()?;
    let (address, bytes) = elf.symbol(&file, "_PyRuntime")?;
    // A file that only uses it, or one that is none of CPython's.
    if bytes == 0 || bytes > MOST_DATA || !elf.is_variable(address) {
        return None;
    }
    // The kernel maps whole pages: the first bytes of these may belong to the segment before.
    let middle = code.end.saturating_sub(code.start) / 2;
    let linked = elf.address_of(code.offset.checked_add(middle)?)?;
    let start = address.wrapping_add((code.start + middle).wrapping_sub(linked));
    Some((start, start.checked_add(bytes)?))
}

/// By the name of the file: CPython as a program, or as a library in it or another one.
fn is_interpreter(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    name.starts_with(b"python") || name.starts_with(b"libpython")
}

fn parts(roots: &Roots, tgid: u32, it: &CodeMapping) -> Parts {
    if library_of(&it.path) == Library::Other {
        return vec![];
    }
    let &CodeMapping { start, end, offset, .. } = it;
    let library = library_of(&it.path);
    let places = places((start, end), &it.path, roots, tgid);
    let Some((from, bytes)) = places.iter().find_map(|path| function_for_others(path)) else {
        return vec![];
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

/// Whether the call has a clock, as glibc's have.
fn has_clock(sleep: &Sleep) -> bool {
    const CLOCK_REALTIME: u64 = 256;
    sleep.arguments[1] & CLOCK_REALTIME != 0
}

/// Whether a word may be one of a read-write lock of glibc: its phase, or its writers. A condition may have such a value, too.
fn is_shared_lock(sleep: &Sleep) -> bool {
    const WAIT_BITSET: u64 = 9;
    const OPERATION: u64 = 127;
    has_clock(sleep)
        && sleep.arguments[1] & OPERATION == WAIT_BITSET
        && matches!(sleep.arguments[2], 2 | 3)
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::sleep;
    use super::*;
    use deburr_bpf::sched::{Call, Context, Object, Waker};
    use std::fs;

    /// A `/proc` in which process 7 has mapped its program and this machine's C library, and where that has `syscall`.
    fn process_with_libraries(proc: &Path) -> (Roots, u64, u64) {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let code = |line: &&str| line.contains("r-xp") && line.contains("/libc.so.6");
        let line = maps.lines().find(code).expect("a test of glibc");
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

    /// The same once whoever was asked has answered, which may take longer than it is waited for.
    fn answered(callers: &mut Callers, roots: &Roots, sleep: &Sleep) -> Caller {
        met(callers, roots, sleep);
        while callers.reader.as_ref().is_some_and(|it| it.open > 0) {
            callers.take_answers(Duration::from_secs(60));
        }
        met(callers, roots, sleep)
    }

    #[test]
    fn whose_code_it_is_says_the_library() {
        let scratch = tempfile::tempdir().unwrap();
        let (roots, syscall, glibc) = process_with_libraries(scratch.path());
        let mut callers = Callers::default();
        let mut of = |at, value| answered(&mut callers, &roots, &waits(7, at, value));
        assert_eq!(of(glibc, 2), Caller::Glibc);
        assert_eq!(of(syscall + 1, 2), Caller::Other);
        assert_eq!(of(0x60_0001, 0x8000_0010), Caller::Musl);
        assert_eq!(of(0x40_0001, 2), Caller::Other);
        // A condition is nobody's.
        assert_eq!(of(0x40_0001, 0), Caller::At(0x40_0001));
        // What was mapped since is found.
        assert_eq!(of(0x80_0001, 2), Caller::Other);
        let maps = scratch.path().join("7/maps");
        let more = "900000-a00000 r-xp 0 0:1 1 /lib/libc.so.6\n";
        fs::write(&maps, fs::read_to_string(&maps).unwrap() + more).unwrap();
        assert_eq!(of(0x90_0001, 2), Caller::Glibc);
        callers.forget(7);
        fs::remove_file(maps).unwrap();
        assert_eq!(answered(&mut callers, &roots, &waits(7, glibc, 2)), Caller::Other);
    }

    #[test]
    fn a_wait_with_a_limit_in_the_data_of_an_interpreter_is_for_its_lock() {
        let scratch = tempfile::tempdir().unwrap();
        let (roots, _, glibc) = process_with_libraries(scratch.path());
        let mut callers = Callers::default();
        let mapped = Mapped { interpreter: Some((0x1000, 0x2000)), ..Mapped::default() };
        callers.of.insert(7, Known { mapped, ..Known::default() });
        let timed = |address, value| {
            let arguments = [address, 128 | 9, value];
            Sleep { arguments, is_timed: true, ..waits(7, glibc, value) }
        };
        let known = Caller::Interpreter(0x1000);
        let at = Caller::At(glibc);
        for (it, is) in [
            (timed(0x1000, 0), known),
            (timed(0x1fff, 0), known),
            (timed(0x2000, 0), at),
            // Who gave it on waits until another one has it.
            (Sleep { is_timed: false, ..timed(0x1000, 0) }, at),
            (Sleep { tgid: 8, ..timed(0x1000, 0) }, at),
        ] {
            assert_eq!(met(&mut callers, &roots, &it), is, "{it:?}");
        }
    }

    #[test]
    fn files_of_interpreters_have_their_names() {
        for (path, is) in [
            ("/usr/bin/python3.11", true),
            ("/opt/lib/libpython3.12.so.1.0", true),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", false),
            ("/srv/python3/server", false),
        ] {
            assert_eq!(is_interpreter(path.as_bytes()), is, "{path}");
        }
    }

    #[test]
    fn what_threads_take_in_turn_is_shared() {
        let scratch = tempfile::tempdir().unwrap();
        let roots = Roots { proc: scratch.path().into(), ..Roots::default() };
        for tid in ["1", "2"] {
            fs::create_dir_all(scratch.path().join("7/task").join(tid)).unwrap();
        }
        let mut callers = Callers::default();
        let mut slept = |value, (address, tid), since_ns, by| {
            let it = waits(tid, 0x40_0001, value);
            let arguments = [address, 128, value];
            let waker = Waker { tid: by, call: Call::System(202), ..it.waker };
            let it = Sleep { arguments, since_ns, slept_ns: 100, waker, ..it };
            answered(&mut callers, &roots, &it)
        };
        use Caller::{Other, Shared};
        // One thread alone, again and again, whoever wakes it.
        assert_eq!([0, 200, 400].map(|at| slept(2, (1, 1), at, 9)), [Other; 3]);
        // Two in turn: one of them wakes the other one.
        let turns = [(1, 0, 9), (2, 50, 1), (1, 200, 2)];
        assert_eq!(turns.map(|(tid, at, by)| slept(2, (2, tid), at, by)), [Other, Other, Shared]);
        // Two that a third one wakes each time, and never waits.
        let events = [(1, 0, 9), (2, 50, 9), (1, 200, 9), (2, 300, 9)];
        assert_eq!(events.map(|(tid, at, by)| slept(2, (3, tid), at, by)), [Other; 4]);
        // Two at a time, once.
        assert_eq!([(1, 0), (2, 50)].map(|(tid, at)| slept(2, (4, tid), at, 1)), [Other; 2]);
        // The stack of one that has ended is another one's now.
        let stacks = [(8, 0, 9), (9, 200, 8), (9, 400, 8)];
        assert_eq!(stacks.map(|(tid, at, by)| slept(2, (5, tid), at, by)), [Other; 3]);
        // A counter.
        let counts = [(8, 1, 0, 2), (16, 2, 200, 1), (24, 1, 400, 2), (32, 2, 600, 1)];
        let counted = counts.map(|(n, tid, at, by)| slept(0x8000_0000 + n, (6, tid), at, by));
        assert_eq!(counted, [Other; 4]);
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
        let begin = Instant::now();
        let many = (0..100).map(|_| [of(7), of(8)]).all(|it| it == [Caller::Other; 2]);
        // Had each been waited for, that would have taken four seconds.
        assert!(many && begin.elapsed() < 100 * PATIENCE, "{:?}", begin.elapsed());
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
