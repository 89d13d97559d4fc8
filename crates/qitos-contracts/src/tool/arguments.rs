//! Argument text to validated value (ARG-1 to ARG-7).

use serde_json::{Map, Value, json};

use super::schema::{Issue, IssueCode, MAXIMUM_ISSUES, Schema};
use crate::canonical_json::{self, MAXIMUM_DEPTH, ReadLimits, ReadReason};
use crate::error::{ContractError, Performed, Retry};
use crate::limits::ARGUMENTS_BYTES;

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

/// As [`read`], for a call that a provider made under [`Schema::strict_form`]: nulls that strict mode forced
/// on the model are taken back first (ARG-6).
///
/// # Errors
/// As [`read`].
pub fn read_strict(text: &str, schema: &Schema) -> Result<Value, ArgumentError> {
    let mut value = parse(text)?;
    schema.remove_strict_nulls(&mut value);
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
    if canonical_json::check(value, ARGUMENTS_DEPTH).is_err() {
        return Err(ArgumentError::whole(
            IssueCode::InvalidJsonValue,
            "too deep, or a number that JSON cannot hold",
        ));
    }
    match ArgumentError::from_issues(schema.validate(value)) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema::compile(&json!({
            "type": "object",
            "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["path"],
            "additionalProperties": false,
        }))
        .unwrap()
    }

    fn code(text: &str) -> String {
        read(text, &schema()).unwrap_err().code().to_owned()
    }

    #[test]
    fn arg_4_text_becomes_json_or_names_its_code() {
        assert_eq!(
            read(r#" {"path": "a", "limit": 1.0} "#, &schema()),
            Ok(json!({"path": "a", "limit": 1.0}))
        );
        for text in [
            "{",
            "{\"path\":}",
            "nonsense",
            "{}{}",
            "{\"path\": \"\\ud800\"}",
        ] {
            assert_eq!(code(text), "malformed_arguments_json", "{text}");
        }
        assert_eq!(
            code(r#"{"path": "a", "limit": 18446744073709551616}"#),
            "malformed_arguments_json"
        );
        assert_eq!(
            code(r#"{"path": "a", "path": "b"}"#),
            "duplicate_argument_key"
        );
        assert_eq!(parse(""), Ok(json!({})));
        assert_eq!(code(""), "missing_required_argument");
        // Only the empty text is an empty object.
        assert_eq!(code(" "), "malformed_arguments_json");
    }

    #[test]
    fn arg_4_one_mebibyte_is_the_limit() {
        let shell = r#"{"path":""}"#.len();
        let sized = |bytes: usize| format!(r#"{{"path":"{}"}}"#, "x".repeat(bytes - shell));
        assert!(read(&sized(ARGUMENTS_BYTES - 1), &schema()).is_ok());
        assert!(read(&sized(ARGUMENTS_BYTES), &schema()).is_ok());
        assert_eq!(code(&sized(ARGUMENTS_BYTES + 1)), "arguments_too_large");
    }

    #[test]
    fn arg_2_each_kind_of_bad_argument_has_its_code() {
        for (text, expected) in [
            ("[]", "invalid_arguments_shape"),
            ("null", "invalid_arguments_shape"),
            (r#"{"limit": 1}"#, "missing_required_argument"),
            (r#"{"path": "a", "more": 1}"#, "unexpected_argument"),
            (r#"{"path": 5}"#, "invalid_argument_type"),
            (r#"{"path": "a", "limit": "5"}"#, "invalid_argument_type"),
        ] {
            assert_eq!(code(text), expected, "{text}");
        }
        let nested = |depth: usize| (1..depth).fold(json!({}), |inner, _| json!({ "a": inner }));
        let open = Schema::compile(&json!({"type": "object"})).unwrap();
        for depth in [ARGUMENTS_DEPTH - 1, ARGUMENTS_DEPTH] {
            assert_eq!(validate(&nested(depth), &open), Ok(()));
        }
        let error = validate(&nested(ARGUMENTS_DEPTH + 1), &open).unwrap_err();
        assert_eq!(error.code(), "invalid_json_value");
    }

    #[test]
    fn arg_6_a_strict_null_reaches_the_tool_as_absent() {
        let text = r#"{"path": "a", "limit": null}"#;
        assert_eq!(code(text), "invalid_argument_type");
        assert_eq!(read_strict(text, &schema()), Ok(json!({"path": "a"})));
        assert!(read_strict(r#"{"path": null}"#, &schema()).is_err());
    }

    #[test]
    fn arg_7_the_first_issue_names_the_code_and_all_go_into_the_metadata() {
        let error = read(r#"{"path": 5, "limit": "x", "more": 1}"#, &schema()).unwrap_err();
        assert_eq!(error.code(), "invalid_argument_type");
        assert_eq!(
            error.message(),
            "argument /limit: expected integer (and 2 more)"
        );
        assert_eq!(
            error.to_metadata(Boundary::FinalStructural),
            json!([
                {"path": "/limit", "code": "invalid_argument_type", "message": "expected integer", "boundary": "final_structural"},
                {"path": "/more", "code": "unexpected_argument", "message": "not an argument of this tool", "boundary": "final_structural"},
                {"path": "/path", "code": "invalid_argument_type", "message": "expected string", "boundary": "final_structural"},
            ])
        );
        let many: Vec<Issue> = (0..9)
            .map(|index| Issue {
                code: IssueCode::ValidationFailed,
                path: format!("/{index}"),
                message: String::new(),
            })
            .rev()
            .collect();
        let error = ArgumentError::from_issues(many).unwrap();
        let paths: Vec<&str> = error.issues().map(|issue| issue.path.as_str()).collect();
        assert_eq!(paths, ["/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7"]);
        assert_eq!(ArgumentError::from_issues(Vec::new()), None);
    }
}
