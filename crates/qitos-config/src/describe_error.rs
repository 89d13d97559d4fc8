//! What is wrong with a configuration, where, and what to do about it (CFG-7).

use std::fmt;

use qitos_contracts::error::{ContractError, Performed, Retry};
use serde::Serialize;

use crate::document::Position;

/// The most errors that are returned together.
pub const MAX_ERRORS: usize = 20;

/// The stable codes of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ConfigErrorCode {
    /// The file is missing, unreadable or no regular file (CFG-11).
    ConfigSourceInvalid,
    /// The bytes are not one plain document within the bounds (CFG-1, CFG-2, CFG-3).
    ConfigSyntaxInvalid,
    /// A key that no field has (CFG-4).
    ConfigUnknownField,
    /// A value of the wrong type, out of range or in conflict with another (CFG-5, CFG-6).
    ConfigSchemaInvalid,
    /// `unsafe_host` with a key that only a sandbox can honour.
    UnsafeHostConstraintRejected,
    /// `agent.parser` is not the parser of `agent.protocol`.
    ProtocolParserMismatch,
}

impl ConfigErrorCode {
    /// The code as it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ConfigErrorCode::ConfigSourceInvalid => "config_source_invalid",
            ConfigErrorCode::ConfigSyntaxInvalid => "config_syntax_invalid",
            ConfigErrorCode::ConfigUnknownField => "config_unknown_field",
            ConfigErrorCode::ConfigSchemaInvalid => "config_schema_invalid",
            ConfigErrorCode::UnsafeHostConstraintRejected => "unsafe_host_constraint_rejected",
            ConfigErrorCode::ProtocolParserMismatch => "protocol_parser_mismatch",
        }
    }
}

/// One thing that is wrong.
///
/// No value of the configuration is ever in it: someone may have pasted a key (CFG-7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConfigError {
    /// The stable code.
    pub code: ConfigErrorCode,
    /// What is wrong.
    pub message: String,
    /// The dotted path of the field; empty for the document as a whole.
    pub field: String,
    /// What to do.
    pub remediation: String,
    /// The file's name without its directory; none for text and code.
    pub source: Option<String>,
    /// Line of the offending key or value, from 1; none from code.
    pub line: Option<u32>,
    /// Column in characters, from 1; none from code.
    pub column: Option<u32>,
}

impl ConfigError {
    pub(crate) fn new(
        code: ConfigErrorCode,
        field: impl Into<String>,
        position: Option<Position>,
        message: impl Into<String>,
        remediation: impl Into<String>,
    ) -> Self {
        ConfigError {
            code,
            message: message.into(),
            field: field.into(),
            remediation: remediation.into(),
            source: None,
            line: position.map(|at| at.line),
            column: position.map(|at| at.column),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(formatter, "{source}:")?;
        }
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(formatter, "{line}:{column}: ")?;
        } else if self.source.is_some() {
            formatter.write_str(" ")?;
        }
        if !self.field.is_empty() {
            write!(formatter, "{}: ", self.field)?;
        }
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

impl ContractError for ConfigError {
    fn code(&self) -> &str {
        self.code.as_str()
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

/// One to twenty independent errors, sorted by position (CFG-7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    pub(crate) fn one(error: ConfigError) -> Self {
        ConfigErrors(vec![error])
    }

    /// The errors, first position first; never empty.
    #[must_use]
    pub fn errors(&self) -> &[ConfigError] {
        &self.0
    }

    /// Names the file in every error.
    pub(crate) fn with_source(mut self, source: Option<&str>) -> Self {
        for error in &mut self.0 {
            error.source = source.map(ToOwned::to_owned);
        }
        self
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                formatter.write_str("; ")?;
            }
            write!(formatter, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl ContractError for ConfigErrors {
    /// The code of the first error.
    fn code(&self) -> &str {
        self.0.first().map_or(
            ConfigErrorCode::ConfigSchemaInvalid.as_str(),
            ContractError::code,
        )
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

/// Collects errors without bound on what the input can cause: more than a few are counted, not kept.
#[derive(Debug, Default)]
pub(crate) struct ErrorList(Vec<ConfigError>);

impl ErrorList {
    /// Keeps `error`; beyond the limit the earliest positions stay.
    pub(crate) fn push(&mut self, error: ConfigError) {
        self.0.push(error);
        if self.0.len() >= MAX_ERRORS * 8 {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        self.0.sort_by(|left, right| {
            (left.line, left.column, &left.field).cmp(&(right.line, right.column, &right.field))
        });
        self.0.truncate(MAX_ERRORS);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sorted errors, or nothing when there are none.
    pub(crate) fn finish(mut self) -> Option<ConfigErrors> {
        self.shorten();
        (!self.0.is_empty()).then_some(ConfigErrors(self.0))
    }
}

/// Edit distance with neighbouring letters swapped as one edit; inputs are short names.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (row, left_char) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, right_char) in right.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX);
            let mut best = at(&last, column)
                .saturating_add(usize::from(left_char != right_char))
                .min(at(&last, column + 1).saturating_add(1))
                .min(at(&current, column).saturating_add(1));
            let swapped = row > 0
                && column > 0
                && left.get(row - 1) == Some(right_char)
                && right.get(column - 1) == Some(left_char);
            if swapped {
                best = best.min(at(&before, column - 1).saturating_add(1));
            }
            current.push(best);
        }
        before = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or(0)
}

/// The name nearest to `wrong`, if any is near enough to be meant (CFG-4).
pub(crate) fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let fold = |text: &str| -> Vec<char> {
        text.chars()
            .take(64)
            .map(|character| match character {
                '-' => '_',
                other => other.to_ascii_lowercase(),
            })
            .collect()
    };
    let wrong = fold(wrong);
    names
        .map(|name| (distance(&wrong, &fold(name)), name))
        .filter(|(edits, name)| *edits <= (name.len() / 3).max(1))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_spelling_forgives_swaps_case_and_hyphens() {
        // CFG-4
        let names = ["max_steps", "max_requests", "max_tokens"];
        for (wrong, expected) in [
            ("max_setps", Some("max_steps")),
            ("Max-Steps", Some("max_steps")),
            ("maxsteps", Some("max_steps")),
            ("max_request", Some("max_requests")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, names.into_iter()), expected, "{wrong}");
        }
    }
}
