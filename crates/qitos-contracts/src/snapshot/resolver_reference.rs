//! References by which a restored session finds its live parts again (section 5, SES-24, SES-25).

use std::sync::Arc;

use super::component::is_name;
use super::cursor::{Cursor, Malformed};
use super::error::SnapshotError;
use super::limits::MAXIMUM_RESOLVER_REFERENCES;
use crate::canonical_json::ObjectWriter;

/// The capabilities that a reference may expect (SES-25); others are allowed.
pub mod capability {
    /// The agent's code.
    pub const AGENT_MODULE: &str = "agent.module";
    /// A model to call.
    pub const MODEL_CALL: &str = "model.call";
    /// A tool registry.
    pub const TOOLS_EXECUTE: &str = "tools.execute";
    /// An environment.
    pub const ENVIRONMENT_OBSERVE: &str = "environment.observe";
    /// A checkpoint store.
    pub const CHECKPOINT_SESSION: &str = "checkpoint.session";
    /// An event sink.
    pub const RUNTIME_EVENTS: &str = "runtime.events";
    /// A provider-side continuation.
    pub const PROVIDER_CONTINUATION: &str = "provider.continuation";
    /// An artifact store.
    pub const ARTIFACT_RESOLVE: &str = "artifact.resolve";
}

/// The reference id of the store that a session lives in (SES-25).
pub const DEFAULT_STORE_REFERENCE: &str = "default:session";

/// Who resolves a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResolverNamespace {
    /// The agent module.
    Agent,
    /// A model.
    Model,
    /// A tool registry.
    ToolRegistry,
    /// An environment.
    Environment,
    /// An artifact store.
    ArtifactStore,
    /// A credential.
    Secret,
    /// A checkpoint store.
    CheckpointStore,
    /// A provider-side continuation.
    ProviderContinuation,
    /// An event sink.
    RuntimeEventSink,
}

impl ResolverNamespace {
    /// Every namespace.
    pub const ALL: [ResolverNamespace; 9] = [
        ResolverNamespace::Agent,
        ResolverNamespace::Model,
        ResolverNamespace::ToolRegistry,
        ResolverNamespace::Environment,
        ResolverNamespace::ArtifactStore,
        ResolverNamespace::Secret,
        ResolverNamespace::CheckpointStore,
        ResolverNamespace::ProviderContinuation,
        ResolverNamespace::RuntimeEventSink,
    ];

    /// The persisted word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ResolverNamespace::Agent => "agent",
            ResolverNamespace::Model => "model",
            ResolverNamespace::ToolRegistry => "tool_registry",
            ResolverNamespace::Environment => "environment",
            ResolverNamespace::ArtifactStore => "artifact_store",
            ResolverNamespace::Secret => "secret",
            ResolverNamespace::CheckpointStore => "checkpoint_store",
            ResolverNamespace::ProviderContinuation => "provider_continuation",
            ResolverNamespace::RuntimeEventSink => "runtime_event_sink",
        }
    }
}

/// What a restoring process must resolve before it claims the session (SES-27).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResolverReference {
    namespace: ResolverNamespace,
    reference_id: String,
    expected_capability: String,
    version: u64,
}

impl ResolverReference {
    /// A reference.
    ///
    /// # Errors
    /// `corrupt_snapshot` if a field is outside the pattern of SES-24.
    pub fn new(
        namespace: ResolverNamespace,
        reference_id: impl Into<String>,
        expected_capability: impl Into<String>,
        version: u64,
    ) -> Result<Self, SnapshotError> {
        let reference = ResolverReference {
            namespace,
            reference_id: reference_id.into(),
            expected_capability: expected_capability.into(),
            version,
        };
        if is_reference_id(&reference.reference_id)
            && is_name(&reference.expected_capability)
            && version >= 1
        {
            Ok(reference)
        } else {
            Err(SnapshotError::root("a resolver reference is not valid"))
        }
    }

    /// Who resolves it.
    #[must_use]
    pub const fn namespace(&self) -> ResolverNamespace {
        self.namespace
    }

    /// What the resolver is asked for.
    #[must_use]
    pub fn reference_id(&self) -> &str {
        &self.reference_id
    }

    /// What the resolved object must be able to do.
    #[must_use]
    pub fn expected_capability(&self) -> &str {
        &self.expected_capability
    }

    /// The version of the reference, from 1.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    fn write(&self, buffer: &mut Vec<u8>) {
        let mut object = ObjectWriter::new(buffer);
        object
            .key("expected_capability")
            .str(&self.expected_capability);
        object.key("namespace").str(self.namespace.as_str());
        object.key("reference_id").str(&self.reference_id);
        object.key("version").u64(self.version);
        object.end();
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, SnapshotError> {
        let mut text = |key| -> Result<String, Malformed> {
            cursor.literal(key)?;
            cursor.string().map(std::borrow::Cow::into_owned)
        };
        let capability = text("{\"expected_capability\":")?;
        let namespace = text(",\"namespace\":")?;
        let reference_id = text(",\"reference_id\":")?;
        cursor.literal(",\"version\":")?;
        let version = cursor.u64()?;
        cursor.literal("}")?;
        let namespace = ResolverNamespace::ALL
            .into_iter()
            .find(|known| known.as_str() == namespace)
            .ok_or(SnapshotError::root("a resolver namespace is not known"))?;
        ResolverReference::new(namespace, reference_id, capability, version)
    }
}

/// `[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}` without words that look like a credential (SES-24).
fn is_reference_id(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte))
        && !["password", "credential", "bearer", "api_key"]
            .iter()
            .any(|word| text.to_ascii_lowercase().contains(word))
}

/// The references of a snapshot: at most 64, each (namespace, reference id) once; encoded once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverReferences {
    references: Arc<[ResolverReference]>,
    canonical: Arc<[u8]>,
}

impl ResolverReferences {
    /// The set, in the given order.
    ///
    /// # Errors
    /// `corrupt_snapshot` for a pair that stands twice; `size_limit_exceeded` above 64.
    pub fn new(references: Vec<ResolverReference>) -> Result<Self, SnapshotError> {
        SnapshotError::bound(
            "resolver references",
            references.len(),
            MAXIMUM_RESOLVER_REFERENCES,
        )?;
        let mut places: Vec<_> = references
            .iter()
            .map(|reference| (reference.namespace, reference.reference_id.as_str()))
            .collect();
        places.sort_unstable();
        if places.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(SnapshotError::root("a resolver reference stands twice"));
        }
        let mut canonical = vec![b'['];
        for (index, reference) in references.iter().enumerate() {
            if index > 0 {
                canonical.push(b',');
            }
            reference.write(&mut canonical);
        }
        canonical.push(b']');
        Ok(ResolverReferences {
            references: references.into(),
            canonical: canonical.into(),
        })
    }

    /// No reference.
    #[must_use]
    pub fn none() -> Self {
        ResolverReferences {
            references: Arc::new([]),
            canonical: Arc::from(&b"[]"[..]),
        }
    }

    /// The references, in their order.
    #[must_use]
    pub fn as_slice(&self) -> &[ResolverReference] {
        &self.references
    }

    /// The canonical array.
    pub(crate) fn canonical(&self) -> &[u8] {
        &self.canonical
    }

    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, SnapshotError> {
        cursor.literal("[")?;
        let mut references = Vec::new();
        if !cursor.take_if("]") {
            loop {
                references.push(ResolverReference::read(cursor)?);
                if !cursor.another(b']')? {
                    break;
                }
            }
        }
        ResolverReferences::new(references)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ContractError as _;

    #[test]
    fn ses_24_references_outside_the_patterns_are_refused() {
        let new = |id: &str, capability: &str, version| {
            ResolverReference::new(ResolverNamespace::Model, id, capability, version)
                .map_err(|error| error.code().to_owned())
        };
        assert!(new("default:main-1.x_y", capability::MODEL_CALL, 1).is_ok());
        assert!(new(&"a".repeat(128), capability::MODEL_CALL, 1).is_ok());
        for (id, capability, version) in [
            ("", "model.call", 1),
            (":a", "model.call", 1),
            ("a/b", "model.call", 1),
            ("my_api_key", "model.call", 1),
            ("MyPassword", "model.call", 1),
            ("a", "Model", 1),
            ("a", "model.call", 0),
        ] {
            assert_eq!(
                new(id, capability, version),
                Err("corrupt_snapshot".into()),
                "{id}"
            );
        }
        assert!(new(&"a".repeat(129), "model.call", 1).is_err());
    }

    #[test]
    fn references_are_at_most_64_and_unique() {
        let reference = |index: usize| {
            ResolverReference::new(
                ResolverNamespace::Agent,
                format!("a{index}"),
                "agent.module",
                1,
            )
            .unwrap()
        };
        for (count, code) in [(63, None), (64, None), (65, Some("size_limit_exceeded"))] {
            let result = ResolverReferences::new((0..count).map(reference).collect());
            assert_eq!(
                result.err().map(|error| error.code().to_owned()).as_deref(),
                code
            );
        }
        let twice = ResolverReferences::new(vec![reference(0), reference(0)]);
        assert_eq!(twice.unwrap_err().code(), "corrupt_snapshot");
    }

    #[test]
    fn references_round_trip() {
        let references = ResolverReferences::new(vec![
            ResolverReference::new(ResolverNamespace::Secret, "b", "model.call", 7).unwrap(),
            ResolverReference::new(ResolverNamespace::Agent, "a", "agent.module", 1).unwrap(),
        ])
        .unwrap();
        let mut cursor = Cursor::new(references.canonical()).unwrap();
        assert_eq!(
            ResolverReferences::read(&mut cursor),
            Ok(references.clone())
        );
    }
}
