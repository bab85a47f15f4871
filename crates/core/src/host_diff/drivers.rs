// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which drivers are in charge of a host: parameters of other drivers have no effect.

use super::knowledge::{self, RequiredDriver};
use crate::snapshot::{Snapshot, Value};

/// Key of the fact that names the idle driver.
pub(super) const IDLE_DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// Pattern of the keys of facts that name the frequency driver.
pub(super) const FREQUENCY_DRIVER: &str = "/sys/devices/system/cpu/*scaling_driver";

/// The drivers of one host; `None` = not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drivers {
    /// Driver of idle states; `none` if there is none.
    pub idle: Option<String>,
    /// Driver of CPU frequencies; `none` if there is none.
    pub frequency: Option<String>,
}

impl Drivers {
    /// The drivers of the host of a snapshot.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let idle = snapshot.fact(IDLE_DRIVER).and_then(|fact| driver(&fact.value));
        let frequency = snapshot
            .facts
            .iter()
            .find(|fact| knowledge::fits(FREQUENCY_DRIVER, &fact.key))
            .and_then(|fact| driver(&fact.value));
        Self { idle, frequency }
    }

    /// Whether the driver that `who` requires is in charge; `None` if the driver is not known.
    pub(super) fn answers(&self, who: RequiredDriver) -> Option<DriverInCharge<'_>> {
        let (kind, driver, wanted) = match who {
            RequiredDriver::Idle(wanted) => ("idle", self.idle.as_deref()?, wanted),
            RequiredDriver::Frequency(wanted) => ("frequency", self.frequency.as_deref()?, wanted),
        };
        Some(DriverInCharge { kind, driver, is_required: wanted.contains(&driver) })
    }
}

/// The driver of a host that a parameter may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DriverInCharge<'a> {
    /// `idle` or `frequency`.
    pub(super) kind: &'static str,
    pub(super) driver: &'a str,
    /// Whether it is one of the drivers under which the parameter has an effect.
    pub(super) is_required: bool,
}

fn driver(value: &Value) -> Option<String> {
    match value.uniform()? {
        Value::Text(text) => Some(text.trim().to_owned()),
        Value::Absent => Some("none".into()),
        _ => None,
    }
}
