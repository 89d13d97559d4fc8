//! The root and the sections around the engine.

use serde_json::{Map, Value};

use super::agent::{Agent, AgentEdit, Model, ModelEdit, Tools, ToolsEdit};
use super::runtime::{Runtime, RuntimeEdit};
use crate::document::{Kind, Node};
use crate::field::{Field, Shape, Text, WhenAbsent};

section! {
    /// `budgets`: what a run may use.
    #[derive(Default)]
    Budgets, BudgetsEdit {
        /// The most steps begun.
        integer max_steps = "max_steps": Shape::Integer { min: 1, max: None, nullable: false }, WhenAbsent::Required;
        /// The most requests handed to the provider, failed ones included.
        integer max_requests = "max_requests": Shape::Integer { min: 1, max: None, nullable: false }, WhenAbsent::Integer(12);
        /// The most active time, in seconds, summed across restores.
        number max_runtime_seconds = "max_runtime_seconds": Shape::Number { min: 0.001, max: None, nullable: false }, WhenAbsent::Number(600.0);
        /// The most tokens; null is not bounded.
        opt_integer max_tokens = "max_tokens": Shape::Integer { min: 1, max: None, nullable: true }, WhenAbsent::Null;
        /// The most tool calls; null is not bounded.
        opt_integer max_tool_calls = "max_tool_calls": Shape::Integer { min: 1, max: None, nullable: true }, WhenAbsent::Null;
    }
}

const COUNT: Shape = Shape::Integer {
    min: 1,
    max: None,
    nullable: false,
};
const OPTIONAL_COUNT: Shape = Shape::Integer {
    min: 1,
    max: None,
    nullable: true,
};
const RATIO: Shape = Shape::Number {
    min: 0.0,
    max: Some(1.0),
    nullable: false,
};

section! {
    /// `context`: what the model is shown; what is not written is decided by the context factory.
    #[derive(Default)]
    ContextSettings, ContextEdit {
        /// Manage the context at all.
        opt_flag enabled = "enabled": Shape::Flag, WhenAbsent::Absent;
        /// Compact when the provider refuses a request for its size.
        opt_flag reactive_compact = "reactive_compact": Shape::Flag, WhenAbsent::Absent;
        /// Warn about, then block, repeated identical calls.
        opt_flag tool_call_loop_detection_enabled = "tool_call_loop_detection_enabled": Shape::Flag, WhenAbsent::Absent;
        /// Fail when the context cannot be made to fit.
        opt_flag strict_overflow = "strict_overflow": Shape::Flag, WhenAbsent::Absent;
        /// Show the use of the context to a person.
        opt_flag show_ui = "show_ui": Shape::Flag, WhenAbsent::Absent;
        /// Accept a codec that drops parts of a view, and record the loss.
        opt_flag allow_codec_loss = "allow_codec_loss": Shape::Flag, WhenAbsent::Absent;
        /// The least reserve kept free, in tokens.
        opt_integer min_safety_reserve_tokens = "min_safety_reserve_tokens": COUNT, WhenAbsent::Absent;
        /// The context's size when neither model nor configuration says it, in tokens.
        opt_integer default_context_window = "default_context_window": COUNT, WhenAbsent::Absent;
        /// The most characters of one tool result.
        opt_integer tool_result_max_chars = "tool_result_max_chars": COUNT, WhenAbsent::Absent;
        /// The most characters of the tool results of one message.
        opt_integer tool_result_per_message_max_chars = "tool_result_per_message_max_chars": COUNT, WhenAbsent::Absent;
        /// The most rounds of the conversation that are shown.
        opt_integer conversation_max_rounds = "conversation_max_rounds": COUNT, WhenAbsent::Absent;
        /// How often a call may repeat before it is warned about.
        opt_integer loop_max_repeats = "loop_max_repeats": COUNT, WhenAbsent::Absent;
        /// The most handoffs between agents.
        opt_integer max_handoffs = "max_handoffs": COUNT, WhenAbsent::Absent;
        /// A fixed reserve, in tokens; null takes the ratio.
        opt_integer safety_reserve_tokens = "safety_reserve_tokens": OPTIONAL_COUNT, WhenAbsent::Absent;
        /// Warn when so much of the context is used.
        opt_number warning_ratio = "warning_ratio": RATIO, WhenAbsent::Absent;
        /// Compact when so much of the context is used.
        opt_number compact_ratio = "compact_ratio": RATIO, WhenAbsent::Absent;
        /// Compact down to so much of the context.
        opt_number target_utilization = "target_utilization": RATIO, WhenAbsent::Absent;
        /// The reserve as a part of the context.
        opt_number safety_reserve_ratio = "safety_reserve_ratio": RATIO, WhenAbsent::Absent;
        /// Registered contributors, each once; their order is kept.
        texts contributors = "contributors": Shape::Texts { item: Text::Name, unique: true }, WhenAbsent::EmptyList;
        /// The registered selector.
        text selector = "selector": Shape::Text(Text::Name), WhenAbsent::Text("default");
        /// The registered budget policy.
        text budget_policy = "budget_policy": Shape::Text(Text::Name), WhenAbsent::Text("default");
        /// The registered artifact resolver.
        text artifact_resolver = "artifact_resolver": Shape::Text(Text::Name), WhenAbsent::Text("default");
        /// The registered continuation resolver.
        text continuation_resolver = "continuation_resolver": Shape::Text(Text::Name), WhenAbsent::Text("default");
    }
}

section! {
    /// `memory`: one provider, or a list of sources.
    #[derive(Default)]
    Memory, MemoryEdit {
        /// One registered memory.
        opt_text provider = "provider": Shape::Text(Text::Name), WhenAbsent::Absent;
        /// Registered sources, each once; not together with a provider.
        texts sources = "sources": Shape::Texts { item: Text::Name, unique: true }, WhenAbsent::EmptyList;
    }
}

section! {
    /// `compaction`: how a full context is made smaller; nothing chosen is no compaction.
    #[derive(Default)]
    Compaction, CompactionEdit {
        /// The registered compactor.
        opt_text provider = "provider": Shape::Text(Text::Name), WhenAbsent::Absent;
    }
}

section! {
    /// `lifecycle`: how a run is paused and cancelled.
    #[derive(Default)]
    Lifecycle, LifecycleEdit {
        /// The registered policy.
        text policy = "policy": Shape::Text(Text::Name), WhenAbsent::Text("cooperative");
    }
}

choices! {
    /// What a failed tool call means.
    ToolFailure {
        Continue = "continue" "The model is told, the run goes on.",
        FailClosed = "fail_closed" "The run stops at the first execution error or unknown outcome.",
    }
}

choices! {
    /// What a broken response stream means.
    ProviderStreamFailure {
        Stop = "stop" "The run ends.",
        Retry = "retry" "A new attempt, within bounds, unless a person has seen part of the answer.",
    }
}

section! {
    /// `failure_policy`: when a run stops.
    #[derive(Default)]
    FailurePolicy, FailurePolicyEdit {
        /// What a failed tool call means.
        choice<ToolFailure> tool = "tool": Shape::Choice(ToolFailure::WORDS), WhenAbsent::Text("continue");
        /// What a broken response stream means.
        choice<ProviderStreamFailure> provider_stream = "provider_stream": Shape::Choice(ProviderStreamFailure::WORDS), WhenAbsent::Text("stop");
    }
}

section! {
    /// `evaluation`: how results are judged by `qit bench`.
    #[derive(Default)]
    Evaluation, EvaluationEdit {
        /// Registered evaluators, each once.
        texts evaluators = "evaluators": Shape::Texts { item: Text::Name, unique: true }, WhenAbsent::EmptyList;
    }
}

/// One task of the data set.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetItem {
    task: String,
    #[serde(default)]
    expected: Option<Value>,
    #[serde(default)]
    metadata: Map<String, Value>,
}

impl DatasetItem {
    /// An item that only says what to do.
    #[must_use]
    pub fn new(task: impl Into<String>) -> Self {
        DatasetItem {
            task: task.into(),
            expected: None,
            metadata: Map::new(),
        }
    }

    /// Adds what a right answer is.
    #[must_use]
    pub fn with_expected(mut self, expected: Value) -> Self {
        self.expected = Some(expected);
        self
    }

    /// Adds free data about the item.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = metadata;
        self
    }

    /// What to do; not blank.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.task
    }

    /// What a right answer is, in the form its evaluator wants.
    #[must_use]
    pub const fn expected(&self) -> Option<&Value> {
        self.expected.as_ref()
    }

    /// Free data about the item.
    #[must_use]
    pub const fn metadata(&self) -> &Map<String, Value> {
        &self.metadata
    }

    pub(crate) fn to_node(&self) -> Node {
        let mut node = Node::empty_mapping();
        node.set("task", Node::from_code(Kind::Quoted(self.task.clone())));
        if let Some(expected) = &self.expected {
            node.set("expected", Node::from_json(expected));
        }
        if !self.metadata.is_empty() {
            node.set("metadata", Node::from_map(&self.metadata));
        }
        node
    }
}

/// The schema id that is written.
pub(crate) const SCHEMA: &str = "qitos.agent";
/// The older schema id that is read with a receipt (CFG-9).
pub(crate) const SCHEMA_V1: &str = "qitos.agent/v1";

section! {
    /// The root of `agent.yaml`.
    #[derive(Default)]
    Sections, RootEdit {
        /// The schema id: qitos.agent; qitos.agent/v1 is read and converted.
        text schema = "schema": Shape::Choice(&[SCHEMA, SCHEMA_V1]), WhenAbsent::Required;
        /// Who acts and how its text is read.
        section<Agent, AgentEdit> agent = "agent": Shape::Section(Agent::fields), WhenAbsent::Required;
        /// Which model answers.
        section<Model, ModelEdit> model = "model": Shape::Section(Model::fields), WhenAbsent::Required;
        /// What the agent can do.
        section<Tools, ToolsEdit> tools = "tools": Shape::Section(Tools::fields), WhenAbsent::Required;
        /// Where the agent runs and what is kept of it.
        section<Runtime, RuntimeEdit> runtime = "runtime": Shape::Section(Runtime::fields), WhenAbsent::Required;
        /// What a run may use.
        section<Budgets, BudgetsEdit> budgets = "budgets": Shape::Section(Budgets::fields), WhenAbsent::Required;
        /// What the model is shown.
        section<ContextSettings, ContextEdit> context = "context": Shape::Section(ContextSettings::fields), WhenAbsent::Section;
        /// What the agent remembers across sessions.
        section<Memory, MemoryEdit> memory = "memory": Shape::Section(Memory::fields), WhenAbsent::Section;
        /// How a full context is made smaller.
        section<Compaction, CompactionEdit> compaction = "compaction": Shape::Section(Compaction::fields), WhenAbsent::Section;
        /// How a run is paused and cancelled.
        section<Lifecycle, LifecycleEdit> lifecycle = "lifecycle": Shape::Section(Lifecycle::fields), WhenAbsent::Section;
        /// When a run stops.
        section<FailurePolicy, FailurePolicyEdit> failure_policy = "failure_policy": Shape::Section(FailurePolicy::fields), WhenAbsent::Section;
        /// How results are judged by `qit bench`.
        section<Evaluation, EvaluationEdit> evaluation = "evaluation": Shape::Section(Evaluation::fields), WhenAbsent::Section;
        /// Free data of the project; at most 64 KiB.
        map metadata = "metadata": Shape::FreeMap, WhenAbsent::EmptyMap;
        /// Tasks: strings, or mappings of task, expected and metadata.
        dataset dataset = "dataset": Shape::Dataset, WhenAbsent::EmptyList;
    }
}
