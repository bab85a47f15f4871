// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes structures of the Thrift compact protocol, as far as Parquet has them.

/// The bytes of a structure, which are complete after [`Struct::end`].
#[derive(Debug, Default)]
pub(super) struct Struct {
    bytes: Vec<u8>,
    /// The last field.
    last: i16,
}

/// A value of a field or of an element of a list.
pub(super) enum Value<'a> {
    Bool(bool),
    I32(i32),
    I64(i64),
    Text(&'a str),
    Struct(Struct),
    /// Elements of the same type.
    List(Vec<Value<'a>>),
}

impl Value<'_> {
    /// Number of the type. That of a boolean field is its value.
    fn kind(&self) -> u8 {
        match self {
            Self::Bool(true) => 1,
            Self::Bool(false) => 2,
            Self::I32(_) => 5,
            Self::I64(_) => 6,
            Self::Text(_) => 8,
            Self::List(_) => 9,
            Self::Struct(_) => 12,
        }
    }

    fn write(self, to: &mut Vec<u8>) {
        match self {
            // It is in the head of the field.
            Self::Bool(_) => {}
            Self::I32(number) => varint(zigzag(number.into()), to),
            Self::I64(number) => varint(zigzag(number), to),
            Self::Text(text) => {
                varint(text.len() as u64, to);
                to.extend(text.as_bytes());
            }
            Self::Struct(inner) => to.extend(inner.end()),
            Self::List(elements) => {
                let kind = elements.first().map_or(12, Value::kind);
                match elements.len() {
                    short @ 0..15 => to.push((short as u8) << 4 | kind),
                    long => {
                        to.push(0xf0 | kind);
                        varint(long as u64, to);
                    }
                }
                elements.into_iter().for_each(|element| element.write(to));
            }
        }
    }
}

impl Struct {
    /// Adds a field. Fields must be added in ascending order.
    pub(super) fn with(mut self, field: i16, value: Value<'_>) -> Self {
        let (kind, step) = (value.kind(), field - self.last);
        if (1..=15).contains(&step) {
            self.bytes.push((step as u8) << 4 | kind);
        } else {
            self.bytes.push(kind);
            varint(zigzag(field.into()), &mut self.bytes);
        }
        self.last = field;
        value.write(&mut self.bytes);
        self
    }

    /// All bytes.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

/// Seven bits per byte, lowest first.
pub(super) fn varint(mut number: u64, to: &mut Vec<u8>) {
    while number >= 128 {
        to.push(number as u8 | 128);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Small numbers of either sign as small ones without.
pub(super) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}
