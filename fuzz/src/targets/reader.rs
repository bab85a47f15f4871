// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the process that reads is asked, and what it answers: frames of JSON, whole or a part at a time. It has read
//! foreign bytes, so it is not trusted more than they are.

use crate::files::Lookup;
use crate::protocol::{self, LENGTH_BYTES, Question, Reply};
use deburr_core::recording::{Container, RuntimeReading};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

pub(crate) fn read(data: &[u8]) -> bool {
    let asked = questions(data);
    let runtime = answer::<Result<Option<RuntimeReading>, String>>(data);
    let line = answer::<Option<String>>(data);
    let container = answer::<Container>(data);
    let files = answer::<Vec<Lookup>>(data);
    asked | runtime | line | container | files
}

/// As the process that reads sees it: one question after the other.
fn questions(data: &[u8]) -> bool {
    let (mut rest, mut count) = (data, 0);
    while let Ok(Some(question)) = protocol::receive::<Question>(&mut rest) {
        count += 1;
        let mut sent = Vec::new();
        protocol::send(&mut sent, &question).expect("a question that was received is sent");
        let back = protocol::receive::<Question>(&mut &*sent).expect("it is received");
        assert_eq!(back.as_ref(), Some(&question));
    }
    count > 0
}

/// As the process that asks sees it: whatever part of the answer has arrived.
fn answer<T: DeserializeOwned + Serialize + Debug>(data: &[u8]) -> bool {
    let whole = protocol::message::<Reply<T>>(data);
    let part = &data[..data.len() / 2];
    if let Ok(Some(early)) = protocol::message::<Reply<T>>(part) {
        let whole = whole.as_ref().ok().and_then(Option::as_ref).expect("it does not become none");
        assert_eq!(format!("{early:?}"), format!("{whole:?}"), "more bytes changed it");
    }
    let Ok(Some(reply)) = whole else { return false };
    let mut sent = Vec::new();
    protocol::send(&mut sent, &reply).expect("an answer that was received is sent");
    assert!(sent.len() >= LENGTH_BYTES);
    let back = protocol::message::<Reply<T>>(&sent).expect("it is received").expect("all of it");
    assert_eq!(format!("{back:?}"), format!("{reply:?}"));
    true
}
