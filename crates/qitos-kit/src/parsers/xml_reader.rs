//! A small reader of the markup that `xml_decision_v1` allows: elements, attributes, text, the five named and
//! all numeric entities, CDATA. Declarations, comments and instructions are refused (TXT-5: no DTD).

/// One piece of markup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'text> {
    /// `<name a="v">`, or `<name/>` with `closed`.
    Open {
        name: &'text str,
        attributes: Vec<(&'text str, String)>,
        closed: bool,
    },
    /// `</name>`.
    Close { name: &'text str },
    /// Text with entities resolved.
    Text(String),
    /// Nothing is left.
    End,
}

/// Why a text is not such markup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum XmlFault {
    #[error("an unclosed tag")]
    UnclosedTag,
    #[error("a tag that is not well formed")]
    BadTag,
    #[error("an unknown entity")]
    BadEntity,
    #[error("a repeated attribute")]
    RepeatedAttribute,
    #[error("a declaration, comment or instruction")]
    Forbidden,
}

#[derive(Debug)]
pub(super) struct XmlReader<'text> {
    rest: &'text str,
}

fn name_length(text: &str) -> usize {
    text.bytes()
        .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')))
        .unwrap_or(text.len())
}

/// Splits a name off the front; it may be empty.
fn split_name(text: &str) -> (&str, &str) {
    text.split_at_checked(name_length(text))
        .unwrap_or((text, ""))
}

impl<'text> XmlReader<'text> {
    pub(super) fn new(text: &'text str) -> Self {
        XmlReader { rest: text }
    }

    pub(super) fn next(&mut self) -> Result<Event<'text>, XmlFault> {
        if self.rest.is_empty() {
            return Ok(Event::End);
        }
        if let Some(inner) = self.rest.strip_prefix("<![CDATA[") {
            let (text, rest) = inner.split_once("]]>").ok_or(XmlFault::UnclosedTag)?;
            self.rest = rest;
            return Ok(Event::Text(text.to_owned()));
        }
        let Some(tag) = self.rest.strip_prefix('<') else {
            let end = self.rest.find('<').unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at_checked(end).ok_or(XmlFault::BadTag)?;
            self.rest = rest;
            return unescape(text).map(Event::Text);
        };
        if tag.starts_with(['!', '?']) {
            return Err(XmlFault::Forbidden);
        }
        if let Some(tag) = tag.strip_prefix('/') {
            let (name, rest) = split_name(tag);
            self.rest = rest
                .trim_start()
                .strip_prefix('>')
                .ok_or(XmlFault::UnclosedTag)?;
            return Ok(Event::Close { name });
        }
        self.open_tag(tag)
    }

    fn open_tag(&mut self, tag: &'text str) -> Result<Event<'text>, XmlFault> {
        let (name, mut rest) = split_name(tag);
        if name.is_empty() {
            return Err(XmlFault::BadTag);
        }
        let mut attributes: Vec<(&str, String)> = Vec::new();
        loop {
            let trimmed = rest.trim_start();
            if let Some(rest) = trimmed.strip_prefix("/>") {
                self.rest = rest;
                return Ok(Event::Open {
                    name,
                    attributes,
                    closed: true,
                });
            }
            if let Some(rest) = trimmed.strip_prefix('>') {
                self.rest = rest;
                return Ok(Event::Open {
                    name,
                    attributes,
                    closed: false,
                });
            }
            if trimmed.is_empty() {
                return Err(XmlFault::UnclosedTag);
            }
            let (key, after) = split_name(trimmed);
            // No element has more than one attribute that means anything; the bound keeps the check linear.
            if key.is_empty() || trimmed.len() == rest.len() || attributes.len() >= 8 {
                return Err(XmlFault::BadTag);
            }
            if attributes.iter().any(|(known, _)| *known == key) {
                return Err(XmlFault::RepeatedAttribute);
            }
            let after = after
                .trim_start()
                .strip_prefix('=')
                .ok_or(XmlFault::BadTag)?
                .trim_start();
            let quote = after
                .chars()
                .next()
                .filter(|first| matches!(first, '"' | '\''))
                .ok_or(XmlFault::BadTag)?;
            let (value, after) = after
                .strip_prefix(quote)
                .and_then(|inner| inner.split_once(quote))
                .ok_or(XmlFault::UnclosedTag)?;
            if value.contains('<') {
                return Err(XmlFault::BadTag);
            }
            attributes.push((key, unescape(value)?));
            rest = after;
        }
    }
}

fn unescape(text: &str) -> Result<String, XmlFault> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        // The longest entity is `&#x10FFFF;`; looking no further keeps this linear.
        let end = after
            .bytes()
            .take(10)
            .position(|byte| byte == b';')
            .ok_or(XmlFault::BadEntity)?;
        let (entity, after) = after.split_at_checked(end).ok_or(XmlFault::BadEntity)?;
        plain.push(match entity {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" => '\'',
            numeric => numeric_entity(numeric).ok_or(XmlFault::BadEntity)?,
        });
        rest = after.strip_prefix(';').unwrap_or(after);
    }
    plain.push_str(rest);
    Ok(plain)
}

fn numeric_entity(entity: &str) -> Option<char> {
    let digits = entity.strip_prefix('#')?;
    let number = match digits.strip_prefix('x') {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u32::from_str_radix(hex, 16).ok()?
        }
        None if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        _ => return None,
    };
    char::from_u32(number).filter(|character| *character != '\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn fails(text: &str, fault: XmlFault) {
        let mut reader = XmlReader::new(text);
        loop {
            match reader.next() {
                Ok(Event::End) => panic!("{text} was read"),
                Ok(_) => {}
                Err(found) => return assert_eq!(found, fault, "{text}"),
            }
        }
    }

    #[test]
    fn txt_5_entities_are_unescaped_and_declarations_refused() {
        let mut reader =
            XmlReader::new("<a b='1 &lt; 2' c=\"&#65;&#x42;\">x &amp; y<![CDATA[<&]]></a >");
        assert_eq!(
            reader.next(),
            Ok(Event::Open {
                name: "a",
                attributes: vec![("b", "1 < 2".into()), ("c", "AB".into())],
                closed: false
            })
        );
        assert_eq!(reader.next(), Ok(Event::Text("x & y".into())));
        assert_eq!(reader.next(), Ok(Event::Text("<&".into())));
        assert_eq!(reader.next(), Ok(Event::Close { name: "a" }));
        assert_eq!(reader.next(), Ok(Event::End));
        fails(
            "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
            XmlFault::Forbidden,
        );
        fails("<!-- a -->", XmlFault::Forbidden);
        fails("<?xml version='1.0'?>", XmlFault::Forbidden);
        fails("<a>&b;</a>", XmlFault::BadEntity);
        fails("<a>a & b</a>", XmlFault::BadEntity);
        fails("<a>&#xD800;</a>", XmlFault::BadEntity);
        fails("<a>&#+65;</a>", XmlFault::BadEntity);
        fails("<a>&#0;</a>", XmlFault::BadEntity);
        fails("<a b='1' b='2'/>", XmlFault::RepeatedAttribute);
        fails("<a b=1/>", XmlFault::BadTag);
        fails("<a b/>", XmlFault::BadTag);
        fails("<a", XmlFault::UnclosedTag);
        fails("<a b='", XmlFault::UnclosedTag);
        fails("1 < 2", XmlFault::BadTag);
        fails("<![CDATA[", XmlFault::UnclosedTag);
    }
}
