//! What a string must be, for each kind of text, and how the JSON Schema says the same.

use crate::endpoint;
use crate::field::{Text, is_name};

/// Whether `text` holds a `${NAME}` that a shell would expand (CFG-6).
pub(crate) fn interpolates(text: &str) -> bool {
    text.match_indices("${").any(|(index, _)| {
        let rest = text.get(index + 2..).unwrap_or_default();
        rest.split_once('}').is_some_and(|(name, _)| {
            name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
    })
}

/// The JSON Schema's form of the same rule.
pub(crate) const INTERPOLATION_PATTERN: &str = "\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}";

/// What is wrong with `text`, if anything.
pub(crate) fn check(kind: Text, text: &str) -> Result<(), String> {
    match kind {
        Text::Any => Ok(()),
        Text::NonBlank { max_chars } => {
            if text.trim().is_empty() {
                Err("expected a text that is not blank".to_owned())
            } else if text.chars().count() > max_chars {
                Err(format!("expected at most {max_chars} characters"))
            } else {
                Ok(())
            }
        }
        Text::Name if is_name(text) => Ok(()),
        Text::Name => Err(
            "expected a name: a lower-case letter, then at most 63 of a-z, 0-9, '_', '.' and '-'"
                .to_owned(),
        ),
        Text::Token { empty } => {
            if text.is_empty() && !empty {
                Err("expected a token that is not empty".to_owned())
            } else if text.chars().any(char::is_whitespace) || text.chars().count() > 256 {
                Err("expected a token without white space of at most 256 characters".to_owned())
            } else {
                Ok(())
            }
        }
        Text::Path | Text::Glob => {
            if text.trim().is_empty() || text.contains('\0') {
                Err("expected a path that is not blank".to_owned())
            } else {
                Ok(())
            }
        }
        Text::GuestPath => check_guest_path(text).map_err(ToOwned::to_owned),
        Text::Endpoint => endpoint::check(text).map_err(ToOwned::to_owned),
    }
}

/// The JSON Schema's form of what [`check_guest_path`] accepts.
pub(crate) const GUEST_PATH_PATTERN: &str =
    "^(?!/(proc|sys|dev)(/|$))(?!.*(//|/\\.\\.?(/|$)))/[^\\u0000]*[^/\\u0000]$";

fn check_guest_path(text: &str) -> Result<(), &'static str> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err("expected an absolute path");
    };
    let parts: Vec<&str> = rest.split('/').collect();
    if text.contains('\0') || parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return Err("expected an absolute path below / without empty, '.' or '..' parts");
    }
    if matches!(parts.first(), Some(&("proc" | "sys" | "dev"))) {
        return Err("expected a path outside of /proc, /sys and /dev");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_in_braces_are_interpolation() {
        // CFG-6
        for text in ["${HOME}", "a ${x_1} b", "${}${A}", "${a b}${C}"] {
            assert!(interpolates(text), "{text}");
        }
        for text in ["$HOME", "${}", "${1A}", "${A", "$ {A}", "${A-b}", ""] {
            assert!(!interpolates(text), "{text}");
        }
    }
}
