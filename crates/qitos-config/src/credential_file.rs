//! The content of a credentials file, read with the rules of a configuration (CRD-5).

use std::fmt;

use zeroize::{Zeroize as _, Zeroizing};

use crate::describe_error::ErrorList;
use crate::document::{Kind, Node};
use crate::parse_yaml;
use crate::scalar::{self, Scalar};

/// The longest credentials file, in bytes (CRD-3).
pub const MAX_CREDENTIAL_FILE_BYTES: usize = 64 * 1024;

/// The text is no credentials file; nothing of it is repeated here (CRD-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCredentialFile;

impl fmt::Display for InvalidCredentialFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a credentials file holds exactly `credentials:` with a mapping of names to strings that are not empty")
    }
}

impl std::error::Error for InvalidCredentialFile {}

/// The secret under `reference`, or nothing when the file has no such entry.
///
/// Every other value is wiped before this returns. The root is exactly `credentials:`, a mapping of strings to
/// strings that are not empty (CRD-5).
///
/// # Errors
/// The text breaks a rule of CFG-1 to CFG-5, or has another shape.
pub fn read_credential_mapping(
    text: &str,
    reference: &str,
) -> Result<Option<Zeroizing<String>>, InvalidCredentialFile> {
    if text.len() > MAX_CREDENTIAL_FILE_BYTES || text.starts_with('\u{feff}') {
        return Err(InvalidCredentialFile);
    }
    let mut errors = ErrorList::default();
    let Some(mut root) = parse_yaml::parse(text, &mut errors) else {
        return Err(InvalidCredentialFile);
    };
    let found = if errors.is_empty() {
        pick(&mut root, reference)
    } else {
        Err(InvalidCredentialFile)
    };
    wipe(&mut root);
    found
}

fn pick(
    root: &mut Node,
    reference: &str,
) -> Result<Option<Zeroizing<String>>, InvalidCredentialFile> {
    let Kind::Mapping(sections) = &mut root.kind else {
        return Err(InvalidCredentialFile);
    };
    let [section] = sections.as_mut_slice() else {
        return Err(InvalidCredentialFile);
    };
    if section.key != "credentials" {
        return Err(InvalidCredentialFile);
    }
    let Kind::Mapping(entries) = &mut section.value.kind else {
        return Err(InvalidCredentialFile);
    };
    let mut found = None;
    for entry in entries {
        let text = match &mut entry.value.kind {
            Kind::Quoted(text) => text,
            Kind::Plain(text) if matches!(scalar::read(text), Scalar::Text(_)) => text,
            _ => return Err(InvalidCredentialFile),
        };
        if text.is_empty() {
            return Err(InvalidCredentialFile);
        }
        if entry.key == reference {
            found = Some(Zeroizing::new(std::mem::take(text)));
        }
    }
    Ok(found)
}

fn wipe(node: &mut Node) {
    match &mut node.kind {
        Kind::Plain(text) | Kind::Quoted(text) => text.zeroize(),
        Kind::Sequence(items) => items.iter_mut().for_each(wipe),
        Kind::Mapping(entries) => entries.iter_mut().for_each(|entry| wipe(&mut entry.value)),
        Kind::Missing | Kind::Reported | Kind::TooDeep => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_wanted_value_of_a_well_formed_file_is_returned() {
        // CRD-5
        let text = "# keys\ncredentials:\n  main: sk-abc\n  other: \"123\"\n";
        let found = read_credential_mapping(text, "main").unwrap();
        assert_eq!(found.as_deref().map(String::as_str), Some("sk-abc"));
        let found = read_credential_mapping(text, "other").unwrap();
        assert_eq!(found.as_deref().map(String::as_str), Some("123"));
        assert_eq!(read_credential_mapping(text, "absent"), Ok(None));
    }

    #[test]
    fn every_other_shape_is_refused() {
        // CRD-5 with CFG-1 to CFG-5
        for text in [
            "",
            "main: sk-abc",
            "credentials: sk-abc",
            "credentials:\n  main: 123",
            "credentials:\n  main: ''",
            "credentials:\n  main:",
            "credentials:\n  main: null",
            "credentials:\n  main: {a: b}",
            "credentials:\n  main: a\n  main: b",
            "credentials:\n  main: &x a",
            "credentials:\n  main: a\nmore: {}",
            "credentials:\n  1: a",
            "credentials:\n  main: !secret a",
            "\u{feff}credentials:\n  main: a",
        ] {
            assert_eq!(
                read_credential_mapping(text, "main"),
                Err(InvalidCredentialFile),
                "{text:?}"
            );
        }
    }
}
