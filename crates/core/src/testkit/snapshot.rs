// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small snapshots of hosts for tests.

use crate::snapshot::{
    Area, Class, Fact, Host, Instance, Integer, Reading, SCHEMA, Snapshot, Tool, Unit, Value, fold,
};

/// A snapshot of a host without any facts.
#[must_use]
pub fn host(name: &str) -> Snapshot {
    Snapshot {
        schema: SCHEMA.into(),
        tool: Tool { version: "0.1.0".into() },
        taken: "2026-01-02T03:04:05Z".into(),
        host: Host { name: Some(name.into()), kernel: "6.1.0".into(), arch: "x86_64".into() },
        reading: Reading {
            files: 1,
            took_ns: 1,
            median_ns: 1,
            as_root: true,
            ..Reading::default()
        },
        facts: vec![],
    }
}

/// The same value on this many CPUs.
#[must_use]
pub fn on_cpus(cpus: u32, value: &Value) -> Value {
    fold((0..cpus).map(|cpu| (Instance::Number(cpu), value.clone())))
}

/// A frequency in kHz.
#[must_use]
pub fn khz(amount: i128) -> Value {
    Value::Integer(Integer { amount, unit: Some(Unit::Khz) })
}

impl Snapshot {
    /// Adds a setting, or replaces its value.
    #[must_use]
    pub fn with(self, key: &str, value: Value) -> Self {
        self.with_fact(key, Class::Configuration, value)
    }

    /// Adds a fact, or replaces it.
    #[must_use]
    pub fn with_fact(mut self, key: &str, class: Class, value: Value) -> Self {
        self.facts.retain(|fact| fact.key != key);
        self.facts.push(Fact { key: key.into(), class, area: area(key), value, read_ns: None });
        self.facts.sort_by(|a, b| a.key.cmp(&b.key));
        self
    }

    /// Removes a fact.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.facts.retain(|fact| fact.key != key);
        self
    }
}

fn area(key: &str) -> Area {
    let has = |part: &str| key.contains(part);
    match () {
        () if has("cpufreq/") || has("pstate/") => Area::Frequency,
        () if has("cpuidle/") => Area::Idle,
        () if has("/clocksource/") => Area::Clock,
        () if has("cmdline") || has("/kernel/") => Area::Kernel,
        () if has("/modules") || has("/module/") => Area::Modules,
        () if has("cpu") => Area::Cpu,
        () if has("/block/") => Area::Block,
        () if has("/net/") => Area::Network,
        () => Area::Memory,
    }
}
