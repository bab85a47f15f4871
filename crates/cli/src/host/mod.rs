// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment changes on this host, and how all of it is undone, whatever happens to its process: cgroups of
//! its own, and a [`guard`] whose janitor removes them and undoes all registered changes.

pub(crate) mod cgroup;
pub(crate) mod guard;
pub(crate) mod undo;
