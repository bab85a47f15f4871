// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asks the kernel for the settings of network cards over a netlink socket. That changes nothing and needs no
//! privileges.

use super::files::Files;
use super::tree::refused;
use deburr_core::snapshot::ethtool::{self, Question, Refusal};
use deburr_core::snapshot::parts::EntryValue;
use deburr_core::snapshot::whitelist::Entry;
use deburr_core::snapshot::{Class, Instance, Value};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::os::fd::OwnedFd;

/// Size of the buffer for an answer; answers have some kB at most.
const ANSWER_BYTES: usize = 64 << 10;

/// The settings of each card, by its name; one absent value where the kernel cannot be asked.
pub(super) fn look(entry: &Entry, files: &mut Files) -> Vec<(Option<Instance>, EntryValue)> {
    let nothing =
        |value| vec![(None, EntryValue { part: None, class: Class::Configuration, value })];
    let directory = entry.path.trim_end_matches("/*");
    let cards = files.instances(directory);
    let family = files.timed(
        directory,
        entry.path,
        |tree| if tree.is_this_host() { family() } else { Err(Value::Absent) },
        |_| 0,
    );
    let family = match family {
        Ok(family) => family,
        Err(value) => return nothing(value),
    };
    let mut all = Vec::new();
    for (card, instance) in cards.iter() {
        for question in Question::ALL {
            let path = format!("{directory}/{card}#{question:?}");
            // It may have to wait for the lock of all network settings (RTNL), so it is timed like a read.
            let answer = files.timed(&path, entry.path, |_| ask(family, question, card), |_| 0);
            let found = match answer {
                Ok(values) => values,
                Err(Value::Absent) => Vec::new(),
                Err(value) => {
                    let part = Some(format!("{question:?}").to_lowercase());
                    vec![EntryValue { part, class: Class::Configuration, value }]
                }
            };
            all.extend(found.into_iter().map(|found| (Some(instance.clone()), found)));
        }
    }
    if all.is_empty() { nothing(Value::Absent) } else { all }
}

fn family() -> Result<u16, Value> {
    ethtool::family(&talk(&ethtool::family_request())?).map_err(said)
}

fn ask(family: u16, question: Question, card: &str) -> Result<Vec<EntryValue>, Value> {
    ethtool::facts(question, &talk(&ethtool::request(family, question, card))?).map_err(said)
}

/// Sends a question and receives its answer.
fn talk(question: &[u8]) -> Result<Vec<u8>, Value> {
    let socket: OwnedFd = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::GENERIC),
    )
    .map_err(refused)?;
    // A socket that is not connected talks to the kernel.
    send(&socket, question, SendFlags::empty()).map_err(refused)?;
    let mut answer = vec![0; ANSWER_BYTES];
    let (length, _) = recv(&socket, answer.as_mut_slice(), RecvFlags::empty()).map_err(refused)?;
    answer.truncate(length);
    Ok(answer)
}

/// The value of a fact that was refused; a setting that the driver does not support is absent.
fn said(refusal: Refusal) -> Value {
    match refusal.0 {
        0 => Value::Unreadable("the kernel's answer was not understood".into()),
        code => match Errno::from_raw_os_error(code) {
            Errno::OPNOTSUPP => Value::Absent,
            error => refused(error),
        },
    }
}
