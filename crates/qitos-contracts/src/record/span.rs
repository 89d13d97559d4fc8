//! Finds members of a JSON object in its bytes, without building or re-writing anything.
//!
//! Digests are verified over the bytes as stored (SES-20, TRJ-12): the digest member is cut out of them.
//! The scan knows strings and brackets only and expects the compact form of canonical JSON; whether the
//! bytes are well-formed is the strict reader's affair.

use std::ops::Range;

use crate::digest::Digest;

/// One `"key":value` of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'bytes> {
    /// The key as written between its quotes, escapes unread.
    pub key: &'bytes [u8],
    /// Where the member stands, key included, commas excluded.
    pub whole: Range<usize>,
    /// Where its value stands.
    pub value: Range<usize>,
}

/// The members of the object that `bytes` consist of, in order; `None` if they do not look like one.
#[must_use]
pub fn object_members(bytes: &[u8]) -> Option<Vec<Member<'_>>> {
    let mut members = Vec::with_capacity(40);
    let mut position = expect(bytes, 0, b'{')?;
    if bytes.get(position) == Some(&b'}') {
        return (position + 1 == bytes.len()).then_some(members);
    }
    loop {
        let start = position;
        let key_end = string_end(bytes, start)?;
        let value_start = expect(bytes, key_end, b':')?;
        let value_end = value_end(bytes, value_start)?;
        members.push(Member {
            key: bytes.get(start + 1..key_end - 1)?,
            whole: start..value_end,
            value: value_start..value_end,
        });
        match bytes.get(value_end)? {
            b',' => position = value_end + 1,
            b'}' if value_end + 1 == bytes.len() => return Some(members),
            _ => return None,
        }
    }
}

/// Where the items of the array that `bytes` consist of stand; `None` if they do not look like one.
#[must_use]
pub fn array_items(bytes: &[u8]) -> Option<Vec<Range<usize>>> {
    let mut items = Vec::new();
    let mut position = expect(bytes, 0, b'[')?;
    if bytes.get(position) == Some(&b']') {
        return (position + 1 == bytes.len()).then_some(items);
    }
    loop {
        let end = value_end(bytes, position)?;
        items.push(position..end);
        match bytes.get(end)? {
            b',' => position = end + 1,
            b']' if end + 1 == bytes.len() => return Some(items),
            _ => return None,
        }
    }
}

/// The digest of an object's bytes without the members named in `cut`.
///
/// `members` are those that [`object_members`] found in `bytes`. What remains is hashed as the compact
/// object of the remaining members, each as it stands.
#[must_use]
pub fn digest_without(bytes: &[u8], members: &[Member<'_>], cut: &[&[u8]]) -> Digest {
    let mut parts: Vec<&[u8]> = Vec::with_capacity(members.len() * 2 + 2);
    parts.push(b"{");
    for member in members.iter().filter(|member| !cut.contains(&member.key)) {
        if parts.len() > 1 {
            parts.push(b",");
        }
        parts.push(bytes.get(member.whole.clone()).unwrap_or_default());
    }
    parts.push(b"}");
    Digest::of_parts(&parts)
}

fn expect(bytes: &[u8], position: usize, wanted: u8) -> Option<usize> {
    (bytes.get(position) == Some(&wanted)).then_some(position + 1)
}

/// The position after the string that starts at `start`.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut position = expect(bytes, start, b'"')?;
    loop {
        let rest = bytes.get(position..)?;
        let step = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        position += step;
        match bytes.get(position)? {
            b'"' => return Some(position + 1),
            _ => position += 2,
        }
    }
}

/// The position after the value that starts at `start`.
fn value_end(bytes: &[u8], start: usize) -> Option<usize> {
    match bytes.get(start)? {
        b'"' => string_end(bytes, start),
        b'{' | b'[' => {
            let mut depth = 0usize;
            let mut position = start;
            loop {
                match bytes.get(position)? {
                    b'"' => {
                        position = string_end(bytes, position)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return Some(position + 1);
                        }
                    }
                    _ => {}
                }
                position += 1;
            }
        }
        _ => {
            let rest = bytes.get(start..)?;
            let length = rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']'))?;
            (length > 0).then_some(start + length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_items_are_found_as_they_stand() {
        let bytes = br#"{"a":"x\"}","b":[1,{"c":"]"}],"d":null}"#;
        let members = object_members(bytes).unwrap();
        let keys: Vec<_> = members.iter().map(|member| member.key).collect();
        assert_eq!(keys, [b"a", b"b", b"d"]);
        assert_eq!(&bytes[members[1].value.clone()], br#"[1,{"c":"]"}]"#);
        assert_eq!(
            array_items(&bytes[members[1].value.clone()]).unwrap(),
            [1..2, 3..12]
        );
        assert_eq!(
            digest_without(bytes, &members, &[b"b"]),
            Digest::of(br#"{"a":"x\"}","d":null}"#)
        );
        assert_eq!(
            digest_without(bytes, &members, &[b"a", b"b", b"d"]),
            Digest::of(b"{}")
        );
    }

    #[test]
    fn every_cut_and_every_flip_ends_without_a_panic() {
        let bytes = br#"{"a":"x\"}","b":[1,{"c":"]"}],"d":null}"#;
        for length in 0..bytes.len() {
            assert_eq!(object_members(&bytes[..length]), None);
            for mask in [1u8, 32, 128, 255] {
                let mut changed = bytes.to_vec();
                changed[length] ^= mask;
                let _ = object_members(&changed);
                let _ = array_items(&changed);
            }
        }
        for text in ["", "{", "{}x", "[", "[]]", "}", "{\"", "{\"a\"", "[\\"] {
            assert_eq!(object_members(text.as_bytes()), None, "{text}");
            assert_eq!(array_items(text.as_bytes()), None, "{text}");
        }
    }
}
