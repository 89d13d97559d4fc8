//! The shared fixtures get the same verdict from reader and JSON Schema (CFG-35, check `cli.schema_parity`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Map, Number, Value};

use crate::document::{Kind, Node};
use crate::scalar::{self, Scalar};
use crate::{AgentConfig, Format, json_schema, parse_yaml};

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/configs")
        .join(name)
}

fn files(name: &str) -> Vec<(String, PathBuf)> {
    let mut files: Vec<(String, PathBuf)> = std::fs::read_dir(folder(name))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            )
        })
        .collect();
    files.sort();
    files
}

/// What an ordinary editor would hand to the schema; nothing when the text is no plain document.
fn as_json(text: &str) -> Option<Value> {
    fn value(node: &Node) -> Value {
        match &node.kind {
            Kind::Quoted(text) => text.clone().into(),
            Kind::Plain(text) => match scalar::read(text) {
                Scalar::Null => Value::Null,
                Scalar::Bool(flag) => flag.into(),
                Scalar::Integer(value) => match (u64::try_from(value), i64::try_from(value)) {
                    (Ok(value), _) => value.into(),
                    (_, Ok(value)) => value.into(),
                    _ => unreachable!(),
                },
                Scalar::Number(value) => Number::from_f64(value).unwrap().into(),
                // Readers that round give a float, or nothing that is a number.
                Scalar::OutOfRange => text
                    .parse::<f64>()
                    .ok()
                    .and_then(Number::from_f64)
                    .map_or_else(|| text.clone().into(), Value::Number),
                Scalar::Text(text) => text.into(),
            },
            Kind::Sequence(items) => items.iter().map(value).collect(),
            Kind::Mapping(entries) => Value::Object(
                entries
                    .iter()
                    .map(|entry| (entry.key.clone(), value(&entry.value)))
                    .collect::<Map<_, _>>(),
            ),
            Kind::Missing | Kind::Reported | Kind::TooDeep => Value::Null,
        }
    }
    let mut errors = crate::describe_error::ErrorList::default();
    let node = parse_yaml::parse(text, &mut errors)?;
    errors.is_empty().then(|| value(&node))
}

fn reader_only() -> BTreeMap<String, String> {
    std::fs::read_to_string(folder("reader-only.txt"))
        .unwrap()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, reason) = line.split_once(": ").unwrap();
            (name.to_owned(), reason.to_owned())
        })
        .collect()
}

#[test]
fn reader_and_schema_agree_on_every_fixture_but_the_listed_ones() {
    // CFG-35
    let validator = jsonschema::validator_for(&json_schema()).unwrap();
    let (valid, invalid) = (files("valid"), files("invalid"));
    assert!(valid.len() + invalid.len() >= 150);
    for (name, path) in &valid {
        let loaded = AgentConfig::from_file(path);
        assert!(loaded.is_ok(), "{name}: {}", loaded.unwrap_err());
        let instance = as_json(&std::fs::read_to_string(path).unwrap()).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&instance)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
    let mut accepted = BTreeSet::new();
    for (name, path) in &invalid {
        assert!(AgentConfig::from_file(path).is_err(), "{name}");
        let instance = as_json(&std::fs::read_to_string(path).unwrap());
        if instance.is_some_and(|instance| validator.is_valid(&instance)) {
            accepted.insert(name.clone());
        }
    }
    let listed: BTreeSet<String> = reader_only().into_keys().collect();
    assert_eq!(accepted, listed);
}

#[test]
fn every_refused_fixture_reports_the_code_and_field_it_names() {
    // CFG-2 to CFG-7
    for (name, path) in files("invalid") {
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = text
            .lines()
            .find_map(|line| line.strip_prefix("# expect: "))
            .unwrap_or_else(|| panic!("{name} expects nothing"));
        let (code, field) = expected.split_once(' ').unwrap();
        let errors = AgentConfig::from_file(&path).unwrap_err();
        let found = errors
            .errors()
            .iter()
            .any(|error| error.code.as_str() == code && error.field == field);
        assert!(found, "{name}: expected {expected}, found {errors}");
        for error in errors.errors() {
            assert_eq!(error.source.as_deref(), Some(name.as_str()));
            assert!(error.line.is_some() && error.column.is_some(), "{name}");
            assert!(!error.message.is_empty() && !error.remediation.is_empty());
        }
    }
}

#[test]
fn every_accepted_fixture_survives_its_canonical_form() {
    // CFG-12
    for (name, path) in files("valid") {
        let config = AgentConfig::from_file(&path).unwrap();
        let text = std::str::from_utf8(config.to_canonical_json()).unwrap();
        for format in [Format::Json, Format::Yaml] {
            let again = AgentConfig::from_str(text, format, config.base_dir());
            let again = again.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(again, config, "{name}");
            assert_eq!(again.config_digest(), config.config_digest(), "{name}");
            assert!(again.compatibility().is_empty(), "{name}");
        }
        let copy = config.with(|_| {}).unwrap();
        assert_eq!(copy, config, "{name}");
    }
}

#[test]
fn the_committed_schema_is_the_generated_one() {
    // CFG-34; `cargo xtask schema` writes it
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/agent.schema.json");
    let committed: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(committed, json_schema());
}

#[test]
fn the_schema_is_closed_everywhere_but_in_free_maps() {
    // CFG-34
    fn walk(schema: &Value, path: &str) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            if path != "if" {
                assert_eq!(schema["additionalProperties"], false, "{path}");
            }
            for (name, property) in properties {
                if path != "if" {
                    let is_item = path == "dataset";
                    assert!(is_item || property["description"].is_string(), "{name}");
                }
                walk(property, name);
            }
        }
        for inner in schema["items"]["anyOf"].as_array().into_iter().flatten() {
            walk(inner, path);
        }
    }
    let schema = json_schema();
    assert_eq!(schema["$id"], "urn:qitos:schema:agent");
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    assert_eq!(
        schema["properties"]["budgets"]["properties"]["max_requests"]["default"],
        12
    );
    walk(&schema, "");
}
