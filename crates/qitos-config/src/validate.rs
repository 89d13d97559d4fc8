//! What concerns two fields at once, or the world outside of the document, and the defaults that follow from others.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::config::CompatibilityReceipt;
use crate::describe_error::{ConfigError, ConfigErrorCode, ErrorList};
use crate::document::{Kind, Node, Position};
use crate::endpoint;
use crate::limits::MAX_METADATA_BYTES;
use crate::paths::Base;
use crate::section::UNSAFE_HOST_KEYS;

/// The value at a dotted path.
pub(crate) fn at<'v>(values: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    let mut names = path.split('.');
    let first = values.get(names.next()?)?;
    names.try_fold(first, |value, name| value.as_object()?.get(name))
}

/// The mapping at a dotted path.
fn section_mut<'v>(
    values: &'v mut Map<String, Value>,
    path: &str,
) -> Option<&'v mut Map<String, Value>> {
    path.split('.').try_fold(values, |section, name| {
        section.get_mut(name)?.as_object_mut()
    })
}

/// Everything the checks look at.
pub(crate) struct Checks<'a> {
    pub(crate) written: &'a Node,
    pub(crate) values: &'a Map<String, Value>,
    pub(crate) positions: &'a BTreeMap<String, Position>,
    pub(crate) base: &'a Base,
    pub(crate) errors: &'a mut ErrorList,
}

impl Checks<'_> {
    fn text(&self, path: &str) -> Option<&str> {
        at(self.values, path)?.as_str()
    }

    fn integer(&self, path: &str) -> Option<u64> {
        at(self.values, path)?.as_u64()
    }

    fn is_written(&self, path: &str) -> bool {
        self.node(path).is_some()
    }

    fn node(&self, path: &str) -> Option<&Node> {
        path.split('.')
            .try_fold(self.written, |node, name| node.get(name))
    }

    fn report(&mut self, code: ConfigErrorCode, path: &str, message: &str, remediation: &str) {
        // A field that is not written is reported at the nearest section that is.
        let mut known = path;
        let position = loop {
            if let Some(position) = self.positions.get(known) {
                break Some(*position);
            }
            match known.rsplit_once('.') {
                Some((parent, _)) => known = parent,
                None => break self.written.position,
            }
        };
        self.errors
            .push(ConfigError::new(code, path, position, message, remediation));
    }

    fn conflict(&mut self, path: &str, message: &str, remediation: &str) {
        self.report(
            ConfigErrorCode::ConfigSchemaInvalid,
            path,
            message,
            remediation,
        );
    }

    /// Runs every check; what could not be decoded is skipped, for it is reported already.
    pub(crate) fn run(&mut self) {
        self.parser();
        self.environment();
        self.workspace();
        self.session();
        if self.is_written("memory.provider") && self.is_written("memory.sources") {
            let empty = at(self.values, "memory.sources")
                .and_then(Value::as_array)
                .is_some_and(Vec::is_empty);
            if !empty {
                self.conflict(
                    "memory.sources",
                    "memory has both a provider and sources",
                    "keep one of the two",
                );
            }
        }
        self.metadata();
    }

    fn parser(&mut self) {
        let (Some(protocol), Some(parser)) =
            (self.text("agent.protocol"), self.text("agent.parser"))
        else {
            return;
        };
        if parser != "auto" && protocol != "auto" && parser != protocol {
            self.report(
                ConfigErrorCode::ProtocolParserMismatch,
                "agent.parser",
                "the parser is not that of the protocol",
                "write auto, or the id of the protocol",
            );
        }
    }

    fn environment(&mut self) {
        let Some(kind) = self.text("runtime.environment.type").map(ToOwned::to_owned) else {
            return;
        };
        if kind == "unsafe_host" {
            let entries = match self.node("runtime.environment").map(|node| &node.kind) {
                Some(Kind::Mapping(entries)) => entries.as_slice(),
                _ => &[],
            };
            let refused: Vec<(String, Option<Position>)> = entries
                .iter()
                .filter(|entry| !UNSAFE_HOST_KEYS.contains(&entry.key.as_str()))
                .map(|entry| (entry.key.clone(), entry.position))
                .collect();
            for (key, position) in refused {
                let path = format!("runtime.environment.{key}");
                // An unknown key is reported as such.
                if at(self.values, &path).is_some() || self.positions.contains_key(&path) {
                    self.errors.push(ConfigError::new(
                        ConfigErrorCode::UnsafeHostConstraintRejected,
                        path,
                        position,
                        "unsafe_host isolates nothing and cannot honour this key",
                        "remove the key, or choose type local or docker",
                    ));
                }
            }
            return;
        }
        if kind != "docker" && self.is_written("runtime.environment.image") {
            self.conflict(
                "runtime.environment.image",
                "an image is for type docker alone",
                "remove the key, or choose type docker",
            );
        }
        if kind != "local" {
            for (path, harmless) in [
                ("runtime.environment.resource_enforcement", "kernel"),
                ("runtime.environment.workspace_backing", "tmpfs"),
            ] {
                if self.text(path).is_some_and(|word| word != harmless) {
                    self.conflict(
                        path,
                        "this word is for type local alone",
                        &format!("write {harmless}, or choose type local"),
                    );
                }
            }
            let roots = at(self.values, "runtime.environment.read_only_roots");
            if roots
                .and_then(Value::as_array)
                .is_some_and(|roots| !roots.is_empty())
            {
                self.conflict(
                    "runtime.environment.read_only_roots",
                    "further readable directories are for type local alone",
                    "remove the key, or choose type local",
                );
            }
        }
        let wall = self.integer("runtime.environment.wall_seconds");
        let command = self.integer("runtime.environment.command_seconds");
        if let (Some(wall), Some(command)) = (wall, command)
            && wall < command
        {
            let path = if self.is_written("runtime.environment.wall_seconds") {
                "runtime.environment.wall_seconds"
            } else {
                "runtime.environment.command_seconds"
            };
            self.conflict(
                path,
                "the sandbox ends before a command may: wall_seconds is less than command_seconds",
                "raise wall_seconds or lower command_seconds",
            );
        }
    }

    fn workspace(&mut self) {
        for path in [
            "runtime.environment.workspace",
            "runtime.data_root",
            "runtime.session.path",
            "runtime.trajectory.output",
        ] {
            let Some(written) = self.text(path) else {
                continue;
            };
            let resolved = self.base.resolve(written);
            let missing = path == "runtime.environment.workspace"
                && resolved.as_ref().is_some_and(|resolved| !resolved.is_dir());
            if resolved.is_none() {
                self.conflict(
                    path,
                    "the home directory is not known",
                    "write the path without ~",
                );
            } else if missing {
                self.conflict(
                    path,
                    "the workspace is no existing directory",
                    "create it, or name another; relative paths stand beside the configuration file",
                );
            }
        }
    }

    fn session(&mut self) {
        let mode = self.text("runtime.session.mode").map(ToOwned::to_owned);
        let enabled = at(self.values, "runtime.session.enabled").and_then(Value::as_bool);
        let mode = match (mode.as_deref(), enabled) {
            (Some(mode), Some(enabled)) if self.is_written("runtime.session.mode") => {
                if (mode == "durable") != enabled {
                    self.conflict(
                        "runtime.session.enabled",
                        "mode and enabled contradict each other",
                        "remove enabled; mode says the same",
                    );
                }
                mode.to_owned()
            }
            (_, Some(enabled)) => mode_of(enabled).to_owned(),
            (Some(mode), None) => mode.to_owned(),
            (None, None) => return,
        };
        if mode == "ephemeral" {
            if self
                .text("runtime.session.session_id")
                .is_some_and(|id| !id.is_empty())
            {
                self.conflict(
                    "runtime.session.session_id",
                    "an ephemeral session has no id to come back to",
                    "remove the key, or choose mode durable",
                );
            }
            if at(self.values, "runtime.session.restore") == Some(&Value::Bool(true)) {
                self.conflict(
                    "runtime.session.restore",
                    "an ephemeral session cannot be restored",
                    "remove the key, or choose mode durable",
                );
            }
        }
        self.store();
    }

    fn store(&mut self) {
        let is_postgres = self.text("runtime.session.store") == Some("postgres");
        if !is_postgres {
            if self.is_written("runtime.session.credential") {
                self.conflict(
                    "runtime.session.credential",
                    "a credential is for store postgres alone",
                    "remove the key, or choose store postgres",
                );
            }
            return;
        }
        match self
            .text("runtime.session.path")
            .map(endpoint::check_postgres)
        {
            Some(Ok(())) => {}
            Some(Err(message)) => self.conflict(
                "runtime.session.path",
                message,
                "name the password's reference in runtime.session.credential.ref",
            ),
            None if self.is_written("runtime.session.path") => {}
            None => self.conflict(
                "runtime.session.path",
                "store postgres needs an address",
                "write postgres://user@host:port/database",
            ),
        }
    }

    fn metadata(&mut self) {
        let size = at(self.values, "metadata")
            .and_then(|metadata| qitos_contracts::canonical_json::to_bytes(metadata).ok())
            .map_or(0, |bytes| bytes.len());
        if size > MAX_METADATA_BYTES {
            self.conflict(
                "metadata",
                "longer than 64 KiB",
                "keep large data in files of the workspace",
            );
        }
    }
}

fn mode_of(enabled: bool) -> &'static str {
    if enabled { "durable" } else { "ephemeral" }
}

/// The dialect that a built-in provider speaks when none is chosen.
fn own_api_mode(provider: &str) -> Option<&'static str> {
    match provider {
        "openai" | "openai_compatible" => Some("chat_completions"),
        "anthropic" => Some("messages"),
        _ => None,
    }
}

/// Fills what follows from other fields and drops what only older spellings have.
pub(crate) fn complete(values: &mut Map<String, Value>) -> Vec<CompatibilityReceipt> {
    let mut receipts = Vec::new();
    if let Some(model) = section_mut(values, "model") {
        if model.get("provider").and_then(Value::as_str) == Some("openai-compatible") {
            model.insert("provider".into(), "openai_compatible".into());
        }
        if let Some(endpoint) = model.get("base_url").and_then(Value::as_str) {
            let endpoint = endpoint::without_operation(endpoint).to_owned();
            model.insert("base_url".into(), endpoint.into());
        }
        let own = model
            .get("provider")
            .and_then(Value::as_str)
            .and_then(own_api_mode);
        if let (Some(own), false) = (own, model.contains_key("api_mode")) {
            model.insert("api_mode".into(), own.into());
        }
    }
    if let Some(environment) = section_mut(values, "runtime.environment") {
        match environment.get("type").and_then(Value::as_str) {
            Some("unsafe_host") => {
                environment.retain(|key, _| UNSAFE_HOST_KEYS.contains(&key.as_str()));
            }
            Some("docker") if !environment.contains_key("image") => {
                environment.insert("image".into(), "python:3.12-slim".into());
            }
            _ => {}
        }
    }
    let data_root = at(values, "runtime.data_root")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .trim_end_matches('/')
        .to_owned();
    if let Some(session) = section_mut(values, "runtime.session") {
        if let Some(enabled) = session.remove("enabled") {
            let mode = mode_of(enabled.as_bool().unwrap_or(true));
            session.insert("mode".into(), mode.into());
            receipts.push(CompatibilityReceipt::new(
                "session_enabled_compatibility",
                "runtime.session.enabled",
                "enabled was read as mode",
            ));
        }
        let is_file = session.get("store").and_then(Value::as_str) == Some("sqlite");
        if is_file && !session.contains_key("path") {
            session.insert(
                "path".into(),
                format!("{data_root}/sessions.sqlite3").into(),
            );
        }
    }
    if let Some(trajectory) = section_mut(values, "runtime.trajectory") {
        let is_journal = trajectory.get("sink").and_then(Value::as_str) == Some("journal");
        if is_journal && !trajectory.contains_key("output") {
            trajectory.insert(
                "output".into(),
                format!("{data_root}/trajectory.journal").into(),
            );
        }
    }
    receipts
}
