// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr prove`: controlled experiments on this host. What is asked for becomes a [`plan`], whose blocks are run one
//! after the other ([`trial`]); each is one observation ([`runner`]), beside which a command may be timed ([`probe`]). What
//! is changed, and how it is put back, is in [`changes`]; a command of which something is changed is in [`restart`].

mod changes;
mod exercise;
mod guard;
mod knobs;
pub(crate) mod plan;
mod probe;
pub(crate) mod restart;
pub(crate) mod runner;
pub(crate) mod trial;

pub(crate) use changes::Changes;
pub(crate) use exercise::{ChangesArgs, change_again_and_again};
pub(crate) use restart::Restarted;
