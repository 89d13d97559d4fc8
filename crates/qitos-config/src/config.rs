//! The loaded configuration: immutable, checked, with one canonical form and one digest (CFG-12 to CFG-17).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use qitos_contracts::canonical_json;
use qitos_contracts::digest::Digest;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::decode::Decoder;
use crate::describe_error::{ConfigError, ConfigErrorCode, ConfigErrors, ErrorList};
use crate::document::Node;
use crate::paths::Base;
use crate::section::{
    Agent, Budgets, Compaction, ContextSettings, DatasetItem, Evaluation, FailurePolicy, Lifecycle,
    Memory, Model, RootEdit, Runtime, SCHEMA, Sections, Tools,
};
use crate::validate::{Checks, at, complete};
use crate::{parse_json, parse_yaml, schema_revision, source};

/// What [`AgentConfig::config_digest`] leaves out, so that a moved project keeps it (CFG-13).
const OUTSIDE_OF_DIGEST: &[&str] = &[
    "runtime.data_root",
    "runtime.session.path",
    "runtime.session.session_id",
    "runtime.session.restore",
    "runtime.trajectory.output",
    "runtime.environment.workspace",
    "metadata",
    "dataset",
];

/// The syntax of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML within the bounds of CFG-1 and CFG-2.
    Yaml,
    /// Strict JSON.
    Json,
}

/// What was read in an older spelling, to be shown and stored (CFG-9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CompatibilityReceipt {
    /// The stable code.
    pub code: &'static str,
    /// The field concerned.
    pub field: &'static str,
    /// What was done.
    pub message: &'static str,
}

impl CompatibilityReceipt {
    pub(crate) const fn new(
        code: &'static str,
        field: &'static str,
        message: &'static str,
    ) -> Self {
        CompatibilityReceipt {
            code,
            field,
            message,
        }
    }
}

#[derive(Debug)]
struct Inner {
    sections: Sections,
    /// The full configuration, defaults filled; what is written out.
    values: Map<String, Value>,
    /// What was written, for modified copies.
    written: Node,
    base: Base,
    receipts: Vec<CompatibilityReceipt>,
    canonical: Vec<u8>,
    config_digest: Digest,
    source_digest: Option<Digest>,
}

/// A checked configuration; immutable, cheap to clone, `Send + Sync` (CFG-16).
///
/// # Contract
/// There is no way to hold an unchecked one: files, texts and code pass the same validation (CFG-17).
/// It names factories and never loads anything (CFG-18); whether a name is registered is decided by the
/// composition (CFG-19).
///
/// # Example
/// ```
/// use qitos_config::AgentConfig;
///
/// let config = AgentConfig::builder(std::env::temp_dir())
///     .edit(|root| {
///         root.agent(|agent| { agent.name("notes"); });
///         root.model(|model| { model.provider("fake").model("notes-fake"); });
///         root.runtime(|runtime| {
///             runtime.environment(|environment| { environment.kind("unsafe_host").workspace("."); });
///         });
///     })
///     .build()?;
/// assert_eq!(config.budgets().max_steps(), 10);
/// # Ok::<(), qitos_config::ConfigErrors>(())
/// ```
#[derive(Clone, Debug)]
pub struct AgentConfig(Arc<Inner>);

/// Equal when the full configuration and the directory that relative paths stand in are equal.
impl PartialEq for AgentConfig {
    fn eq(&self, other: &Self) -> bool {
        self.0.values == other.0.values && self.0.base == other.0.base
    }
}

impl AgentConfig {
    /// Reads a file; `.json` is strict JSON, every other name is YAML.
    ///
    /// The file is opened once. Relative paths in it stand beside it (CFG-10).
    ///
    /// # Errors
    /// `config_source_invalid` for a file that cannot be read, else as [`AgentConfig::from_str`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        let path = path.as_ref();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.as_deref();
        let load = || {
            let bytes = source::read(path).map_err(ConfigErrors::one)?;
            let text = source::text_of(&bytes).map_err(ConfigErrors::one)?;
            let is_json = path
                .extension()
                .is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
            let format = if is_json { Format::Json } else { Format::Yaml };
            let absolute = std::path::absolute(path).map_err(|_| unknown_base())?;
            let directory = absolute.parent().unwrap_or(Path::new("/"));
            Self::read(text, format, directory)
        };
        load().map_err(|errors: ConfigErrors| errors.with_source(name))
    }

    /// Reads a text; relative paths in it stand in `base_dir`.
    ///
    /// # Errors
    /// Up to twenty, sorted by position: `config_syntax_invalid`, `config_unknown_field`, `config_schema_invalid`,
    /// `unsafe_host_constraint_rejected`, `protocol_parser_mismatch`.
    pub fn from_str(
        text: &str,
        format: Format,
        base_dir: impl AsRef<Path>,
    ) -> Result<Self, ConfigErrors> {
        let text = source::text_of(text.as_bytes()).map_err(ConfigErrors::one)?;
        Self::read(text, format, base_dir.as_ref())
    }

    /// Starts a configuration from code; relative paths stand in `base_dir`.
    ///
    /// The schema id, an empty `tools` and `budgets.max_steps: 10` are set; everything else has the defaults of
    /// a file.
    pub fn builder(base_dir: impl Into<PathBuf>) -> AgentConfigBuilder {
        let mut root = RootEdit {
            node: Node::empty_mapping(),
        };
        root.schema(SCHEMA).tools(|_| {}).budgets(|budgets| {
            budgets.max_steps(10);
        });
        AgentConfigBuilder {
            root,
            base_dir: base_dir.into(),
        }
    }

    /// A modified copy; this one stays as it is (CFG-16).
    ///
    /// The change starts from what was written, so a default that followed from a changed field follows again.
    ///
    /// # Errors
    /// As [`AgentConfigBuilder::build`].
    pub fn with(&self, edit: impl FnOnce(&mut RootEdit)) -> Result<Self, ConfigErrors> {
        let mut node = self.0.written.clone();
        node.forget_positions();
        AgentConfigBuilder {
            root: RootEdit { node },
            base_dir: self.0.base.directory().to_path_buf(),
        }
        .edit(edit)
        .build()
    }

    fn read(text: &str, format: Format, base_dir: &Path) -> Result<Self, ConfigErrors> {
        let mut errors = ErrorList::default();
        let root = match format {
            Format::Yaml => parse_yaml::parse(text, &mut errors),
            Format::Json => parse_json::parse(text, &mut errors),
        };
        let source_digest = Digest::of(text.as_bytes());
        let Some(root) = root else {
            return Err(errors.finish().unwrap_or_else(inconsistent));
        };
        // What follows from a refused construct would only hide it.
        if let Some(errors) = errors.finish() {
            return Err(errors);
        }
        Self::check(root, base_dir, Some(source_digest))
    }

    /// The one way to a configuration: convert, decode, check, complete.
    fn check(
        mut written: Node,
        base_dir: &Path,
        source_digest: Option<Digest>,
    ) -> Result<Self, ConfigErrors> {
        let base = Base::new(base_dir).map_err(|_| unknown_base())?;
        let mut errors = ErrorList::default();
        let mut receipts = schema_revision::convert(&mut written);
        let mut decoder = Decoder::new(&mut errors);
        let mut values = decoder.section(Sections::fields(), &written, "");
        let positions = decoder.into_positions();
        Checks {
            written: &written,
            values: &values,
            positions: &positions,
            base: &base,
            errors: &mut errors,
        }
        .run();
        if let Some(errors) = errors.finish() {
            return Err(errors);
        }
        receipts.extend(complete(&mut values));
        let canonical =
            canonical_json::to_bytes(&Value::Object(values.clone())).map_err(|_| inconsistent())?;
        let config_digest = digest_without_places(&values).ok_or_else(inconsistent)?;
        // Every value was checked against the list from which the types are made.
        let sections =
            serde_json::from_value(Value::Object(values.clone())).map_err(|_| inconsistent())?;
        Ok(AgentConfig(Arc::new(Inner {
            sections,
            values,
            written,
            base,
            receipts,
            canonical,
            config_digest,
            source_digest,
        })))
    }

    /// Who acts and how its text is read.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        self.0.sections.agent()
    }

    /// Which model answers.
    #[must_use]
    pub fn model(&self) -> &Model {
        self.0.sections.model()
    }

    /// What the agent can do.
    #[must_use]
    pub fn tools(&self) -> &Tools {
        self.0.sections.tools()
    }

    /// Where the agent runs and what is kept of it.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        self.0.sections.runtime()
    }

    /// What a run may use.
    #[must_use]
    pub fn budgets(&self) -> &Budgets {
        self.0.sections.budgets()
    }

    /// What the model is shown.
    #[must_use]
    pub fn context(&self) -> &ContextSettings {
        self.0.sections.context()
    }

    /// What the agent remembers across sessions.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        self.0.sections.memory()
    }

    /// How a full context is made smaller.
    #[must_use]
    pub fn compaction(&self) -> &Compaction {
        self.0.sections.compaction()
    }

    /// How a run is paused and cancelled.
    #[must_use]
    pub fn lifecycle(&self) -> &Lifecycle {
        self.0.sections.lifecycle()
    }

    /// When a run stops.
    #[must_use]
    pub fn failure_policy(&self) -> &FailurePolicy {
        self.0.sections.failure_policy()
    }

    /// How results are judged by `qit bench`.
    #[must_use]
    pub fn evaluation(&self) -> &Evaluation {
        self.0.sections.evaluation()
    }

    /// Free data of the project.
    #[must_use]
    pub fn metadata(&self) -> &Map<String, Value> {
        self.0.sections.metadata()
    }

    /// The tasks.
    #[must_use]
    pub fn dataset(&self) -> &[DatasetItem] {
        self.0.sections.dataset()
    }

    /// The directory that relative paths stand in; absolute.
    #[must_use]
    pub fn base_dir(&self) -> &Path {
        self.0.base.directory()
    }

    /// The absolute path that a path of this configuration stands for (CFG-10).
    #[must_use]
    pub fn resolve_path(&self, written: &str) -> PathBuf {
        // Paths that need an unknown home directory were refused by validation.
        self.0
            .base
            .resolve(written)
            .unwrap_or_else(|| self.0.base.directory().join(written))
    }

    /// The directory of everything the runtime keeps; absolute.
    #[must_use]
    pub fn data_root(&self) -> PathBuf {
        self.resolve_path(self.runtime().data_root())
    }

    /// The directory to work on; absolute.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.resolve_path(self.runtime().environment().workspace())
    }

    /// What was read in older spellings (CFG-9).
    #[must_use]
    pub fn compatibility(&self) -> &[CompatibilityReceipt] {
        &self.0.receipts
    }

    /// The full configuration as canonical JSON: defaults filled, paths as written, no secret (CFG-12).
    ///
    /// Reading it back with the same base directory gives an equal configuration.
    #[must_use]
    pub fn to_canonical_json(&self) -> &[u8] {
        &self.0.canonical
    }

    /// SHA-256 of the canonical JSON without what only says where the project lies and what it works on (CFG-13).
    #[must_use]
    pub fn config_digest(&self) -> Digest {
        self.0.config_digest
    }

    /// SHA-256 of the bytes that were read; none for a configuration from code (CFG-13).
    #[must_use]
    pub fn source_digest(&self) -> Option<Digest> {
        self.0.source_digest
    }

    /// The dotted paths in which another configuration differs, for `config_digest_mismatch` (CFG-14).
    ///
    /// Fields that the digest leaves out are not named; values never are.
    #[must_use]
    pub fn differing_fields(&self, other: &AgentConfig) -> Vec<String> {
        let mut fields = Vec::new();
        let left = without_places(&self.0.values);
        let right = without_places(&other.0.values);
        compare("", &Value::Object(left), &Value::Object(right), &mut fields);
        fields
    }

    /// The only form for logs and receipts (CFG-15).
    #[must_use]
    pub fn sanitized(&self) -> Value {
        let digest_of = |path: &str| -> Value {
            at(&self.0.values, path)
                .filter(|value| !value.is_null() && value.as_str() != Some(""))
                .and_then(|value| canonical_json::digest(value).ok())
                .map_or(Value::Null, |digest| digest.to_hex().into())
        };
        let value_of = |path: &str| at(&self.0.values, path).cloned().unwrap_or(Value::Null);
        let policy = at(&self.0.values, "runtime.environment")
            .and_then(Value::as_object)
            .map(|environment| {
                let mut policy = environment.clone();
                for key in ["type", "image", "workspace", "test_command"] {
                    policy.remove(key);
                }
                Value::Object(policy)
            })
            .and_then(|policy| canonical_json::digest(&policy).ok());
        json!({
            "schema": SCHEMA,
            "config_digest": self.0.config_digest.to_hex(),
            "source_digest": self.0.source_digest.map(|digest| digest.to_hex()),
            "compatibility": self.0.receipts.iter().map(|receipt| receipt.code).collect::<Vec<_>>(),
            "model": {
                "provider": value_of("model.provider"),
                "model": value_of("model.model"),
                "api_mode": value_of("model.api_mode"),
                "endpoint_digest": digest_of("model.base_url"),
                "credential_ref_digest": digest_of("model.credential.ref"),
                "request_policy_digest": digest_of("model.request"),
            },
            "agent": { "protocol": value_of("agent.protocol") },
            "tools": {
                "preset": value_of("tools.preset"),
                "include": value_of("tools.include"),
                "policy": value_of("tools.policy"),
            },
            "environment": {
                "type": value_of("runtime.environment.type"),
                "image_digest": digest_of("runtime.environment.image"),
                "sandbox_policy_digest": policy.map(|digest| digest.to_hex()),
            },
            "session": {
                "mode": value_of("runtime.session.mode"),
                "store": value_of("runtime.session.store"),
            },
            "trajectory": { "privacy": value_of("runtime.trajectory.privacy") },
            "budgets": value_of("budgets"),
            "omitted": [
                "agent.name",
                "context",
                "dataset",
                "metadata",
                "model.base_url",
                "model.credential.ref",
                "model.request",
                "runtime.data_root",
                "runtime.environment.workspace",
                "runtime.session.path",
                "runtime.session.session_id",
                "runtime.trajectory.output",
            ],
        })
    }
}

/// A configuration being written in code.
///
/// Each section has one setter per field, reached through [`AgentConfigBuilder::edit`]; nothing is checked before
/// [`AgentConfigBuilder::build`], which runs exactly the reader's validation (CFG-17).
#[derive(Debug)]
#[must_use]
pub struct AgentConfigBuilder {
    root: RootEdit,
    base_dir: PathBuf,
}

impl AgentConfigBuilder {
    /// Sets fields.
    pub fn edit(mut self, edit: impl FnOnce(&mut RootEdit)) -> Self {
        edit(&mut self.root);
        self
    }

    /// Checks everything that was set.
    ///
    /// # Errors
    /// All that is wrong, up to twenty, without line and column; the codes of [`AgentConfig::from_str`].
    pub fn build(self) -> Result<AgentConfig, ConfigErrors> {
        AgentConfig::check(self.root.node, &self.base_dir, None)
    }
}

/// The list of fields and the types made from it disagree: a mistake of this crate, not of the document.
fn inconsistent() -> ConfigErrors {
    ConfigErrors::one(ConfigError::new(
        ConfigErrorCode::ConfigSchemaInvalid,
        "",
        None,
        "the configuration cannot be represented",
        "please report this",
    ))
}

fn unknown_base() -> ConfigErrors {
    ConfigErrors::one(ConfigError::new(
        ConfigErrorCode::ConfigSourceInvalid,
        "",
        None,
        "the directory that relative paths stand in is not known",
        "name it by an absolute path",
    ))
}

fn without_places(values: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = values.clone();
    for path in OUTSIDE_OF_DIGEST {
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let section = parent
            .split('.')
            .filter(|part| !part.is_empty())
            .try_fold(&mut kept, |section, part| {
                section.get_mut(part)?.as_object_mut()
            });
        if let Some(section) = section {
            section.remove(name);
        }
    }
    kept
}

fn digest_without_places(values: &Map<String, Value>) -> Option<Digest> {
    canonical_json::digest(&Value::Object(without_places(values))).ok()
}

fn compare(path: &str, left: &Value, right: &Value, fields: &mut Vec<String>) {
    let (Value::Object(left), Value::Object(right)) = (left, right) else {
        if left != right {
            fields.push(path.to_owned());
        }
        return;
    };
    let names: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for name in names {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match (left.get(name), right.get(name)) {
            (Some(left), Some(right)) => compare(&path, left, right, fields),
            _ => fields.push(path),
        }
    }
}
