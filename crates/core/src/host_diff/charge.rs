// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which driver is in charge: a parameter of another one says nothing.

use super::knowledge::{self, InCharge};
use crate::snapshot::{Snapshot, Value};

/// Key of the idle driver.
pub(super) const IDLE_DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// Pattern of the key of the frequency driver.
pub(super) const FREQUENCY_DRIVER: &str = "/sys/devices/system/cpu/*scaling_driver";

/// The drivers of one host; `None` where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drivers {
    /// Of idle states; `none` if there is none.
    pub idle: Option<String>,
    /// Of frequencies; `none` if there is none.
    pub frequency: Option<String>,
}

impl Drivers {
    /// Those of a snapshot.
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

    /// Who is in charge of what `who` is about, and whether it is one of those.
    pub(super) fn answers(&self, who: InCharge) -> Option<(&'static str, &str, bool)> {
        let (kind, driver, wanted) = match who {
            InCharge::Idle(wanted) => ("idle", self.idle.as_deref()?, wanted),
            InCharge::Frequency(wanted) => ("frequency", self.frequency.as_deref()?, wanted),
        };
        Some((kind, driver, wanted.contains(&driver)))
    }
}

fn driver(value: &Value) -> Option<String> {
    match value.uniform()? {
        Value::Text(text) => Some(text.trim().to_owned()),
        Value::Absent => Some("none".into()),
        _ => None,
    }
}
