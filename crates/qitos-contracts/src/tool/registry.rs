//! Names, wire names, manifest and freezing (REG-1 to REG-10, TOL-1 to TOL-4).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::schema::{Schema, SchemaError};
use super::spec::{EffectDeclaration, ToolSpec};
use super::{Tool, arguments::ArgumentError};
use crate::canonical_json;
use crate::digest::Digest;
use crate::error::{ContractError, Performed, Retry};

/// Why a tool was not registered, or a registry not frozen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// `invalid_tool_name` (TOL-1).
    #[error("`{name}` is not a tool name")]
    InvalidName {
        /// What was given.
        name: String,
    },
    /// `missing_description` (TOL-4).
    #[error("tool `{name}` has no description")]
    MissingDescription {
        /// The tool.
        name: String,
    },
    /// `invalid_tool_spec` (TOL-4).
    #[error("the specification of tool `{name}` contradicts itself: {reason}")]
    InvalidSpec {
        /// The tool.
        name: String,
        /// The contradiction.
        reason: &'static str,
    },
    /// `schema_contract_violation` (ARG-1).
    #[error("a schema of tool `{name}` is outside the supported subset")]
    Schema {
        /// The tool.
        name: String,
        /// What is wrong with it.
        #[source]
        source: SchemaError,
    },
    /// `duplicate_tool` (REG-2); the first stays.
    #[error("a tool named `{name}` is already registered")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// `alias_collision` (REG-3).
    #[error("alias `{alias}` is already a name or an alias")]
    AliasCollision {
        /// The alias.
        alias: String,
    },
    /// `wire_name_collision` (TOL-2).
    #[error("tools `{first}` and `{second}` share the wire name `{wire_name}`")]
    WireNameCollision {
        /// One tool.
        first: String,
        /// The other.
        second: String,
        /// What both become.
        wire_name: String,
    },
    /// `registry_frozen` (REG-6).
    #[error("the registry is frozen for a run")]
    Frozen,
}

impl ContractError for RegistryError {
    fn code(&self) -> &str {
        match self {
            RegistryError::InvalidName { .. } => "invalid_tool_name",
            RegistryError::MissingDescription { .. } => "missing_description",
            RegistryError::InvalidSpec { .. } => "invalid_tool_spec",
            RegistryError::Schema { .. } => "schema_contract_violation",
            RegistryError::Duplicate { .. } => "duplicate_tool",
            RegistryError::AliasCollision { .. } => "alias_collision",
            RegistryError::WireNameCollision { .. } => "wire_name_collision",
            RegistryError::Frozen => "registry_frozen",
        }
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

/// Whether `name` is 1–128 bytes of `[A-Za-z_][A-Za-z0-9_-]*` segments joined by `.` (TOL-1).
#[must_use]
pub fn is_tool_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.split('.').all(|segment| {
            segment
                .bytes()
                .next()
                .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
                && segment
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
        })
}

/// The name shown to providers: identity where `[A-Za-z0-9_-]{1,64}` allows it, else cut and hashed (TOL-2).
#[must_use]
pub fn wire_name(name: &str) -> String {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.len() <= 64 && name.bytes().all(fits) {
        return name.into();
    }
    let cut: String = name
        .chars()
        .take(55)
        .map(|character| {
            if character.is_ascii() && fits(character as u8) {
                character
            } else {
                '_'
            }
        })
        .collect();
    format!("{cut}_{}", Digest::of(name.as_bytes()).short_hex(8))
}

/// A registered tool with its compiled schemas.
#[derive(Clone, Debug)]
pub struct RegisteredTool {
    /// The code.
    pub tool: Arc<dyn Tool>,
    /// What it declared; a copy under its registered name.
    pub spec: Arc<ToolSpec>,
    /// Name shown to providers.
    pub wire_name: Arc<str>,
    /// Compiled `input_schema`.
    pub input: Arc<Schema>,
    /// Compiled `output_schema`.
    pub output: Option<Arc<Schema>>,
}

impl RegisteredTool {
    /// Reads and validates argument text (ARG-2 to ARG-7).
    ///
    /// # Errors
    /// The codes of the table in section 2.
    pub fn read_arguments(&self, text: &str) -> Result<Value, ArgumentError> {
        super::arguments::read(text, &self.input)
    }
}

/// Tools of a program, before a run. Order of registration changes nothing (REG-1).
#[derive(Clone, Debug, Default)]
pub struct ToolRegistry {
    tools: BTreeMap<Arc<str>, RegisteredTool>,
    aliases: BTreeMap<String, Arc<str>>,
}

impl ToolRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        ToolRegistry::default()
    }

    /// Adds a tool under its own name.
    ///
    /// # Errors
    /// `invalid_tool_name`, `missing_description`, `invalid_tool_spec`, `schema_contract_violation`,
    /// `duplicate_tool`. The registry is unchanged then.
    pub fn register(&mut self, tool: impl Tool) -> Result<&mut Self, RegistryError> {
        self.register_shared(Arc::new(tool))
    }

    /// Adds a shared tool under its own name.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_shared(&mut self, tool: Arc<dyn Tool>) -> Result<&mut Self, RegistryError> {
        let spec = Arc::new(tool.spec().clone());
        self.insert(tool, spec)
    }

    /// Adds a tool as `<namespace>.<name>`; the tool's own spec is not changed (REG-2).
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_in(
        &mut self,
        namespace: &str,
        tool: Arc<dyn Tool>,
    ) -> Result<&mut Self, RegistryError> {
        let mut spec = tool.spec().clone();
        spec.name = format!("{namespace}.{}", spec.name).into();
        spec.origin.toolset = Some(namespace.into());
        self.insert(tool, Arc::new(spec))
    }

    fn insert(
        &mut self,
        tool: Arc<dyn Tool>,
        spec: Arc<ToolSpec>,
    ) -> Result<&mut Self, RegistryError> {
        check_spec(&spec)?;
        let name = spec.name.to_string();
        let refuse = |source| RegistryError::Schema {
            name: name.clone(),
            source,
        };
        let input = Schema::compile(&spec.input_schema)
            .map(Arc::new)
            .map_err(refuse)?;
        // An output may be any value, so its schema may have any root.
        let output = match &spec.output_schema {
            Some(schema) => Some(Arc::new(Schema::compile_any(schema).map_err(refuse)?)),
            None => None,
        };
        if self.tools.contains_key(&spec.name) {
            return Err(RegistryError::Duplicate { name });
        }
        if self.aliases.contains_key(spec.name.as_ref()) {
            return Err(RegistryError::AliasCollision { alias: name });
        }
        let wire_name = wire_name(&spec.name).into();
        self.tools.insert(
            Arc::clone(&spec.name),
            RegisteredTool {
                tool,
                spec,
                wire_name,
                input,
                output,
            },
        );
        Ok(self)
    }

    /// Gives a tool a second name for host calls only (REG-3, REG-4).
    ///
    /// # Errors
    /// `alias_collision` if the alias is taken; `invalid_tool_name` if the tool is unknown.
    pub fn alias(&mut self, alias: &str, name: &str) -> Result<&mut Self, RegistryError> {
        if self.tools.contains_key(alias) || self.aliases.contains_key(alias) {
            return Err(RegistryError::AliasCollision {
                alias: alias.into(),
            });
        }
        let Some((canonical, _)) = self.tools.get_key_value(name) else {
            return Err(RegistryError::InvalidName { name: name.into() });
        };
        let canonical = Arc::clone(canonical);
        self.aliases.insert(alias.into(), canonical);
        Ok(self)
    }

    /// The tool of a canonical name or alias, for host calls.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&RegisteredTool> {
        self.tools
            .get(name)
            .or_else(|| self.tools.get(self.aliases.get(name)?))
    }

    /// The tools by name.
    pub fn iter(&self) -> impl Iterator<Item = &RegisteredTool> {
        self.tools.values()
    }

    /// How many tools there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The immutable set of a run; later registration goes into the next one (REG-6).
    ///
    /// `hidden` names tools that policy hides: neither in the wire schema nor callable.
    ///
    /// # Errors
    /// `wire_name_collision`.
    pub fn freeze(&self, hidden: &[&str]) -> Result<FrozenRegistry, RegistryError> {
        let visible: Vec<RegisteredTool> = self
            .tools
            .values()
            .filter(|tool| !hidden.contains(&tool.spec.name.as_ref()))
            .cloned()
            .collect();
        let mut by_wire_name: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for (index, tool) in visible.iter().enumerate() {
            if let Some(other) = by_wire_name.insert(Arc::clone(&tool.wire_name), index) {
                let first = visible
                    .get(other)
                    .map(|tool| tool.spec.name.to_string())
                    .unwrap_or_default();
                return Err(RegistryError::WireNameCollision {
                    first,
                    second: tool.spec.name.to_string(),
                    wire_name: tool.wire_name.to_string(),
                });
            }
        }
        let by_name = visible
            .iter()
            .enumerate()
            .map(|(index, tool)| (Arc::clone(&tool.spec.name), index))
            .collect();
        let entries: Vec<Value> = visible
            .iter()
            .map(|tool| tool.spec.manifest_entry(&tool.wire_name))
            .collect();
        let entry_digests = entries
            .iter()
            .map(|entry| canonical_json::digest(entry).unwrap_or(Digest::ZERO))
            .collect();
        let manifest = json!({"schema_version": MANIFEST_SCHEMA, "tools": entries});
        let manifest_digest = canonical_json::digest(&manifest).unwrap_or(Digest::ZERO);
        Ok(FrozenRegistry(Arc::new(Frozen {
            tools: visible,
            by_name,
            by_wire_name,
            manifest,
            manifest_digest,
            entry_digests,
        })))
    }
}

/// Schema id of the tool manifest (REG-7).
pub const MANIFEST_SCHEMA: &str = "qitos.tool_manifest/v1";

fn check_spec(spec: &ToolSpec) -> Result<(), RegistryError> {
    let name = || spec.name.to_string();
    if !is_tool_name(&spec.name) {
        return Err(RegistryError::InvalidName { name: name() });
    }
    if spec.description.trim().is_empty() {
        return Err(RegistryError::MissingDescription { name: name() });
    }
    let contradiction = if spec.read_only && spec.effect != EffectDeclaration::Pure {
        Some("read_only with an effect other than pure")
    } else if spec.timeout.is_some_and(|timeout| timeout.is_zero()) {
        Some("a time limit of zero")
    } else if spec.retry.max_attempts == 0 {
        Some("zero attempts")
    } else {
        None
    };
    match contradiction {
        Some(reason) => Err(RegistryError::InvalidSpec {
            name: name(),
            reason,
        }),
        None => Ok(()),
    }
}

#[derive(Debug)]
struct Frozen {
    tools: Vec<RegisteredTool>,
    by_name: BTreeMap<Arc<str>, usize>,
    by_wire_name: BTreeMap<Arc<str>, usize>,
    manifest: Value,
    manifest_digest: Digest,
    entry_digests: Vec<Digest>,
}

/// The immutable tools of a run; cheap to clone.
#[derive(Clone, Debug)]
pub struct FrozenRegistry(Arc<Frozen>);

impl FrozenRegistry {
    /// The tool that a native call names: exact wire name, nothing else (REG-4).
    #[must_use]
    pub fn by_wire_name(&self, name: &str) -> Option<&RegisteredTool> {
        self.0.tools.get(*self.0.by_wire_name.get(name)?)
    }

    /// The tool that a text protocol names: exact canonical name, nothing else (REG-4).
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&RegisteredTool> {
        self.0.tools.get(*self.0.by_name.get(name)?)
    }

    /// The tools sorted by name.
    #[must_use]
    pub fn tools(&self) -> &[RegisteredTool] {
        &self.0.tools
    }

    /// The manifest (REG-7).
    #[must_use]
    pub fn manifest(&self) -> &Value {
        &self.0.manifest
    }

    /// Digest of the manifest.
    #[must_use]
    pub fn manifest_digest(&self) -> Digest {
        self.0.manifest_digest
    }

    /// Digest of one tool's manifest entry, by canonical name (REG-8).
    #[must_use]
    pub fn entry_digest(&self, name: &str) -> Option<Digest> {
        self.0
            .entry_digests
            .get(*self.0.by_name.get(name)?)
            .copied()
    }

    /// At most three names near `name`, of visible tools only (REG-4, REG-5).
    #[must_use]
    pub fn suggestions(&self, name: &str) -> Vec<Arc<str>> {
        let wanted: Vec<char> = name
            .chars()
            .take(128)
            .flat_map(char::to_lowercase)
            .collect();
        let mut near: Vec<(usize, Arc<str>)> = self
            .0
            .tools
            .iter()
            .filter_map(|tool| {
                let have: Vec<char> = tool
                    .spec
                    .name
                    .chars()
                    .flat_map(char::to_lowercase)
                    .collect();
                let distance = edit_distance(&wanted, &have);
                (distance <= wanted.len().max(have.len()) / 2)
                    .then(|| (distance, Arc::clone(&tool.spec.name)))
            })
            .collect();
        near.sort();
        near.truncate(3);
        near.into_iter().map(|(_, name)| name).collect()
    }
}

fn edit_distance(left: &[char], right: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, a) in left.iter().enumerate() {
        let mut diagonal = index;
        let mut previous = index + 1;
        if let Some(first) = row.first_mut() {
            *first = previous;
        }
        for (b, cell) in right.iter().zip(row.iter_mut().skip(1)) {
            let above = *cell;
            *cell = (diagonal + usize::from(a != b))
                .min(above + 1)
                .min(previous + 1);
            diagonal = above;
            previous = *cell;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::{
        CallCtx, EffectClass, Facts, Reconciled, Returned, ToolError, default_effect,
    };
    use super::*;
    use crate::ids::{EffectRef, SlotId};

    #[derive(Debug)]
    struct Named(ToolSpec);

    #[async_trait::async_trait]
    impl Tool for Named {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn validate(&self, _args: &Value) -> Result<(), ToolError> {
            Ok(())
        }
        fn effect(&self, _args: &Value, slot: &SlotId) -> Result<EffectClass, ToolError> {
            Ok(default_effect(&self.0, slot))
        }
        fn needs_approval(&self, _args: &Value, _facts: &Facts) -> Result<bool, ToolError> {
            Ok(false)
        }
        async fn execute(&self, _args: Arc<Value>, _ctx: CallCtx) -> Result<Returned, ToolError> {
            Ok(Returned::Value(Value::Null))
        }
        async fn reconcile(&self, _effect: &EffectRef, _key: &str) -> Reconciled {
            Reconciled::Unknown
        }
    }

    fn named(name: &str) -> Named {
        Named(ToolSpec::new(name, "says hello", json!({"type": "object"})).read_only())
    }

    #[test]
    fn names_follow_the_alphabet() {
        // TOL-1, at the bounds 127, 128, 129
        for name in ["a", "_x", "A.b-c_1", &"a".repeat(127), &"a".repeat(128)] {
            assert!(is_tool_name(name), "{name}");
        }
        for name in [
            "",
            "1a",
            "a..b",
            ".a",
            "a.",
            "a b",
            "é",
            "a/b",
            &"a".repeat(129),
        ] {
            assert!(!is_tool_name(name), "{name}");
            assert_eq!(
                ToolRegistry::new()
                    .register(named(name))
                    .unwrap_err()
                    .code(),
                "invalid_tool_name"
            );
        }
    }

    #[test]
    fn wire_names_are_identity_where_they_fit() {
        // TOL-2, at the bounds 64 and 65
        assert_eq!(wire_name("read_file"), "read_file");
        assert_eq!(wire_name(&"a".repeat(64)), "a".repeat(64));
        let long = wire_name(&"a".repeat(65));
        assert!(long.len() == 64 && long.starts_with(&"a".repeat(55)));
        assert!(wire_name("fs.read").starts_with("fs_read_"));
        assert_ne!(wire_name("fs.read"), wire_name("fs.Read"));
    }

    #[test]
    fn a_second_tool_of_a_name_is_refused_and_the_first_stays() {
        // REG-2, TCK-2
        let mut registry = ToolRegistry::new();
        registry.register(named("a")).unwrap();
        assert_eq!(
            registry.register(named("a")).unwrap_err().code(),
            "duplicate_tool"
        );
        assert!(registry.get("a").is_some() && registry.len() == 1);
        registry.alias("b", "a").unwrap();
        assert_eq!(
            registry.register(named("b")).unwrap_err().code(),
            "alias_collision"
        );
        assert_eq!(
            registry.alias("a", "a").unwrap_err().code(),
            "alias_collision"
        );
    }

    #[test]
    fn contradictions_and_empty_descriptions_are_refused() {
        // TOL-4
        let mut registry = ToolRegistry::new();
        let mut tool = named("a");
        tool.0.description = "  ".into();
        assert_eq!(
            registry.register(tool).unwrap_err().code(),
            "missing_description"
        );
        let mut tool = named("a");
        tool.0.effect = EffectDeclaration::Undeclared;
        assert_eq!(
            registry.register(tool).unwrap_err().code(),
            "invalid_tool_spec"
        );
        let mut tool = named("a");
        tool.0.retry.max_attempts = 0;
        assert_eq!(
            registry.register(tool).unwrap_err().code(),
            "invalid_tool_spec"
        );
        let mut tool = named("a");
        tool.0.input_schema = json!({"type": "string"});
        assert_eq!(
            registry.register(tool).unwrap_err().code(),
            "schema_contract_violation"
        );
    }

    #[test]
    fn order_of_registration_changes_nothing() {
        // REG-1, REG-7, TCK-1
        let build = |names: &[&str]| {
            let mut registry = ToolRegistry::new();
            for name in names {
                registry.register(named(name)).unwrap();
            }
            registry.freeze(&[]).unwrap()
        };
        let (one, two) = (build(&["a", "b", "c"]), build(&["c", "a", "b"]));
        assert_eq!(one.manifest_digest(), two.manifest_digest());
        assert_ne!(one.manifest_digest(), build(&["a", "b"]).manifest_digest());
        assert!(
            one.tools()
                .iter()
                .map(|tool| tool.spec.name.as_ref())
                .eq(["a", "b", "c"])
        );
    }

    #[test]
    fn a_model_gets_no_repair_and_hints_name_visible_tools_only() {
        // REG-4, REG-5
        let mut registry = ToolRegistry::new();
        registry
            .register(named("read_file"))
            .unwrap()
            .register(named("read_fil_hidden"))
            .unwrap();
        registry.alias("rf", "read_file").unwrap();
        let frozen = registry.freeze(&["read_fil_hidden"]).unwrap();
        for name in [
            "Read_file",
            "read_fil",
            "rf",
            " read_file",
            "read_fil_hidden",
        ] {
            assert!(
                frozen.by_wire_name(name).is_none() && frozen.by_name(name).is_none(),
                "{name}"
            );
        }
        assert_eq!(
            frozen.suggestions("Read_fil"),
            vec![Arc::<str>::from("read_file")]
        );
        assert!(registry.get("rf").is_some());
    }
}
