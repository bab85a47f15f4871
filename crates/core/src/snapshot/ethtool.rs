// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of a network card: builds the generic-netlink requests that `ethtool` sends to the kernel, and parses the
//! replies (the kernel's `Documentation/networking/ethtool-netlink.rst`). All numbers are in native byte order.

use super::parts::EntryValue;
use super::{Class, Integer, Unit, Value};
use crate::text::name::decode;
use std::collections::BTreeSet;

const MESSAGE_HEADER: usize = 16;
/// Length of the netlink header and the generic-netlink header.
const HEADERS: usize = MESSAGE_HEADER + 4;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
/// The netlink family that resolves the ids of other families, with its command and two of its attributes.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Attribute of every ethtool request, and the attribute in it for the card's name.
const A_HEADER: u16 = 1;
const A_HEADER_DEV_NAME: u16 = 2;
/// Bit in the type of an attribute that contains other attributes.
const NESTED: u16 = 1 << 15;
const TYPE_MASK: u16 = 0x3fff;
const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BITSET_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;
const FEATURES_CHANGEABLE: u16 = 2;
const FEATURES_ACTIVE: u16 = 4;
/// Coalescing attributes: whether the card adapts the values by itself.
const ADAPTIVE_RX: u16 = 11;
const ADAPTIVE_TX: u16 = 12;

/// A number in a reply: type of the attribute, name, class and unit of the fact.
type Number = (u16, &'static str, Class, Option<Unit>);

const RINGS: [Number; 4] = [
    (2, "ring rx maximum", Class::Capability, None),
    (5, "ring tx maximum", Class::Capability, None),
    (6, "ring rx", Class::Configuration, None),
    (9, "ring tx", Class::Configuration, None),
];
const CHANNELS: [Number; 6] = [
    (2, "channels rx maximum", Class::Capability, None),
    (3, "channels tx maximum", Class::Capability, None),
    (5, "channels combined maximum", Class::Capability, None),
    (6, "channels rx", Class::Configuration, None),
    (7, "channels tx", Class::Configuration, None),
    (9, "channels combined", Class::Configuration, None),
];
const COALESCING: [Number; 6] = [
    (2, "coalesce rx-usecs", Class::Configuration, Some(Unit::Us)),
    (3, "coalesce rx-frames", Class::Configuration, None),
    (6, "coalesce tx-usecs", Class::Configuration, Some(Unit::Us)),
    (7, "coalesce tx-frames", Class::Configuration, None),
    (ADAPTIVE_RX, "coalesce adaptive-rx", Class::Configuration, None),
    (ADAPTIVE_TX, "coalesce adaptive-tx", Class::Configuration, None),
];

/// A request about a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Sizes of the rings (`ethtool -g`).
    Rings,
    /// Number of queues (`ethtool -l`).
    Channels,
    /// Interrupt coalescing (`ethtool -c`).
    Coalescing,
    /// Offloads (`ethtool -k`).
    Features,
}

impl Question {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rings, Self::Channels, Self::Coalescing, Self::Features];

    fn command(self) -> u8 {
        match self {
            Self::Features => 11,
            Self::Rings => 15,
            Self::Channels => 17,
            Self::Coalescing => 19,
        }
    }
}

/// An error reply of the kernel: an `errno`, or 0 if the reply could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub i32);

/// Request for the id of the netlink family `ethtool`.
#[must_use]
pub fn family_request() -> Vec<u8> {
    message(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, &attribute(CTRL_ATTR_FAMILY_NAME, b"ethtool\0"))
}

/// Parses the id of the family from the reply to [`family_request`].
///
/// # Errors
/// If the kernel has no such family, or if the reply could not be parsed.
pub fn family(answer: &[u8]) -> Result<u16, Refusal> {
    let id = attributes(body(answer)?).find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID);
    let id = id.and_then(|(_, bytes)| Some(u16::from_ne_bytes(*bytes.first_chunk()?)));
    id.ok_or(Refusal(0))
}

/// A request about a card to the netlink family with this id.
#[must_use]
pub fn request(family: u16, question: Question, card: &str) -> Vec<u8> {
    let name = [card.as_bytes(), b"\0"].concat();
    let header = attribute(A_HEADER | NESTED, &attribute(A_HEADER_DEV_NAME, &name));
    message(family, question.command(), &header)
}

/// Parses a reply to the values of its facts.
///
/// # Errors
/// If the card's driver does not support the request, or if the reply could not be parsed.
pub fn facts(question: Question, answer: &[u8]) -> Result<Vec<EntryValue>, Refusal> {
    let body = body(answer)?;
    let find = |wanted| attributes(body).find(|(kind, _)| *kind == wanted).map(|(_, bytes)| bytes);
    let table: &[Number] = match question {
        Question::Rings => &RINGS,
        Question::Channels => &CHANNELS,
        Question::Coalescing => &COALESCING,
        Question::Features => {
            return Ok([
                ("features", Class::Configuration, FEATURES_ACTIVE),
                ("features changeable", Class::Capability, FEATURES_CHANGEABLE),
            ]
            .into_iter()
            .filter_map(|(name, class, kind)| {
                Some(EntryValue::of(name, class, Value::Set(names(find(kind)?))))
            })
            .collect());
        }
    };
    let is_on = |kind| find(kind).is_some_and(|bytes| bytes.first() == Some(&1));
    let (adaptive_rx, adaptive_tx) = (is_on(ADAPTIVE_RX), is_on(ADAPTIVE_TX));
    let fact = |&(kind, name, class, unit): &Number| {
        let bytes = find(kind)?;
        // A value that the card adapts by itself is not a setting.
        let adapted = question == Question::Coalescing
            && ((adaptive_rx && name.contains(" rx-")) || (adaptive_tx && name.contains(" tx-")));
        let class = if adapted { Class::Counter } else { class };
        let value = match bytes {
            [flag] => Value::Boolean(*flag == 1),
            bytes => {
                let amount = u32::from_ne_bytes(*bytes.first_chunk()?).into();
                Value::Integer(Integer { amount, unit })
            }
        };
        Some(EntryValue::of(name, class, value))
    };
    Ok(table.iter().filter_map(fact).collect())
}

/// Names of the bits that are set in a bitset. A bitset with a mask lists all bits of the mask, with an attribute in
/// those that are set; a bitset without a mask lists only the bits that are set.
fn names(bitset: &[u8]) -> BTreeSet<String> {
    let masked = attributes(bitset).all(|(kind, _)| kind != BITSET_NOMASK);
    let bits = attributes(bitset).filter(|(kind, _)| *kind == BITSET_BITS);
    let each = bits.flat_map(|(_, bits)| attributes(bits)).filter(|(kind, _)| *kind == BITSET_BIT);
    let set = each.filter(|(_, bit)| !masked || attributes(bit).any(|(kind, _)| kind == BIT_VALUE));
    let named = set.flat_map(|(_, bit)| attributes(bit)).filter(|(kind, _)| *kind == BIT_NAME);
    named.map(|(_, name)| decode(name)).filter(|name| !name.is_empty()).collect()
}

fn message(family: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    // Requests have some tens of bytes, so the cast is lossless.
    let length = (HEADERS + attributes.len()) as u32;
    let (sequence, port) = (1u32, 0u32);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(port.to_ne_bytes());
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    message
}

/// An attribute, padded to a multiple of 4 bytes.
fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    // Names of cards have at most 15 bytes, so the cast is lossless.
    let length = (4 + content.len()) as u16;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The attributes of a reply, or the error that it reports.
fn body(answer: &[u8]) -> Result<&[u8], Refusal> {
    let kind = answer.get(4..6).and_then(|bytes| Some(u16::from_ne_bytes(*bytes.first_chunk()?)));
    let length = answer.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes) as usize);
    if kind == Some(NLMSG_ERROR) {
        let code = answer.get(MESSAGE_HEADER..).and_then(|rest| rest.first_chunk());
        return Err(Refusal(code.map_or(0, |code| i32::from_ne_bytes(*code).saturating_neg())));
    }
    answer.get(HEADERS..length).ok_or(Refusal(0))
}

/// Type and content of each attribute, up to the end or the first malformed one.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & TYPE_MASK;
        let content = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(kind: u16, number: u32) -> Vec<u8> {
        attribute(kind, &number.to_ne_bytes())
    }

    fn answer(attributes: &[Vec<u8>]) -> Vec<u8> {
        message(20, 16, &attributes.concat())
    }

    #[test]
    fn questions_are_laid_out_as_the_kernel_reads_them() {
        let family = family_request();
        assert_eq!(family.len(), 16 + 4 + 4 + 8);
        assert_eq!(family[0..4], 32u32.to_ne_bytes());
        assert_eq!(&family[24..], b"ethtool\0");
        let rings = request(21, Question::Rings, "eth0");
        // Nested attributes: 4 + 4 + "eth0\0", which is padded to 8.
        assert_eq!((rings.len(), rings[16]), (16 + 4 + 4 + 4 + 8, 15));
        assert_eq!(rings[20..22], 16u16.to_ne_bytes());
        assert_eq!(rings[24..26], 9u16.to_ne_bytes());
    }

    #[test]
    fn answers_become_facts() {
        assert_eq!(family(&answer(&[attribute(1, &21u16.to_ne_bytes())])), Ok(21));
        let rings = facts(Question::Rings, &answer(&[number(2, 4096), number(6, 512)])).unwrap();
        let wanted = [
            EntryValue::of("ring rx maximum", Class::Capability, Value::integer(4096)),
            EntryValue::of("ring rx", Class::Configuration, Value::integer(512)),
        ];
        assert_eq!(rings, wanted);
        let bit = |name: &[u8], is_set: bool| {
            let value = if is_set { attribute(BIT_VALUE, &[]) } else { Vec::new() };
            let parts = [number(1, 3), attribute(BIT_NAME, name), value];
            attribute(BITSET_BIT | NESTED, &parts.concat())
        };
        let bits = |bits: [Vec<u8>; 3]| attribute(BITSET_BITS | NESTED, &bits.concat());
        let active = bits([bit(b"rx-gro\0", false), bit(b"tx-tcp\0", false), bit(b"\0", false)]);
        let active = [attribute(BITSET_NOMASK, &[]), active].concat();
        let changeable = bits([bit(b"rx-gro\0", true), bit(b"tx-tcp\0", false), bit(b"\0", true)]);
        let answer = answer(&[attribute(4 | NESTED, &active), attribute(2 | NESTED, &changeable)]);
        let set = |names: &[&str]| Value::Set(names.iter().map(|&name| name.to_owned()).collect());
        let wanted = [
            EntryValue::of("features", Class::Configuration, set(&["rx-gro", "tx-tcp"])),
            EntryValue::of("features changeable", Class::Capability, set(&["rx-gro"])),
        ];
        assert_eq!(facts(Question::Features, &answer).unwrap(), wanted);
    }

    #[test]
    fn what_a_card_adapts_by_itself_is_no_setting() {
        let coalescing = |adaptive: u8| {
            let answer =
                answer(&[number(2, 8), number(6, 64), attribute(ADAPTIVE_RX, &[adaptive])]);
            let facts = facts(Question::Coalescing, &answer).unwrap();
            facts.into_iter().map(|fact| (fact.part.unwrap(), fact.class)).collect::<Vec<_>>()
        };
        assert_eq!(coalescing(1)[0], ("coalesce rx-usecs".to_owned(), Class::Counter));
        assert_eq!(coalescing(0)[0].1, Class::Configuration);
        assert_eq!(coalescing(1)[1], ("coalesce tx-usecs".to_owned(), Class::Configuration));
        assert_eq!(coalescing(1)[2], ("coalesce adaptive-rx".to_owned(), Class::Configuration));
    }

    #[test]
    fn refusals_are_told() {
        let mut refusal = message(NLMSG_ERROR, 0, &[]);
        refusal.splice(16..20, (-95i32).to_ne_bytes());
        assert_eq!(facts(Question::Rings, &refusal), Err(Refusal(95)));
        assert_eq!(family(b"torn"), Err(Refusal(0)));
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = family(&bytes);
            for question in Question::ALL {
                let _ = (facts(question, &bytes), facts(question, &message(20, 1, &bytes)));
            }
        }
    }
}
