// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HTML as it is built: names of elements and attributes are the program's, and whatever else comes in is escaped. There
//! is no way to add a computed text unescaped.

use super::size::MOST_BYTES;
use std::fmt::Display;
use std::fmt::Write as _;

/// Elements that have no content and no end tag.
const VOID: [&str; 3] = ["meta", "img", "br"];
/// Characters that would end a text or an attribute, or begin something else.
const SPECIAL: [char; 5] = ['&', '<', '>', '"', '\''];

/// Attributes of an element, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes(Vec<(&'static str, String)>);

impl Attributes {
    pub(super) fn and(mut self, name: &'static str, value: impl Display) -> Self {
        self.0.push((name, value.to_string()));
        self
    }
}

/// No attributes.
pub(super) fn none() -> Attributes {
    Attributes::default()
}

/// The attribute `class`.
pub(super) fn class(names: impl Display) -> Attributes {
    none().and("class", names)
}

/// HTML so far.
#[derive(Debug, Default)]
pub(super) struct Markup {
    html: String,
}

impl Markup {
    pub(super) fn into_html(self) -> String {
        self.html
    }

    /// An element with what `content` writes into it.
    pub(super) fn element(
        &mut self,
        name: &'static str,
        attributes: &Attributes,
        content: impl FnOnce(&mut Self),
    ) {
        // A page that is too large already is not used.
        if self.html.len() > MOST_BYTES {
            return;
        }
        self.html.push('<');
        self.html.push_str(name);
        for (name, value) in &attributes.0 {
            // Writing to a String cannot fail.
            let _ = write!(self.html, " {name}=\"");
            self.text(value);
            self.html.push('"');
        }
        self.html.push('>');
        if VOID.contains(&name) {
            return;
        }
        content(self);
        let _ = write!(self.html, "</{name}>");
    }

    /// An element that holds only text.
    pub(super) fn tag(&mut self, name: &'static str, attributes: &Attributes, text: &str) {
        self.element(name, attributes, |it| it.text(text));
    }

    /// An element that holds only text with identifiers in backticks.
    pub(super) fn prose(&mut self, name: &'static str, attributes: &Attributes, text: &str) {
        self.element(name, attributes, |it| it.words(text));
    }

    /// Text.
    pub(super) fn text(&mut self, text: &str) {
        for c in text.chars() {
            if SPECIAL.contains(&c) {
                let _ = write!(self.html, "&#{};", u32::from(c));
            } else {
                self.html.push(c);
            }
        }
    }

    /// Text in which what stands in backticks is code. A text with a lone backtick stays as it is.
    pub(super) fn words(&mut self, text: &str) {
        let parts: Vec<&str> = text.split('`').collect();
        if parts.len().is_multiple_of(2) {
            return self.text(text);
        }
        for (i, part) in parts.iter().enumerate() {
            if i % 2 == 0 {
                self.text(part);
            } else {
                self.tag("code", &none(), part);
            }
        }
    }

    /// A line break in the source.
    pub(super) fn newline(&mut self) {
        self.html.push('\n');
    }

    /// HTML, or the content of a style or a script, that is part of the program.
    pub(super) fn fixed(&mut self, html: &'static str) {
        self.html.push_str(html);
    }

    /// A JSON document as a block of data. No character in it can end the block, or open a comment in it.
    pub(super) fn data(&mut self, id: &'static str, json: &str) {
        self.html.push_str(&super::embedded::start(id));
        for c in json.chars() {
            if matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') {
                // These can only be in strings.
                let _ = write!(self.html, "\\u{:04x}", u32::from(c));
            } else {
                self.html.push(c);
            }
        }
        self.html.push_str("</script>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_become_code_only_in_pairs_of_backticks() {
        let shown = |text: &str| {
            let mut markup = Markup::default();
            markup.words(text);
            markup.into_html()
        };
        assert_eq!(shown("`a<b` waits"), "<code>a&#60;b</code> waits");
        assert_eq!(shown("a ` b & c"), "a ` b &#38; c");
    }

    proptest! {
        #[test]
        fn no_text_leaves_its_place(text in any::<String>()) {
            let mut markup = Markup::default();
            markup.tag("p", &class(&text), &text);
            let html = markup.into_html();
            prop_assert_eq!(html.matches(['<', '>']).count(), 4, "{}", html);
            prop_assert_eq!(html.matches('"').count(), 2);
        }

        #[test]
        fn data_cannot_end_and_reads_back(text in r"(?s)(</script>|<!--|\u{2028}|.){0,9}") {
            let mut markup = Markup::default();
            markup.data("x", &serde_json::to_string(&text).unwrap());
            let html = markup.into_html();
            let inner = html.split_once('>').unwrap().1.strip_suffix("</script>").unwrap();
            prop_assert!(!inner.contains(['<', '>', '&']));
            prop_assert_eq!(serde_json::from_str::<String>(inner).unwrap(), text);
        }
    }
}
