// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generated skeletons; what the linters say of generated code is switched off here and nowhere else.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    unused_qualifications,
    clippy::all,
    clippy::pedantic
)]

pub(crate) mod sched {
    include!(concat!(env!("OUT_DIR"), "/sched.skel.rs"));
}

pub(crate) mod empty {
    include!(concat!(env!("OUT_DIR"), "/empty.skel.rs"));
}
