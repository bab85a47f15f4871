// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stored cell as other programs can read it: lists are JSON, however they are stored.

use super::column::Column;
use super::table::packed_of;
use super::{io_pace, packed};
use deburr_core::sqlite::Value;
use std::borrow::Cow;

/// The content of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plain<'a> {
    /// NULL, or a column that the recording lacks.
    Null,
    /// A number. Those of 2^63 and more are stored as negative ones.
    Integer(i64),
    /// Text.
    Text(&'a str),
    /// JSON on one line.
    Json(Cow<'a, str>),
}

/// The content of a cell of that column; `None` if it does not fit the column.
pub(crate) fn plain<'a>(column: &Column, value: Value<'a>) -> Option<Plain<'a>> {
    let packed = packed_of(column);
    Some(match value {
        Value::Null => Plain::Null,
        Value::Integer(number) => Plain::Integer(number),
        Value::Text(_) if column.json || packed.is_some() => Plain::Json(compact(value.as_str()?)),
        Value::Text(_) => Plain::Text(value.as_str()?),
        Value::Blob(bytes) => Plain::Json(match packed {
            Some(of) => lists(bytes, of)?.into(),
            None => io_pace::json(bytes)?.into(),
        }),
        Value::Real(_) => return None,
    })
}

/// Packed numbers as a JSON list of lists of `of` numbers each.
fn lists(bytes: &[u8], of: usize) -> Option<String> {
    let numbers = packed::numbers(bytes)?;
    let rows = numbers.chunks_exact(of);
    rows.remainder().is_empty().then(|| {
        let rows: Vec<&[u64]> = rows.collect();
        serde_json::to_string(&rows).unwrap_or_default()
    })
}

/// Valid JSON without the blanks between its parts, so that it has no line breaks.
fn compact(json: &str) -> Cow<'_, str> {
    if !json.contains([' ', '\t', '\n', '\r']) {
        return json.into();
    }
    let (mut quoted, mut escaped) = (false, false);
    let kept = |c: &char| {
        let keep = quoted || !matches!(c, ' ' | '\t' | '\n' | '\r');
        (quoted, escaped) = match c {
            _ if escaped => (quoted, false),
            '\\' => (quoted, true),
            '"' => (!quoted, false),
            _ => (quoted, false),
        };
        keep
    };
    json.chars().filter(kept).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_json_however_they_are_stored() {
        let of_two = Column::or_null("x", "BLOB_OF_2");
        let json = |text: &str| Some(Plain::Json(Cow::Owned(text.to_owned())));
        let bytes = packed::bytes([1, 300, 2, u64::MAX]);
        let wanted = json("[[1,300],[2,18446744073709551615]]");
        assert_eq!(plain(&of_two, Value::Blob(&bytes)), wanted);
        assert_eq!(plain(&of_two, Value::Text(b"[[1, 300],\n [2,18446744073709551615]]")), wanted);
        assert_eq!(plain(&of_two, Value::Blob(&[])), json("[]"));
        assert_eq!(plain(&of_two, Value::Blob(&bytes[..2])), None);
        assert_eq!(plain(&of_two, Value::Null), Some(Plain::Null));
        let text = Column::new("x", "TEXT");
        assert_eq!(plain(&text, Value::Text(b"a  b")), Some(Plain::Text("a  b")));
        assert_eq!(plain(&text, Value::Text(b"\xff")), None);
    }

    #[test]
    fn blanks_in_texts_stay() {
        let json = "{ \"a b\" :\n[1, \"x\\\" \\\\\" , 2 ] }";
        assert_eq!(compact(json), "{\"a b\":[1,\"x\\\" \\\\\",2]}");
    }

    proptest! {
        #[test]
        fn what_is_compact_means_the_same(texts in prop::collection::vec(any::<String>(), 0..5)) {
            let json = serde_json::to_string_pretty(&serde_json::json!({"of": texts, "n": [1, 2]})).unwrap();
            let short = compact(&json);
            prop_assert!(!short.contains('\n') || texts.iter().any(|text| text.contains('\n')));
            let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            prop_assert_eq!(parse(&short), parse(&json));
        }
    }
}
