//! How a command fails: one typed failure, in text as CLI-6 shows it, in JSON as one object (CLI-1).

use std::fmt::Write as _;

use clap::error::{ContextKind, ContextValue};
use qitos::compose::{CompositionError, CompositionErrorKind};
use qitos::config::{ConfigError, ConfigErrors};
use qitos::contracts::checkpoint::SessionError;
use qitos::contracts::error::ContractError as _;
use serde_json::{Map, Value, json};

use crate::answer::{note, write_out};
use crate::args::Format;
use crate::exit_code::ExitCode;

/// Registered names that a message lists at most (CLI-6).
const MOST_NAMES: usize = 10;

/// One thing that is wrong.
#[derive(Debug, Default)]
struct Problem {
    code: String,
    message: String,
    field: Option<String>,
    reason: Option<String>,
    place: Option<String>,
    remediation: String,
    names: Vec<String>,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: ExitCode,
    problems: Vec<Problem>,
}

impl Failure {
    /// A failure with a code, a text and a remedy.
    pub(crate) fn new(
        exit: ExitCode,
        code: &str,
        message: impl Into<String>,
        remediation: impl Into<String>,
    ) -> Self {
        Failure {
            exit,
            problems: vec![Problem {
                code: code.into(),
                message: message.into(),
                remediation: remediation.into(),
                ..Problem::default()
            }],
        }
    }

    /// The command line asks for something that does not exist or does not go together.
    pub(crate) fn usage(message: impl Into<String>, remediation: impl Into<String>) -> Self {
        Failure::new(ExitCode::Usage, "usage_error", message, remediation)
    }

    /// A file of the project that could not be read or written.
    pub(crate) fn file(operation: &str, error: &std::io::Error) -> Self {
        Failure::new(
            ExitCode::Usage,
            "file_not_accessible",
            format!("cannot {operation}: {}", error.kind()),
            "check the path and its permissions",
        )
    }

    /// What the parser of the command line refused, with the nearest spelling (CLI-10).
    pub(crate) fn of_arguments(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let message = text
            .lines()
            .next()
            .unwrap_or("the command line is not valid")
            .trim_start_matches("error: ")
            .to_owned();
        let one = |kind| match error.get(kind) {
            Some(ContextValue::String(word)) => Some(word.clone()),
            Some(ContextValue::Strings(words)) => words.first().cloned(),
            _ => None,
        };
        let suggested = [
            ContextKind::SuggestedArg,
            ContextKind::SuggestedSubcommand,
            ContextKind::SuggestedValue,
        ]
        .into_iter()
        .find_map(one);
        let remediation = match suggested {
            Some(word) => format!("the nearest spelling is `{word}`"),
            None => "`qit --help` lists the commands, `qit COMMAND --help` their arguments".into(),
        };
        let missing = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(words)) => format!(" {}", words.join(" ")),
            _ => String::new(),
        };
        Failure::usage(format!("{}{missing}", message.trim_end()), remediation)
    }

    fn json(&self) -> Value {
        let problems: Vec<Value> = self.problems.iter().map(Problem::json).collect();
        json!({
            "error": problems.first(),
            "errors": problems,
            "exit_code": self.exit.number(),
        })
    }

    /// Text for people.
    fn text(&self) -> String {
        let mut text = String::new();
        for problem in &self.problems {
            problem.write(&mut text);
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// Text goes to stderr; the one JSON object to stdout (CLI-1).
    pub(crate) fn print(self, format: Format) -> ExitCode {
        match format {
            Format::Text => note(&self.text()),
            Format::Json | Format::Jsonl => write_out(&format!("{}\n", self.json())),
        }
        self.exit
    }
}

impl Problem {
    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("code".into(), self.code.clone().into());
        object.insert("message".into(), self.message.clone().into());
        object.insert("remediation".into(), self.remediation.clone().into());
        for (key, value) in [
            ("field", &self.field),
            ("reason", &self.reason),
            ("place", &self.place),
        ] {
            if let Some(value) = value {
                object.insert(key.into(), value.clone().into());
            }
        }
        if !self.names.is_empty() {
            object.insert("names".into(), self.names.clone().into());
        }
        Value::Object(object)
    }

    fn write(&self, text: &mut String) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "error[{}]: {}", self.code, self.message);
        match (&self.place, self.field.as_deref().unwrap_or("")) {
            (Some(place), "") => drop(writeln!(text, "  --> {place}")),
            (Some(place), field) => drop(writeln!(text, "  --> {place} ({field})")),
            (None, "") => {}
            (None, field) => drop(writeln!(text, "  --> ({field})")),
        }
        if let Some(reason) = &self.reason {
            let _ = writeln!(text, "reason: {reason}");
        }
        if !self.names.is_empty() {
            let shown: Vec<&str> = self
                .names
                .iter()
                .take(MOST_NAMES)
                .map(String::as_str)
                .collect();
            let more = self.names.len().saturating_sub(MOST_NAMES);
            let rest = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            let _ = writeln!(text, "help: registered: {}{rest}", shown.join(", "));
        } else if !self.remediation.is_empty() {
            let _ = writeln!(text, "help: {}", self.remediation);
        }
    }
}

impl From<&ConfigError> for Problem {
    fn from(error: &ConfigError) -> Self {
        let place = match (&error.source, error.line, error.column) {
            (Some(source), Some(line), Some(column)) => Some(format!("{source}:{line}:{column}")),
            (Some(source), ..) => Some(source.clone()),
            (None, Some(line), Some(column)) => Some(format!("{line}:{column}")),
            _ => None,
        };
        Problem {
            code: error.code.as_str().into(),
            message: error.message.clone(),
            field: Some(error.field.clone()).filter(|field| !field.is_empty()),
            place,
            remediation: error.remediation.clone(),
            ..Problem::default()
        }
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Failure {
            exit: ExitCode::Usage,
            problems: errors.errors().iter().map(Problem::from).collect(),
        }
    }
}

impl From<CompositionError> for Failure {
    fn from(error: CompositionError) -> Self {
        let exit = match error.kind() {
            CompositionErrorKind::Credential => ExitCode::Credential,
            CompositionErrorKind::Sandbox => ExitCode::Sandbox,
            CompositionErrorKind::Session | CompositionErrorKind::Trajectory => ExitCode::Session,
            _ if error
                .field
                .as_deref()
                .is_some_and(|field| field.starts_with("model.credential")) =>
            {
                ExitCode::Credential
            }
            _ => ExitCode::Usage,
        };
        Failure {
            exit,
            problems: vec![Problem {
                code: error.code().into(),
                message: error.message.clone(),
                field: error.field.clone().filter(|field| !field.is_empty()),
                reason: error.reason.clone(),
                remediation: error.remediation.clone(),
                names: error.names.clone(),
                place: None,
            }],
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let reason = error.metadata.get("reason").and_then(Value::as_str);
        Failure {
            exit: ExitCode::Session,
            problems: vec![Problem {
                code: error.error_code.as_str().into(),
                message: error.message.clone(),
                reason: reason.map(str::to_owned),
                remediation: error.remediation.clone(),
                ..Problem::default()
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_code_place_field_and_remedy() {
        // CLI-6
        let text = "schema: qitos.agent\nagent: {name: a}\nmodle: {}\n";
        let errors = qitos::config::AgentConfig::from_str(
            text,
            qitos::config::Format::Yaml,
            std::env::temp_dir(),
        )
        .unwrap_err();
        let shown = Failure::from(errors).text();
        assert!(shown.contains("error[config_unknown_field]: "), "{shown}");
        assert!(shown.contains("\n  --> 3:1 (modle)\nhelp: "), "{shown}");
    }

    #[test]
    fn at_most_ten_names_are_listed() {
        // CLI-6
        let mut failure = Failure::usage("x", "y");
        failure.problems[0].names = (10..21).map(|number| format!("n{number}")).collect();
        assert!(failure.text().contains("n19 and 1 more"));
        failure.problems[0].names.pop();
        assert!(failure.text().ends_with("n19"));
    }
}
