//! Argument text to validated value (ARG-1 to ARG-7).

use serde_json::{Map, Value, json};

use super::schema::{Issue, IssueCode, Schema};
use crate::canonical_json::{self, MAXIMUM_DEPTH, ReadLimits, ReadReason};
use crate::error::{ContractError, Performed, Retry};
use crate::limits::ARGUMENTS_BYTES;

/// At most this many issues are reported (ARG-7).
pub const MAXIMUM_ISSUES: usize = 8;

/// How deep arguments may be nested.
///
/// A bit less than all JSON, because they are stored inside a log item.
pub const ARGUMENTS_DEPTH: usize = MAXIMUM_DEPTH / 2 - 8;

/// Which gate found an issue (ARG-7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Boundary {
    /// The first reading of the call.
    #[default]
    Structural,
    /// After an interceptor rewrote the arguments.
    PostInterceptorStructural,
    /// The tool's own `validate`.
    Tool,
    /// After a policy or an approver rewrote the arguments.
    PostPermission,
    /// The last look before dispatch, after a wait.
    FinalStructural,
}

impl Boundary {
    /// The word in `metadata.validation`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Boundary::Structural => "structural",
            Boundary::PostInterceptorStructural => "post_interceptor_structural",
            Boundary::Tool => "tool",
            Boundary::PostPermission => "post_permission",
            Boundary::FinalStructural => "final_structural",
        }
    }
}

/// Arguments that no tool may see (ARG-2): one to eight issues, the first of which names the code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub struct ArgumentError {
    first: Issue,
    rest: Vec<Issue>,
}

impl ArgumentError {
    /// An error of one issue about the arguments as a whole.
    #[must_use]
    pub fn whole(code: IssueCode, message: impl Into<String>) -> Self {
        ArgumentError {
            first: Issue {
                code,
                path: String::new(),
                message: message.into(),
            },
            rest: Vec::new(),
        }
    }

    /// The error that `issues` make, or nothing when there are none.
    ///
    /// They are put in (path, code) order and cut to eight.
    #[must_use]
    pub fn from_issues(mut issues: Vec<Issue>) -> Option<Self> {
        issues.sort_by(|left, right| (&left.path, left.code).cmp(&(&right.path, right.code)));
        issues.truncate(MAXIMUM_ISSUES);
        let mut issues = issues.into_iter();
        let first = issues.next()?;
        Some(ArgumentError {
            first,
            rest: issues.collect(),
        })
    }

    /// The code of the result: that of the first issue.
    #[must_use]
    pub fn issue_code(&self) -> IssueCode {
        self.first.code
    }

    /// The issues in (path, code) order.
    pub fn issues(&self) -> impl Iterator<Item = &Issue> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// A sentence for the model: what is wrong first, and how many more.
    #[must_use]
    pub fn message(&self) -> String {
        let place = if self.first.path.is_empty() {
            "arguments".to_owned()
        } else {
            format!("argument {}", self.first.path)
        };
        let more = match self.rest.len() {
            0 => String::new(),
            count => format!(" (and {count} more)"),
        };
        format!("{place}: {}{more}", self.first.message)
    }

    /// The list that goes into `metadata.validation` of the result (ARG-7).
    #[must_use]
    pub fn to_metadata(&self, boundary: Boundary) -> Value {
        let entry = |issue: &Issue| {
            json!({
                "boundary": boundary.as_str(),
                "code": issue.code.as_str(),
                "message": issue.message,
                "path": issue.path,
            })
        };
        Value::Array(self.issues().map(entry).collect())
    }
}

impl ContractError for ArgumentError {
    fn code(&self) -> &str {
        self.first.code.as_str()
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

/// Reads argument text and validates it against `schema` (ARG-2, ARG-4, ARG-7).
///
/// # Errors
/// The codes of the table in section 2.
pub fn read(text: &str, schema: &Schema) -> Result<Value, ArgumentError> {
    let value = parse(text)?;
    validate(&value, schema)?;
    Ok(value)
}

/// Reads argument text without a schema (ARG-4): an empty text is an empty object.
///
/// # Errors
/// `malformed_arguments_json`, `duplicate_argument_key`, `arguments_too_large`.
pub fn parse(text: &str) -> Result<Value, ArgumentError> {
    if text.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let limits = ReadLimits {
        depth: ARGUMENTS_DEPTH,
        nodes: usize::MAX,
        bytes: ARGUMENTS_BYTES,
    };
    canonical_json::read(text.as_bytes(), limits).map_err(|error| {
        let code = match error.reason {
            ReadReason::DuplicateKey => IssueCode::DuplicateArgumentKey,
            ReadReason::TooLarge => IssueCode::ArgumentsTooLarge,
            _ => IssueCode::MalformedArgumentsJson,
        };
        ArgumentError::whole(code, format!("not readable as JSON: {error}"))
    })
}

/// Validates a value that needs no reading: a host call, or a rewrite (ARG-3, ARG-5).
///
/// # Errors
/// `invalid_arguments_shape`, `invalid_json_value` and the codes of a schema's issues.
pub fn validate(value: &Value, schema: &Schema) -> Result<(), ArgumentError> {
    if !value.is_object() {
        return Err(ArgumentError::whole(
            IssueCode::InvalidArgumentsShape,
            "expected an object",
        ));
    }
    match ArgumentError::from_issues(schema.validate(value)) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
