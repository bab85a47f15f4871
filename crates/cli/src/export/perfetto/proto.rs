// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the messages of a Perfetto trace, as far as they are needed: packets with tracks, slices, moments and counters.
//!
//! Field numbers are those of `protos/perfetto/trace/trace_packet.proto` and what it includes. They are written by hand
//! because there are few of them; a test reads them with the definitions that Perfetto publishes.

/// A message. Fields may be added in any order.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// Types of fields.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    /// Adds a number without a sign, or a boolean, or the number of a word.
    pub(super) fn uint(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | VARINT);
        self.varint(value);
        self
    }

    /// Adds a number with a fraction.
    pub(super) fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a text.
    pub(super) fn text(mut self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes());
        self
    }

    /// Adds a message.
    pub(super) fn message(mut self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0);
        self
    }

    /// The bytes of a trace that consists of this packet.
    pub(super) fn as_packet(&self) -> Vec<u8> {
        Self::default().message(1, self).0
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 128 {
            self.0.push(number as u8 | 128);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

/// A detail of a slice: its name and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Detail {
    Uint(u64),
    Real(f64),
    Text(String),
    /// Named details.
    Dict(Vec<(String, Detail)>),
}

impl Detail {
    /// `DebugAnnotation`.
    pub(super) fn named(&self, name: &str) -> Message {
        let message = Message::default().text(10, name);
        match self {
            Self::Uint(value) => message.uint(3, *value),
            Self::Real(value) => message.double(5, *value),
            Self::Text(text) => message.text(6, text),
            Self::Dict(entries) => {
                entries.iter().fold(message, |to, (name, it)| to.message(11, &it.named(name)))
            }
        }
    }
}
