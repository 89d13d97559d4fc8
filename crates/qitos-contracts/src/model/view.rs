//! The request view: what one request asks, as a pure function of log, contributions, policies and target.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{ContinuationReference, Target};
use crate::canonical_json::{self, ObjectWriter};
use crate::context::ContextContribution;
use crate::digest::Digest;
use crate::ids::{BatchId, CallId, ItemId, RequestId};
use crate::log::{ItemBody, ItemList};

/// Who an instruction speaks as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstructionRole {
    /// The platform.
    System,
    /// The developer.
    Developer,
    /// The user.
    User,
}

impl InstructionRole {
    /// The word of the view.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            InstructionRole::System => "system",
            InstructionRole::Developer => "developer",
            InstructionRole::User => "user",
        }
    }
}

/// A fixed text in front of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instruction {
    /// Who speaks.
    pub role: InstructionRole,
    /// What is said.
    pub text: String,
}

/// One tool as shown to the model: wire name, description, schema (TXT-12).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSchema {
    /// Wire name.
    pub name: String,
    /// Description.
    pub description: String,
    /// Input schema as registered.
    pub input_schema: Value,
    /// The schema in the provider's strict form, if it has one (ARG-6).
    pub strict_schema: Option<Value>,
}

/// The tools of a run, sorted by name, shared by all its requests (CTX-49).
#[derive(Debug, Default)]
pub struct ToolSchemas {
    tools: Vec<ToolSchema>,
    units: u64,
    digest: Option<Digest>,
}

impl ToolSchemas {
    /// Sorts and measures `tools` once.
    #[must_use]
    pub fn new(mut tools: Vec<ToolSchema>) -> Self {
        tools.sort_by(|left, right| left.name.cmp(&right.name));
        let bytes = canonical_json::to_canonical(&tools).unwrap_or_default();
        let units = String::from_utf8_lossy(&bytes).chars().count() as u64;
        ToolSchemas {
            tools,
            units,
            digest: Some(Digest::of(&bytes)),
        }
    }

    /// The tools.
    #[must_use]
    pub fn tools(&self) -> &[ToolSchema] {
        &self.tools
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Units of the list (CTX-16); an empty list counts 2.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units.max(2)
    }

    /// Digest of the canonical list: segment L0 (CTX-51).
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest.unwrap_or_else(|| Digest::of(b"[]"))
    }
}

/// What becomes of earlier reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningMode {
    /// Sent back where the target takes it.
    #[default]
    PreserveIfSupported,
    /// Never sent back.
    Drop,
    /// Sent back inline.
    InlineReplay,
    /// Sent back with signatures.
    SignedBlockReplay,
    /// Kept by the provider.
    NativeItemContinuation,
}

/// Reasoning mode and whether losing it is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReasoningPolicy {
    /// The mode.
    pub mode: ReasoningMode,
    /// Reasoning may be dropped with a declared loss.
    pub allow_loss: bool,
}

impl Default for ReasoningPolicy {
    fn default() -> Self {
        ReasoningPolicy {
            mode: ReasoningMode::PreserveIfSupported,
            allow_loss: true,
        }
    }
}

/// Whether and when tools must be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolUsePolicy {
    /// As the model likes.
    #[default]
    Auto,
    /// The next decision must call one.
    RequiredForNextDecision,
    /// One must have been called before the answer.
    RequiredBeforeFinal,
    /// None may be called.
    Disabled,
}

/// What units count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitKind {
    /// Unicode scalar values of canonical JSON.
    #[default]
    Characters,
    /// Tokens, exact or estimated.
    Tokens,
}

/// How much fits into a request (section 3 of the context specification).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextBudget {
    /// Declared capacity.
    pub max_input_units: u64,
    /// Kept free for the answer.
    pub reserved_output_units: u64,
    /// The difference.
    pub available_input_units: u64,
    /// What is counted.
    pub unit: UnitKind,
    /// Newest exchanges that are never left out.
    pub protected_recent_exchanges: u64,
}

impl Default for ContextBudget {
    fn default() -> Self {
        ContextBudget {
            max_input_units: 120_000,
            reserved_output_units: 8_000,
            available_input_units: 112_000,
            unit: UnitKind::Characters,
            protected_recent_exchanges: 1,
        }
    }
}

/// Which log the view was built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewSource {
    /// The log.
    pub exchange_log_id: Arc<str>,
    /// Its chain (CTX-23).
    pub exchange_log_digest: Digest,
    /// Position in the log of the first selected item.
    pub first_item: u64,
}

/// What was selected and left out, in numbers; the id lists follow from the items (CTX-23).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectionReport {
    /// Contributions in the request.
    pub selected_context_ids: Vec<String>,
    /// Contributions left out, with the reason.
    pub omitted_context_ids: Vec<String>,
    /// Items of the log that are left out: all before the first selected one.
    pub omitted_items: u64,
    /// Units of everything.
    pub total_units: u64,
    /// Units of what was selected.
    pub selected_units: u64,
    /// Units of what was left out.
    pub omitted_units: u64,
    /// Reasons, first `exchange_safe_budget_selection`.
    pub reasons: Vec<String>,
}

/// Where steering stood when the view was built (CTX-26).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteeringBoundary {
    /// `closed` or `queued`.
    pub state: String,
    /// Steering that waits.
    pub queued_item_ids: Vec<ItemId>,
}

/// Both orders of one batch (LOG-12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrelationFacts {
    /// The batch.
    pub batch_id: BatchId,
    /// Calls as declared.
    pub declaration_order: Vec<CallId>,
    /// Calls as they completed.
    pub completion_order: Vec<CallId>,
    /// Scopes in declaration order.
    pub provider_scopes: Vec<Arc<str>>,
}

/// Digests of the cache-stable prefix (CTX-51).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixDigests {
    /// L0: tool schemas.
    pub tools: Digest,
    /// L1: instructions.
    pub instructions: Digest,
    /// L2: stable contributions.
    pub contributions: Digest,
    /// L4: chain of the selected items.
    pub items: Digest,
}

/// `qitos.request_view/v2`: one request, before any dialect.
///
/// # Contract
/// Immutable; a pure function of log, contributions, policies and target (CTX-23, CTX-54). Holds no secret,
/// no host path, no opaque continuation bytes (PRV-11). The same inputs give the same `view_digest`.
#[derive(Clone, Debug)]
pub struct RequestView {
    /// `request_` + 24 hex of `view_digest`, made unique in the session by its ordinal.
    pub request_id: RequestId,
    /// Whom it is for.
    pub target: Arc<Target>,
    /// The log it was built from.
    pub source: ViewSource,
    /// Items in log order.
    pub items: ItemList,
    /// Fixed texts.
    pub instructions: Arc<[Instruction]>,
    /// Tools.
    pub tool_schemas: Arc<ToolSchemas>,
    /// Contributions, in selection order.
    pub contributions: Vec<Arc<ContextContribution>>,
    /// What the target must be able to do (CTX-27).
    pub capability_requirements: Vec<String>,
    /// Reasoning.
    pub reasoning_policy: ReasoningPolicy,
    /// Provider-side state.
    pub continuation: Option<ContinuationReference>,
    /// Capacity.
    pub context_budget: ContextBudget,
    /// What was selected.
    pub selection: SelectionReport,
    /// Receipts of compaction.
    pub compaction_receipts: Vec<String>,
    /// Steering that waits.
    pub steering_boundary: SteeringBoundary,
    /// Text protocol of the run.
    pub protocol_id: Arc<str>,
    /// Tool policy of the run.
    pub tool_use_policy: ToolUsePolicy,
    /// The policy is satisfied already.
    pub tool_use_satisfied: bool,
    /// Output tokens asked for, if the agent asks for any.
    pub max_output_tokens: Option<u64>,
    /// Prefix digests.
    pub prefix_digests: PrefixDigests,
    /// Identity of the view (CTX-23).
    pub view_digest: Digest,
}

impl RequestView {
    /// Schema id.
    pub const SCHEMA: &'static str = "qitos.request_view/v2";

    /// Both orders of every batch among the items, derived (LOG-12). Costs a step per item.
    #[must_use]
    pub fn correlation_facts(&self) -> Vec<CorrelationFacts> {
        let mut facts: Vec<CorrelationFacts> = Vec::new();
        for item in self.items.iter() {
            match &item.item().body {
                ItemBody::Assistant(assistant) => {
                    let mut calls = assistant.calls().peekable();
                    if let Some(first) = calls.peek() {
                        let batch_id = first.batch_id.clone();
                        let (declaration_order, provider_scopes) = calls
                            .map(|call| (call.call_id.clone(), Arc::clone(&call.provider_scope)))
                            .unzip();
                        facts.push(CorrelationFacts {
                            batch_id,
                            declaration_order,
                            completion_order: Vec::new(),
                            provider_scopes,
                        });
                    }
                }
                ItemBody::ToolResult(result) => {
                    if let Some(last) = facts
                        .last_mut()
                        .filter(|last| last.batch_id == result.batch_id)
                    {
                        last.completion_order.push(result.call_id.clone());
                    }
                }
                ItemBody::User(_) | ItemBody::Steering(_) => {}
            }
        }
        facts
    }

    /// The canonical head of the view: everything but items and ids, items by their chain (CTX-23).
    #[must_use]
    pub fn identity_bytes(&self) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(768);
        let mut object = ObjectWriter::new(&mut buffer);
        object
            .key("capability_requirements")
            .strings(&self.capability_requirements);
        object
            .key("compaction_receipts")
            .strings(&self.compaction_receipts);
        // The remaining records are small and made of plain values; serialising them cannot fail.
        let _ = object.key("context_budget").serialize(&self.context_budget);
        let contributions: Vec<String> = self
            .contributions
            .iter()
            .map(|contribution| contribution.digest.to_hex())
            .collect();
        object.key("context_contributions").strings(&contributions);
        let _ = object.key("continuation").serialize(&self.continuation);
        object
            .key("instructions")
            .digest(&self.prefix_digests.instructions);
        object.key("items").digest(&self.prefix_digests.items);
        object
            .key("max_output_tokens")
            .optional_u64(self.max_output_tokens);
        object.key("protocol_id").str(&self.protocol_id);
        let _ = object
            .key("reasoning_policy")
            .serialize(&self.reasoning_policy);
        let mut selection = object.key("selection").object();
        selection
            .key("omitted_items")
            .u64(self.selection.omitted_items);
        selection
            .key("selected_units")
            .u64(self.selection.selected_units);
        selection.key("total_units").u64(self.selection.total_units);
        selection.end();
        object
            .key("source")
            .digest(&self.source.exchange_log_digest);
        let _ = object
            .key("steering_boundary")
            .serialize(&self.steering_boundary);
        let _ = object.key("target").serialize(&*self.target);
        object
            .key("tool_schemas")
            .digest(&self.prefix_digests.tools);
        let _ = object
            .key("tool_use_policy")
            .serialize(&self.tool_use_policy);
        object
            .key("tool_use_satisfied")
            .bool(self.tool_use_satisfied);
        object.end();
        buffer
    }

    /// The view as JSON, lists that follow from the items included; for inspection, not for hot paths.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let items: Vec<Value> = self
            .items
            .iter()
            .filter_map(|item| {
                let mut bytes = Vec::new();
                item.item().write_canonical(&mut bytes).ok()?;
                serde_json::from_slice(&bytes).ok()
            })
            .collect();
        let correlation: Vec<Value> = self
            .correlation_facts()
            .into_iter()
            .map(|facts| {
                json!({
                    "batch_id": facts.batch_id,
                    "declaration_order": facts.declaration_order,
                    "completion_order": facts.completion_order,
                    "provider_scopes": facts.provider_scopes.iter().map(|scope| &**scope).collect::<Vec<_>>(),
                })
            })
            .collect();
        let selected: Vec<&str> = self
            .items
            .iter()
            .map(|item| item.item().item_id.as_str())
            .collect();
        let mut map = Map::new();
        map.insert("schema_version".into(), json!(Self::SCHEMA));
        map.insert("request_id".into(), json!(self.request_id));
        map.insert("target".into(), json!(&*self.target));
        map.insert(
            "source".into(),
            json!({
                "exchange_log_id": &*self.source.exchange_log_id,
                "exchange_log_digest": self.source.exchange_log_digest,
            }),
        );
        map.insert("selected_items".into(), Value::Array(items));
        map.insert("selected_item_ids".into(), json!(selected));
        map.insert("instructions".into(), json!(&*self.instructions));
        map.insert("tool_schemas".into(), json!(self.tool_schemas.tools()));
        map.insert(
            "context_contributions".into(),
            json!(self.contributions.iter().map(|c| &**c).collect::<Vec<_>>()),
        );
        map.insert(
            "capability_requirements".into(),
            json!(self.capability_requirements),
        );
        map.insert("reasoning_policy".into(), json!(self.reasoning_policy));
        map.insert("continuation".into(), json!(self.continuation));
        map.insert("context_budget".into(), json!(self.context_budget));
        map.insert("selection".into(), json!(self.selection));
        map.insert(
            "compaction_receipts".into(),
            json!(self.compaction_receipts),
        );
        map.insert("steering_boundary".into(), json!(self.steering_boundary));
        map.insert("correlation_facts".into(), Value::Array(correlation));
        map.insert("protocol_id".into(), json!(&*self.protocol_id));
        map.insert("tool_use_policy".into(), json!(self.tool_use_policy));
        map.insert("tool_use_satisfied".into(), json!(self.tool_use_satisfied));
        map.insert("view_digest".into(), json!(self.view_digest));
        Value::Object(map)
    }
}
