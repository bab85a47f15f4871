// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names and texts of processes: command line, environment, comm. They are decoded, quoted for the shell, and shown.

use crate::judged::visible;
use deburr_core::limits::visible_properties::{self, VARIABLES, VisibleProperties};
use deburr_core::render;
use deburr_core::text::{name, shell_quote, ticked};

pub(crate) fn read(data: &[u8]) -> bool {
    let decoded = name::decode(data);
    let kept = data.split(|&byte| byte == 0).next().unwrap_or_default();
    assert!(decoded.len() <= kept.len() * 4, "each byte becomes four at most");
    if let Ok(text) = std::str::from_utf8(kept) {
        assert_eq!(decoded, text, "what is UTF-8 stays");
    }
    let words = name::decode_words(data);
    assert!(words.len() <= data.len() * 4 && !words.contains('\0'));
    visible(&render::message(&words));
    for text in [&decoded, &words] {
        let quoted = shell_quote(text);
        visible(&quoted);
        // Whatever the name is, it ends no word and starts no command.
        let plain = |c: char| c.is_ascii_alphanumeric() || "_@:,./+-".contains(c);
        let is_quoted = quoted.starts_with('\'') || quoted.starts_with("$'");
        assert!(is_quoted && quoted.ends_with('\'') || quoted.chars().all(plain), "{quoted}");
        assert_eq!(ticked(text).matches('`').count(), 2);
    }
    let environment = visible_properties::environment(data);
    assert!(environment.keys().all(|name| VARIABLES.contains(&name.as_str())));
    let outside = VisibleProperties {
        program: &decoded,
        title: &words,
        comm: &decoded,
        threads: [(decoded.clone(), 3), ("tokio-rt-worker".into(), 2)].into(),
        workers: data.first().map(|&byte| byte.into()),
        openmp: data.len().is_multiple_of(2),
        environment,
    };
    for number in visible_properties::detect(&outside).into_iter().flat_map(|it| it.parallelism) {
        assert!(number.value <= 1 << 16, "{number:?}");
    }
    true
}
