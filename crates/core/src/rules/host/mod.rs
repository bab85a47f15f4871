// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host: it is not what others of its kind are.

pub(super) mod host_drift;
