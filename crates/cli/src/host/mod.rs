// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment changes on this host, and how all of it is undone, whatever happens to its process: cgroups of
//! its own, a [`journal`] of all changes, and a [`guard`] whose janitor undoes them, and a [`keeper`] of
//! commands that it starts.

pub(crate) mod cgroup;
pub(crate) mod descendants;
pub(crate) mod guard;
pub(crate) mod journal;
pub(crate) mod keeper;
pub(crate) mod module;
pub(crate) mod place;
pub(crate) mod task;
pub(crate) mod undo;
