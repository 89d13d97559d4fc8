//! Building the request view: a pure function of log, contributions, policies and target (sections 2 to 4 of the
//! context specification).

use std::collections::BTreeSet;
use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, ContextError, Horizon};
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::RequestId;
use qitos_contracts::log::{Categories, ExchangeLog, ItemBody, ItemList};
use qitos_contracts::model::{
    ContextBudget, ContinuationReference, Instruction, PrefixDigests, ReasoningPolicy, RequestView,
    SelectionReport, SteeringBoundary, Target, ToolSchemas, ToolUsePolicy, UnitKind, ViewSource,
};

use crate::machine::ViewFacts;

/// How much of the history a request carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum History {
    /// All of it; what does not fit fails the request (CTX-31).
    #[default]
    Full,
    /// The newest whole exchanges of at most so many items. Leaving out the older ones is the host's explicit
    /// choice; every view says how many items it left out (CTX-12).
    Window(usize),
}

/// Fixed texts with the facts that requests need of them; rebuilt only when they change.
#[derive(Clone, Debug)]
pub(crate) struct Instructions {
    pub(crate) list: Arc<[Instruction]>,
    digest: Digest,
    units: u64,
}

impl Instructions {
    pub(crate) fn new(list: Vec<Instruction>) -> Self {
        let bytes = qitos_contracts::canonical_json::to_canonical(&list).unwrap_or_default();
        let units = String::from_utf8_lossy(&bytes).chars().count() as u64;
        Instructions {
            list: list.into(),
            digest: Digest::of(&bytes),
            units,
        }
    }
}

/// Everything that does not change between the requests of a run.
#[derive(Clone, Debug)]
pub(crate) struct ViewPolicy {
    pub(crate) target: Arc<Target>,
    pub(crate) budget: ContextBudget,
    pub(crate) tool_schemas: Arc<ToolSchemas>,
    pub(crate) protocol_id: Arc<str>,
    pub(crate) tool_use_policy: ToolUsePolicy,
    pub(crate) reasoning: ReasoningPolicy,
    pub(crate) history: History,
    pub(crate) log_id: Arc<str>,
    pub(crate) output_tokens: u64,
}

impl ViewPolicy {
    /// Whom requests are for.
    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }
}

/// What changes from request to request.
#[derive(Debug)]
pub(crate) struct ViewInputs<'a> {
    pub(crate) log: &'a ExchangeLog,
    pub(crate) instructions: &'a Instructions,
    pub(crate) contributions: Vec<Arc<ContextContribution>>,
    pub(crate) tool_used: bool,
    pub(crate) max_output_tokens: Option<u64>,
}

/// Builds a view and what admission needs to know of it.
pub(crate) fn build(
    policy: &ViewPolicy,
    inputs: ViewInputs<'_>,
) -> Result<(RequestView, ViewFacts), ContextError> {
    let log = inputs.log;
    let (items, first_item) = select_items(log, policy.history);
    let chain = if first_item == 0 {
        log.chain()
    } else {
        chain_of(&items)
    };
    let fixed = inputs.instructions.units + policy.tool_schemas.units();
    let history_units = items.units();
    let available = policy.budget.available_input_units.saturating_sub(fixed);
    if scaled(history_units, policy.budget.unit) > available {
        return Err(ContextError::BudgetExceeded {
            required: scaled(history_units, policy.budget.unit) + fixed,
            available: policy.budget.available_input_units,
        });
    }
    let (contributions, mut selection) = select_contributions(
        inputs.contributions,
        available - scaled(history_units, policy.budget.unit),
    )?;
    selection.omitted_items = first_item;
    selection.selected_units += fixed + history_units;
    selection.total_units += fixed + history_units;
    let stable: Vec<&[u8]> = contributions
        .iter()
        .filter(|contribution| contribution.persistence_horizon != Horizon::Request)
        .map(|contribution| contribution.digest.as_bytes().as_slice())
        .collect();
    let prefix_digests = PrefixDigests {
        tools: policy.tool_schemas.digest(),
        instructions: inputs.instructions.digest,
        contributions: Digest::of_parts(&stable),
        items: chain,
    };
    let queue = log.queue();
    let mut view = RequestView {
        request_id: RequestId::of_view(&Digest::ZERO),
        target: Arc::clone(&policy.target),
        source: ViewSource {
            exchange_log_id: Arc::clone(&policy.log_id),
            exchange_log_digest: log.chain(),
            first_item,
        },
        capability_requirements: requirements(items.categories(), policy),
        continuation: newest_state(&items, &policy.target),
        items,
        instructions: Arc::clone(&inputs.instructions.list),
        tool_schemas: Arc::clone(&policy.tool_schemas),
        contributions,
        reasoning_policy: policy.reasoning,
        context_budget: policy.budget,
        selection,
        compaction_receipts: Vec::new(),
        steering_boundary: SteeringBoundary {
            state: if queue.is_empty() { "closed" } else { "queued" }.into(),
            queued_item_ids: queue.iter().map(|queued| queued.item_id.clone()).collect(),
        },
        protocol_id: Arc::clone(&policy.protocol_id),
        tool_use_policy: policy.tool_use_policy,
        tool_use_satisfied: inputs.tool_used,
        max_output_tokens: inputs.max_output_tokens,
        prefix_digests,
        view_digest: Digest::ZERO,
    };
    view.view_digest = Digest::of(&view.identity_bytes());
    view.request_id = RequestId::of_view(&view.view_digest);
    let units = view.selection.selected_units;
    let facts = ViewFacts {
        request_id: view.request_id.clone(),
        view_digest: view.view_digest,
        first_item,
        input_tokens: units.div_ceil(4).max(1),
        output_tokens: inputs.max_output_tokens.unwrap_or(policy.output_tokens),
    };
    Ok((view, facts))
}

/// Units of `characters` in the budget's own unit (CTX-17: a quarter, rounded up).
fn scaled(characters: u64, unit: UnitKind) -> u64 {
    match unit {
        UnitKind::Characters => characters,
        UnitKind::Tokens => characters.div_ceil(4).max(1),
    }
}

/// The selected items and the position of the first: whole exchanges only (LOG-10).
fn select_items(log: &ExchangeLog, history: History) -> (ItemList, u64) {
    let items = log.items();
    let History::Window(limit) = history else {
        return (items.clone(), 0);
    };
    // Provider state stands for what came before it, so nothing before it may be left out (CTX-36, section 5).
    if items.len() <= limit || items.categories().continuation {
        return (items.clone(), 0);
    }
    let mut start = items.len() - limit;
    // Forward to where an exchange begins, so that no result stands without its call.
    let exchange_before = start.checked_sub(1).and_then(|before| items.get(before));
    if let Some(before) = exchange_before {
        while items
            .get(start)
            .is_some_and(|item| item.item().exchange_id == before.item().exchange_id)
        {
            start += 1;
        }
    }
    if start >= items.len() {
        // The newest exchange alone is longer than the window: it is protected and goes whole.
        let newest = items.last().map(|item| item.item().exchange_id.clone());
        start = items.len();
        while start > 0
            && items.get(start - 1).map(|item| &item.item().exchange_id) == newest.as_ref()
        {
            start -= 1;
        }
    }
    (items.suffix(start), start as u64)
}

/// The newest answer's provider state, if it has one and the target can use it (PRV-29).
///
/// State of another target is not an error: the session goes on with another model, and the codec declares the loss.
fn newest_state(items: &ItemList, target: &Target) -> Option<ContinuationReference> {
    let newest = items
        .iter()
        .rev()
        .find_map(|item| match &item.item().body {
            ItemBody::Assistant(answer) => Some(answer),
            _ => None,
        })?;
    newest
        .continuation_attachments
        .iter()
        .map(|attachment| &attachment.reference)
        .find(|reference| reference.fits(target))
        .cloned()
}

fn chain_of(items: &ItemList) -> Digest {
    items
        .iter()
        .fold(Digest::ZERO, |chain, item| chain.chained(item.digest()))
}

/// Required first, then priority, then id; what does not fit is left out with its reason (CTX-9, CTX-12).
fn select_contributions(
    mut offered: Vec<Arc<ContextContribution>>,
    mut room: u64,
) -> Result<(Vec<Arc<ContextContribution>>, SelectionReport), ContextError> {
    let mut ids = BTreeSet::new();
    for contribution in &offered {
        if !ids.insert(contribution.contribution_id.clone()) {
            return Err(ContextError::Policy {
                contributor: contribution.contribution_id.clone(),
                reason: "two contributions have one id",
            });
        }
    }
    offered.sort_by(|left, right| {
        (right.required, right.priority)
            .cmp(&(left.required, left.priority))
            .then_with(|| left.contribution_id.cmp(&right.contribution_id))
    });
    let mut report = SelectionReport {
        reasons: vec![
            "exchange_safe_budget_selection".into(),
            "context_policy:qitos.context.priority/v1".into(),
        ],
        ..SelectionReport::default()
    };
    let mut selected = Vec::new();
    for contribution in offered {
        let bytes =
            qitos_contracts::canonical_json::to_bytes(&contribution.content).unwrap_or_default();
        let units = String::from_utf8_lossy(&bytes).chars().count() as u64;
        report.total_units += units;
        let fits = contribution.model_visible && units <= room;
        if fits {
            room -= units;
            report.selected_units += units;
            report
                .selected_context_ids
                .push(contribution.contribution_id.clone());
            selected.push(contribution);
        } else if contribution.required {
            return Err(ContextError::RequiredMissing {
                contribution: contribution.contribution_id.clone(),
            });
        } else {
            report.omitted_units += units;
            report
                .omitted_context_ids
                .push(contribution.contribution_id.clone());
        }
    }
    Ok((selected, report))
}

/// What the target must be able to do (CTX-27).
fn requirements(found: Categories, policy: &ViewPolicy) -> Vec<String> {
    let tools = !policy.tool_schemas.is_empty();
    [
        ("multimodal", found.multimodal),
        ("parallel_tool_calls", found.parallel_tool_calls && tools),
        ("reasoning", found.reasoning),
        ("tool_calls", tools),
        ("tool_results", found.tool_results),
        ("tool_schemas", tools),
    ]
    .into_iter()
    .filter(|(_, wanted)| *wanted)
    .map(|(name, _)| name.to_owned())
    .collect()
}
