// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decodes what the program over files wrote about what waits to be read.

use super::{Ends, ends};
use crate::mapped::{Plain, from_bytes};
use crate::skel::net::types::net_unread;

// SAFETY: generated from a C struct of integers and structs of them; every bit pattern is a value.
unsafe impl Plain for net_unread {}

/// `READER_NONE`.
const LISTENS: u32 = 4;
/// `HELD_SMALL`.
const HELD_SMALL: u32 = 5;
/// `HELD_CORKED`.
const HELD_CORKED: u32 = 6;

/// What the thread did that fetches what an event poll has ready: `enum net_reader_state` in `net.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It is not known which one that is.
    Unknown,
    /// It was on a CPU, or would have been but for the one that looked.
    OnCpu,
    /// It would have run: it waited for a CPU or for its CPU limit.
    Queued,
    /// It slept on something else than the event poll.
    Asleep,
}

/// A connection with something to read that its event poll has in its list of what is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which connection.
    pub ends: Ends,
    /// Bytes that were not read.
    pub unread_bytes: u32,
    /// Bytes that the other end may still send, as it was last told.
    pub room_bytes: u32,
    /// Time since the last of them came, to a jiffy: the first of them has waited for longer.
    pub age_ns: u64,
    /// What the thread did that should fetch it.
    pub reader: Reader,
    /// That thread; `None` = not known.
    pub tid: Option<u32>,
}

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its own address; it has no other end.
    pub ends: Ends,
    /// Connections that wait to be accepted.
    pub waiting: u32,
    /// Of the first of them that has sent something: how many bytes; 0 = none of the first few has.
    pub asked_bytes: u32,
    /// Time since the last of them came, to a jiffy.
    pub age_ns: u64,
}

/// A connection that holds back what does not fill a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// Which connection.
    pub ends: Ends,
    /// Whether its program asked for that (`TCP_CORK`); if not, it waits until the segment before is confirmed.
    pub corked: bool,
    /// Bytes that are held back.
    pub unsent_bytes: u32,
    /// Time since it sent something last, to a jiffy.
    pub age_ns: u64,
    /// The other end has sent something since a look at which this was another number; `None` = it has sent nothing.
    pub answers: Option<u32>,
    /// This end has sent something since a look at which this was another number.
    pub sent: u32,
}

/// A look at the connections of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// Number of connections that event polls watch.
    pub watched: u32,
    /// Number of connections that may hold something back.
    pub may_hold: u32,
    /// Those that do.
    pub held_back: Vec<HeldBack>,
    /// Those that are watched and wait.
    pub waiting: Vec<Waiting>,
    /// The sockets that listen.
    pub listeners: Vec<Listener>,
}

/// Everything that was written; an entry that was cut off is left out.
pub(super) fn decode(written: &[u8], ns_per_jiffy: u64) -> Unread {
    let mut all = Unread::default();
    for it in written.chunks_exact(size_of::<net_unread>()) {
        let it: net_unread = from_bytes(it).expect("a chunk has the size of an entry");
        if it.ends.sock == 0 {
            (all.watched, all.may_hold) = (it.watched, it.waiting);
        } else if it.state == LISTENS {
            all.listeners.push(listener(&it, ns_per_jiffy));
        } else if matches!(it.state, HELD_SMALL | HELD_CORKED) {
            all.held_back.push(held_back(&it, ns_per_jiffy));
        } else {
            all.waiting.push(waiting(&it, ns_per_jiffy));
        }
    }
    all
}

/// Something may have come between the two readings of which this is the difference.
fn age_ns(it: &net_unread, ns_per_jiffy: u64) -> u64 {
    u64::try_from(it.age_jiffies.cast_signed()).unwrap_or(0) * ns_per_jiffy
}

fn listener(it: &net_unread, ns_per_jiffy: u64) -> Listener {
    Listener {
        ends: ends(&it.ends),
        waiting: it.waiting,
        asked_bytes: it.unread_bytes,
        age_ns: age_ns(it, ns_per_jiffy),
    }
}

fn held_back(it: &net_unread, ns_per_jiffy: u64) -> HeldBack {
    HeldBack {
        ends: ends(&it.ends),
        corked: it.state == HELD_CORKED,
        unsent_bytes: it.unread_bytes,
        age_ns: age_ns(it, ns_per_jiffy),
        answers: Some(it.answers).filter(|&answers| answers != 0),
        sent: it.sent,
    }
}

fn waiting(it: &net_unread, ns_per_jiffy: u64) -> Waiting {
    Waiting {
        ends: ends(&it.ends),
        unread_bytes: it.unread_bytes,
        room_bytes: it.room_bytes,
        age_ns: age_ns(it, ns_per_jiffy),
        reader: match it.state {
            1 => Reader::OnCpu,
            2 => Reader::Queued,
            3 => Reader::Asleep,
            _ => Reader::Unknown,
        },
        tid: Some(it.reader).filter(|&tid| tid != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entry_tells_how_many_are_watched() {
        let bytes = |it: &net_unread| -> Vec<u8> {
            // SAFETY: a struct of integers without padding, which lives until the copy is made.
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(it).cast(), size_of_val(it)) }
                .to_vec()
        };
        let mut one =
            net_unread { unread_bytes: 9, age_jiffies: 3, state: 1, ..Default::default() };
        one.ends.sock = 7;
        one.reader = 42;
        let end = net_unread { watched: 5, waiting: 6, ..Default::default() };
        let mut queue = net_unread { state: LISTENS, waiting: 8, age_jiffies: 2, ..one };
        queue.unread_bytes = 30;
        let held = |state, answers| net_unread { state, answers, ..one };
        let (small, corked) = (held(HELD_SMALL, 0), held(HELD_CORKED, 17));
        let bytes_of_all = [one, queue, small, corked, end].map(|it| bytes(&it)).concat();
        let all = decode(&bytes_of_all, 4_000_000);
        assert_eq!((all.watched, all.may_hold, all.waiting.len()), (5, 6, 1));
        let held: Vec<_> = all.held_back.iter().map(|it| (it.corked, it.answers)).collect();
        assert_eq!(held, [(false, None), (true, Some(17))]);
        assert_eq!((all.held_back[0].unsent_bytes, all.held_back[0].age_ns), (9, 12_000_000));
        let [it] = all.listeners.as_slice() else { panic!("{all:?}") };
        assert_eq!((it.waiting, it.asked_bytes, it.age_ns), (8, 30, 8_000_000));
        let it = all.waiting[0];
        assert_eq!((it.age_ns, it.reader, it.tid), (12_000_000, Reader::OnCpu, Some(42)));
        one.age_jiffies = u32::MAX;
        (one.state, one.reader) = (0, 0);
        let it = decode(&bytes(&one), 4_000_000).waiting[0];
        assert_eq!((it.age_ns, it.reader, it.tid), (0, Reader::Unknown, None));
    }
}
