//! The components of a snapshot: who owns which slot under which schema (section 4, SES-15, SES-16).

use super::error::SnapshotError;

/// Whether every snapshot has the component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Presence {
    /// Its absence is `missing_required_component`.
    Always,
    /// It is there once something uses it.
    WhenUsed,
}

/// Which logs of a component are keyed; the bytes of a log do not tell (section 18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyedLogs {
    /// Every log holds plain items.
    None,
    /// Every log is keyed.
    All,
    /// Every log is keyed, but for those at these JSON pointers.
    AllBut(&'static [&'static str]),
}

/// What is registered of a component: one codec per (owner, slot, schema).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ComponentSpec {
    /// Who encodes and decodes it.
    pub owner: &'static str,
    /// Its place in the snapshot.
    pub slot: &'static str,
    /// The id of its payload's schema.
    pub schema: &'static str,
    /// The flag that stands in its descriptor.
    pub required: bool,
    /// Whether every snapshot has it.
    pub presence: Presence,
    /// Which of its logs are keyed.
    pub keyed: KeyedLogs,
}

const fn spec(
    owner: &'static str,
    slot: &'static str,
    schema: &'static str,
    required: bool,
    presence: Presence,
    keyed: KeyedLogs,
) -> ComponentSpec {
    ComponentSpec {
        owner,
        slot,
        schema,
        required,
        presence,
        keyed,
    }
}

impl ComponentSpec {
    /// The agent's own state: `agent_id`, `state_schema`, `state`.
    pub const AGENT_STATE: ComponentSpec = spec(
        "qitos.session",
        "agent_state",
        "qitos.session.agent_state/v1",
        true,
        Presence::Always,
        KeyedLogs::None,
    );
    /// Where the engine stands.
    pub const ENGINE_PROGRESS: ComponentSpec = spec(
        "qitos.session",
        "engine_progress",
        "qitos.session.engine_progress/v1",
        true,
        Presence::Always,
        KeyedLogs::None,
    );
    /// Budgets and what is used of them (SES-65).
    pub const BUDGET_CAPABILITY: ComponentSpec = spec(
        "qitos.session",
        "budget_capability",
        "qitos.session.budget_capability/v1",
        true,
        Presence::Always,
        KeyedLogs::None,
    );
    /// Run, parent run, and whether the trace is complete.
    pub const TRACE_LINEAGE: ComponentSpec = spec(
        "qitos.session",
        "trace_lineage",
        "qitos.session.trace_lineage/v1",
        true,
        Presence::Always,
        KeyedLogs::None,
    );
    /// Where a forked session came from.
    pub const FORK_LINEAGE: ComponentSpec = spec(
        "qitos.session",
        "fork_lineage",
        "qitos.session.fork_lineage/v1",
        false,
        Presence::WhenUsed,
        KeyedLogs::None,
    );
    /// The exchange log and what belongs to it.
    pub const CONVERSATION: ComponentSpec = spec(
        "qitos.conversation",
        "conversation",
        "qitos.conversation_component/v1",
        true,
        Presence::Always,
        KeyedLogs::AllBut(&["/exchange_log/items"]),
    );
    /// The open batch: slots, intents, approval requests.
    pub const TOOL_BATCH: ComponentSpec = spec(
        "qitos.tool_runtime",
        "tool_batch",
        "qitos.tool_batch_component/v1",
        true,
        Presence::Always,
        KeyedLogs::All,
    );
    /// The work graph.
    pub const WORK_GRAPH: ComponentSpec = spec(
        "qitos.work_graph",
        "work_graph",
        "qitos.work_graph.snapshot_component/v3",
        true,
        Presence::WhenUsed,
        KeyedLogs::All,
    );
    /// Declared effects and their states.
    pub const TOOL_EFFECTS: ComponentSpec = spec(
        "qitos.effects",
        "tool_effects",
        "qitos.tool_effects_component/v1",
        true,
        Presence::WhenUsed,
        KeyedLogs::All,
    );
    /// What a sandbox is restored from.
    pub const SANDBOX: ComponentSpec = spec(
        "qitos.sandbox",
        "sandbox",
        "qitos.sandbox.snapshot_component/v1",
        true,
        Presence::WhenUsed,
        KeyedLogs::None,
    );

    /// The table of section 4, in its order.
    pub const STANDARD: [ComponentSpec; 10] = [
        ComponentSpec::AGENT_STATE,
        ComponentSpec::ENGINE_PROGRESS,
        ComponentSpec::BUDGET_CAPABILITY,
        ComponentSpec::TRACE_LINEAGE,
        ComponentSpec::FORK_LINEAGE,
        ComponentSpec::CONVERSATION,
        ComponentSpec::TOOL_BATCH,
        ComponentSpec::WORK_GRAPH,
        ComponentSpec::TOOL_EFFECTS,
        ComponentSpec::SANDBOX,
    ];

    /// Whether the log at `pointer` is keyed.
    #[must_use]
    pub fn is_keyed(&self, pointer: &str) -> bool {
        match self.keyed {
            KeyedLogs::None => false,
            KeyedLogs::All => true,
            KeyedLogs::AllBut(plain) => !plain.contains(&pointer),
        }
    }

    /// Owner and slot, the order of components in a snapshot.
    pub(crate) const fn place(&self) -> (&'static str, &'static str) {
        (self.owner, self.slot)
    }
}

/// The codecs that a reader knows (SES-16). Explicit; nothing registers itself.
#[derive(Clone, Debug)]
pub struct ComponentRegistry {
    specs: Vec<ComponentSpec>,
}

impl ComponentRegistry {
    /// The components of section 4.
    #[must_use]
    pub fn standard() -> Self {
        ComponentRegistry {
            specs: ComponentSpec::STANDARD.to_vec(),
        }
    }

    /// No component at all.
    #[must_use]
    pub const fn empty() -> Self {
        ComponentRegistry { specs: Vec::new() }
    }

    /// Adds `spec`, or replaces the one with the same owner, slot and schema.
    #[must_use]
    pub fn with(mut self, spec: ComponentSpec) -> Self {
        self.specs.retain(|known| {
            (known.owner, known.slot, known.schema) != (spec.owner, spec.slot, spec.schema)
        });
        self.specs.push(spec);
        self
    }

    /// The codec of a descriptor (SES-16).
    ///
    /// # Errors
    /// `unknown_component_owner`; `unsupported_component_schema` for a slot, schema or `required` flag that
    /// is not registered.
    pub fn resolve(
        &self,
        owner: &str,
        slot: &str,
        schema: &str,
        required: bool,
    ) -> Result<ComponentSpec, SnapshotError> {
        let mut of_owner = self
            .specs
            .iter()
            .filter(|spec| spec.owner == owner)
            .peekable();
        if of_owner.peek().is_none() {
            return Err(SnapshotError::UnknownComponentOwner {
                owner: owner.to_owned(),
            });
        }
        of_owner
            .find(|spec| spec.slot == slot && spec.schema == schema && spec.required == required)
            .copied()
            .ok_or_else(|| SnapshotError::UnsupportedComponentSchema {
                owner: owner.to_owned(),
                slot: slot.to_owned(),
                schema: schema.to_owned(),
            })
    }

    /// Checks that every component that each snapshot has is among `present` (owner, slot).
    ///
    /// # Errors
    /// `missing_required_component`.
    pub fn require<'place>(
        &self,
        present: impl Iterator<Item = (&'place str, &'place str)> + Clone,
    ) -> Result<(), SnapshotError> {
        for spec in &self.specs {
            let there = || present.clone().any(|place| place == spec.place());
            if spec.presence == Presence::Always && !there() {
                return Err(SnapshotError::MissingRequiredComponent {
                    owner: spec.owner,
                    slot: spec.slot,
                });
            }
        }
        Ok(())
    }
}

/// `[a-z][a-z0-9_.:-]{1,95}`, the form of slots, owners and capabilities.
pub(crate) fn is_name(text: &str) -> bool {
    (2..=96).contains(&text.len())
        && text
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_lowercase())
        && text.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.:-".contains(&byte)
        })
}

/// A name followed by `/v` and a number from 1.
pub(crate) fn is_schema_id(text: &str) -> bool {
    text.rsplit_once("/v").is_some_and(|(name, version)| {
        is_name(name)
            && (1..=9).contains(&version.len())
            && version.bytes().all(|byte| byte.is_ascii_digit())
            && !version.starts_with('0')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ContractError as _;

    #[test]
    fn ses_15_names_and_schema_ids_have_one_form() {
        for spec in ComponentSpec::STANDARD {
            assert!(is_name(spec.owner) && is_name(spec.slot) && is_schema_id(spec.schema));
        }
        assert!(is_name(&format!("a{}", "b".repeat(95))));
        for text in ["", "a", "A1", "1a", "a b", "aé", &"a".repeat(97)] {
            assert!(!is_name(text), "{text}");
        }
        for text in ["ab/v0", "ab/v01", "ab/v", "ab", "ab/v1x", "a/v1", "ab/w1"] {
            assert!(!is_schema_id(text), "{text}");
        }
    }

    #[test]
    fn ses_16_each_kind_of_unknown_component_has_its_code() {
        let registry = ComponentRegistry::standard();
        let code = |owner, slot, schema, required| {
            registry
                .resolve(owner, slot, schema, required)
                .map_err(|error| error.code().to_owned())
        };
        let spec = ComponentSpec::FORK_LINEAGE;
        assert_eq!(code(spec.owner, spec.slot, spec.schema, false), Ok(spec));
        assert_eq!(
            code("other.owner", spec.slot, spec.schema, false),
            Err("unknown_component_owner".into())
        );
        for (slot, schema, required) in [
            ("other", spec.schema, false),
            (spec.slot, "qitos.session.fork_lineage/v2", false),
            (spec.slot, spec.schema, true),
        ] {
            assert_eq!(
                code(spec.owner, slot, schema, required),
                Err("unsupported_component_schema".into())
            );
        }
        let present = ComponentSpec::STANDARD
            .iter()
            .filter(|spec| spec.presence == Presence::Always)
            .map(ComponentSpec::place);
        assert_eq!(registry.require(present.clone()), Ok(()));
        let error = registry.require(present.skip(1)).unwrap_err();
        assert_eq!(error.code(), "missing_required_component");
    }
}
