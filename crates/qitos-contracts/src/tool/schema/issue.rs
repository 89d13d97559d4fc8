//! What a schema finds wrong with a value.

use std::fmt;

/// At most this many issues are reported (ARG-7).
pub const MAXIMUM_ISSUES: usize = 8;

/// The code of one issue; also the `error_code` of the result that it leads to (ARG-7).
///
/// Ordered as its text, because issues are reported in (path, code) order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum IssueCode {
    /// Over the limit on argument bytes (ARG-4).
    ArgumentsTooLarge,
    /// A key given twice (ARG-4).
    DuplicateArgumentKey,
    /// The wrong JSON type.
    InvalidArgumentType,
    /// A value outside enum, const, bound, length, pattern, or combination.
    InvalidArgumentValue,
    /// Not an object.
    InvalidArgumentsShape,
    /// A non-finite number or a value that is no JSON, from a host call.
    InvalidJsonValue,
    /// Text that is no JSON (ARG-4).
    MalformedArgumentsJson,
    /// A required key is absent.
    MissingRequiredArgument,
    /// A key that the schema does not know.
    UnexpectedArgument,
    /// The tool's own `validate` refused without a code of its own.
    ValidationFailed,
}

impl IssueCode {
    /// The text of the code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            IssueCode::ArgumentsTooLarge => "arguments_too_large",
            IssueCode::DuplicateArgumentKey => "duplicate_argument_key",
            IssueCode::InvalidArgumentType => "invalid_argument_type",
            IssueCode::InvalidArgumentValue => "invalid_argument_value",
            IssueCode::InvalidArgumentsShape => "invalid_arguments_shape",
            IssueCode::InvalidJsonValue => "invalid_json_value",
            IssueCode::MalformedArgumentsJson => "malformed_arguments_json",
            IssueCode::MissingRequiredArgument => "missing_required_argument",
            IssueCode::UnexpectedArgument => "unexpected_argument",
            IssueCode::ValidationFailed => "validation_failed",
        }
    }
}

impl fmt::Display for IssueCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One thing that is wrong, and where (ARG-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// What kind of thing.
    pub code: IssueCode,
    /// Where in the arguments, as a JSON pointer; the empty text is the whole.
    pub path: String,
    /// What was expected. Never quotes the value.
    pub message: String,
}
