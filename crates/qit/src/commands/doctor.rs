//! `qit doctor`: what this program can do here; asks no model and creates nothing.

use std::fmt::Write as _;

use qitos::registry::FactoryRegistry;
use serde_json::{Value, json};

use crate::answer::{Answer, Outcome};
use crate::args::Doctor;
use crate::exit_code::ExitCode;
use crate::project;

/// Reports every part with its reason.
pub(crate) fn perform(arguments: &Doctor) -> Outcome {
    let registry = FactoryRegistry::builtin();
    let providers = registry.providers();
    let environments = [
        (
            "unsafe_host",
            true,
            "isolates nothing; no file or command tool",
        ),
        ("local", false, "not part of this program yet"),
        ("docker", false, "not part of this program yet"),
    ];
    let configuration = match &arguments.config {
        None => Value::Null,
        Some(path) => {
            let config = project::load(path)?;
            registry.resolve(&config)?;
            config.sanitized()
        }
    };
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "platform": format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        "agent_schema": "qitos.agent",
        "providers": providers,
        "names": registry.names(),
        "environments": environments
            .iter()
            .map(|(name, available, reason)| json!({"name": name, "available": available, "reason": reason}))
            .collect::<Vec<_>>(),
        "configuration": configuration,
    });
    let mut text = format!("qit {}\n\nproviders\n", env!("CARGO_PKG_VERSION"));
    for (name, available) in &providers {
        let word = if *available {
            "ok"
        } else {
            "not compiled into this program"
        };
        let _ = writeln!(text, "  {name:20} {word}");
    }
    text.push_str("\nenvironments\n");
    for (name, available, reason) in environments {
        let word = if available { "ok" } else { "unavailable" };
        let _ = writeln!(text, "  {name:20} {word}: {reason}");
    }
    text.push_str("\nregistered names\n");
    for (field, names) in registry.names() {
        let names = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        let _ = writeln!(text, "  {field:26} {names}");
    }
    if !configuration.is_null() {
        text.push_str("\nconfiguration ok: every name is registered\n");
    }
    Ok(Answer::new(text, report).exiting(ExitCode::Done))
}
