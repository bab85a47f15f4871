// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generated skeletons. Lints are switched off for this generated code, here and nowhere else.

#![allow(missing_docs, unreachable_pub, dead_code, unused_imports, unused_qualifications)]
#![allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]

pub(crate) mod sched {
    include!(concat!(env!("OUT_DIR"), "/sched.skel.rs"));
}

pub(crate) mod empty {
    include!(concat!(env!("OUT_DIR"), "/empty.skel.rs"));
}

pub(crate) mod block {
    include!(concat!(env!("OUT_DIR"), "/block.skel.rs"));
}

pub(crate) mod writeback {
    include!(concat!(env!("OUT_DIR"), "/writeback.skel.rs"));
}

pub(crate) mod net {
    include!(concat!(env!("OUT_DIR"), "/net.skel.rs"));
}

pub(crate) mod syscalls {
    include!(concat!(env!("OUT_DIR"), "/syscalls.skel.rs"));
}

pub(crate) mod reclaim {
    include!(concat!(env!("OUT_DIR"), "/reclaim.skel.rs"));
}

pub(crate) mod profile {
    include!(concat!(env!("OUT_DIR"), "/profile.skel.rs"));
}

pub(crate) mod stacks {
    include!(concat!(env!("OUT_DIR"), "/stacks.skel.rs"));
}

pub(crate) mod irq {
    include!(concat!(env!("OUT_DIR"), "/irq.skel.rs"));
}
