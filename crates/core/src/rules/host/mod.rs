// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HST rules: a host is not set up like others of its kind.

pub(super) mod host_drift;
