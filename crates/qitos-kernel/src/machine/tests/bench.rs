//! A driver and a world of plain values around a machine.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use qitos_contracts::clock::Timestamp;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{AttemptId, RequestId, RunId, SessionId};
use qitos_contracts::log::{ContentBlock, ItemBody, ParseStatus};
use qitos_contracts::model::RequestSent;
use qitos_contracts::tool::result::{End, Refusal, RefusalStatus, ToolResult};
use qitos_contracts::tool::{DeclaredEffect, EffectClass, EffectKey, ErrorKind, Returned};
use serde_json::{Map, Value, json};

use crate::machine::state::{Admitted, Durable, Now, Phase, Slot, SlotState};
use crate::machine::*;
use crate::outcome::{Failure, FailureCategory};

pub(super) fn now() -> Now {
    Now {
        wall: Timestamp::from_micros(0),
        active_ms: 0,
    }
}

pub(super) fn create(policy: EnginePolicy, budget: Budget) -> Machine {
    let facts = Digest::of(b"session");
    let new = NewSession {
        session: SessionId::derived(&facts),
        run: RunId::derived(&facts),
        state: Arc::from(&b"0"[..]),
        task: vec![ContentBlock::text("task")],
        budget,
    };
    Machine::create(new, policy, false, now()).unwrap()
}

pub(super) fn parallel() -> EnginePolicy {
    EnginePolicy {
        mode: ExecutorMode::Parallel,
        ..EnginePolicy::default()
    }
}

pub(super) fn wide() -> Budget {
    Budget {
        max_steps: 1_000,
        ..Budget::default()
    }
}

/// A copy, as a store gives it back.
pub(super) fn copy(durable: &Durable) -> Durable {
    Durable {
        session: durable.session.clone(),
        run: durable.run.clone(),
        owner_generation: durable.owner_generation,
        lifecycle: durable.lifecycle,
        phase: durable.phase.clone(),
        step: durable.step,
        step_begun: durable.step_begun,
        state: Arc::clone(&durable.state),
        log: durable.log.clone(),
        counters: durable.counters.clone(),
        budget: durable.budget.clone(),
        cancel: durable.cancel,
        recent: durable.recent.clone(),
        effects: durable.effects.clone(),
        patch: durable.patch.clone(),
        last_stop: durable.last_stop.clone(),
    }
}

pub(super) fn call(id: &str, name: &str) -> AnswerPart {
    AnswerPart::Call(CallDraft {
        scope: "fake:chat".into(),
        call_id: Some(id.into()),
        name: name.into(),
        raw_arguments: "{}".into(),
        parsed_arguments: Some(Arc::new(json!({}))),
        parse_status: ParseStatus::Parsed,
        parse_error: None,
        metadata: Map::new(),
    })
}

pub(super) fn answer(parts: Vec<AnswerPart>, plan: Plan) -> ResponseOutcome {
    ResponseOutcome::Answer(Box::new(Answer {
        parts,
        continuation_attachments: Vec::new(),
        plan,
        usage: None,
        finish: "stop".into(),
        metadata: Map::new(),
    }))
}

/// Calls with ids that are unique for this `turn`.
pub(super) fn calls(turn: u64, names: &[&str]) -> ResponseOutcome {
    let parts = names
        .iter()
        .enumerate()
        .map(|(index, name)| call(&format!("c{turn}-{index}"), name));
    answer(parts.collect(), Plan::Act)
}

pub(super) fn text(text: &str, plan: Plan) -> ResponseOutcome {
    answer(vec![AnswerPart::Content(ContentBlock::text(text))], plan)
}

pub(super) fn done() -> ResponseOutcome {
    text("done", Plan::Final("done".into()))
}

pub(super) fn failed(retryable: bool, violation: bool, sent: RequestSent) -> ResponseOutcome {
    ResponseOutcome::Failed {
        failure: Failure::engine("x", FailureCategory::ModelError, "DECIDE", 0, "x"),
        retryable,
        violation,
        sent,
        usage: None,
        retry_after_ms: None,
        shown: false,
    }
}

pub(super) fn ok() -> End {
    End::Returned(Returned::Value(json!("ok")))
}

fn class_of(name: &str) -> EffectClass {
    let declared = |key, dedupe, reconcile| {
        EffectClass::Declared(DeclaredEffect {
            effect_ref: format!("{name}:1").parse().unwrap(),
            key,
            dedupe,
            reconcile,
        })
    };
    match name {
        "write" => EffectClass::Undeclared,
        "pay" => declared(EffectKey::PerSlot, false, false),
        "ask" => declared(EffectKey::PerSlot, false, true),
        "keyed" => declared(EffectKey::PerSlot, true, false),
        "invoice" => declared(EffectKey::Logical("invoice-7".into()), false, false),
        "insert" | "replace" => declared(EffectKey::Logical("row-1".into()), false, false),
        "upsert" | "charge" => declared(EffectKey::PerSlot, false, false),
        _ => EffectClass::Pure,
    }
}

/// What the gates say: `nobody` is no tool, `alone` may not overlap, `retry` and `charge` have three attempts for code
/// `again`;
/// `insert`, `replace` and `upsert` have effects and may overlap others.
pub(super) fn verdict(slot: &Slot) -> GateVerdict {
    let class = class_of(&slot.name);
    if &*slot.name == "nobody" {
        let refusal = Refusal {
            status: RefusalStatus::Error,
            kind: ErrorKind::Execution,
            code: "tool_not_found".into(),
            message: "there is no tool of this name".into(),
            recoverable: true,
            hint: None,
            metadata: Map::new(),
        };
        return GateVerdict::Refuse {
            tool: Arc::clone(&slot.name),
            class,
            refusal: Box::new(refusal),
        };
    }
    let key = match &class {
        EffectClass::Declared(declared) => Some(match &declared.key {
            EffectKey::Logical(key) => key.clone(),
            EffectKey::PerSlot => format!("idem:{}", slot.id),
        }),
        _ => None,
    };
    GateVerdict::Pass {
        admitted: Box::new(Admitted {
            tool: Arc::clone(&slot.name),
            args_digest: Digest::of(b"{}"),
            repeatable: class.is_pure(),
            concurrent: match &*slot.name {
                "insert" | "replace" | "upsert" => true,
                name => class.is_pure() && name != "alone",
            },
            class,
            key,
            max_attempts: if matches!(&*slot.name, "retry" | "charge") {
                3
            } else {
                1
            },
            retryable_codes: Arc::from(["again".to_owned()]),
            backoff_ms: 500,
            max_backoff_ms: 60_000,
            resume_with_key: true,
        }),
        args: Arc::new(json!({})),
    }
}

/// What left the process and has not come back.
#[derive(Default)]
pub(super) struct Out {
    pub(super) requests: Vec<u64>,
    pub(super) attempts: Vec<(u32, AttemptId)>,
    pub(super) stop: Vec<u32>,
    pub(super) reconcile: Vec<u32>,
    pub(super) retries: Vec<(u32, AttemptId)>,
    pub(super) sleeps: u32,
    pub(super) effects: Vec<Effect>,
}

pub(super) struct Bench {
    pub(super) machine: Machine,
    pub(super) out: Out,
    /// What is durable, and how many commits there were.
    pub(super) stored: Durable,
    pub(super) commits: u64,
    /// How often each slot was entered.
    pub(super) entered: BTreeMap<String, u32>,
    pub(super) sent: u64,
    reductions: u64,
    /// A commit at which the process dies, and whether that commit still counts.
    pub(super) death: Option<(u64, bool)>,
    pub(super) dead: bool,
}

impl Bench {
    pub(super) fn new(policy: EnginePolicy, budget: Budget) -> Self {
        let mut bench = Bench::around(create(policy, budget));
        bench.settle(VecDeque::from([Input::Start]));
        bench
    }

    fn around(machine: Machine) -> Self {
        Bench {
            stored: copy(machine.durable()),
            machine,
            out: Out::default(),
            commits: 0,
            entered: BTreeMap::new(),
            sent: 0,
            reductions: 0,
            death: None,
            dead: false,
        }
    }

    /// Gives an input and does everything that follows from it, as the driver does: commit, then perform.
    pub(super) fn give(&mut self, input: Input) -> &mut Self {
        self.settle(VecDeque::from([input]));
        self
    }

    fn settle(&mut self, mut ready: VecDeque<Input>) {
        while !self.dead && !ready.is_empty() {
            let mut outside = Vec::new();
            while let Some(input) = ready.pop_front() {
                for effect in self.machine.step(input, now()) {
                    match self.inside(&effect) {
                        Some(answer) => ready.push_back(answer),
                        None => outside.push(effect),
                    }
                }
            }
            if self.machine.take_delta().is_some() {
                self.commits += 1;
                match self.death {
                    Some((at, counts)) if at == self.commits => {
                        self.dead = true;
                        if counts {
                            self.stored = copy(self.machine.durable());
                        }
                        return;
                    }
                    _ => self.stored = copy(self.machine.durable()),
                }
            }
            for effect in outside {
                if let Some(input) = self.perform(&effect) {
                    ready.push_back(input);
                }
                self.out.effects.push(effect);
            }
        }
    }

    fn inside(&mut self, effect: &Effect) -> Option<Input> {
        Some(match effect {
            Effect::Decide => Input::Decided(Ok(None)),
            Effect::View => {
                let ordinal = self.machine.durable().counters.next_ordinal;
                let digest = Digest::of(format!("view {ordinal}").as_bytes());
                Input::Viewed(Ok(ViewFacts {
                    request_id: RequestId::of_view(&digest),
                    view_digest: digest,
                    first_item: 0,
                    input_tokens: 10,
                    output_tokens: 5,
                }))
            }
            Effect::Gate => Input::Gated(
                self.slots()
                    .iter()
                    .zip(0u32..)
                    .filter(|(slot, _)| matches!(slot.state, SlotState::Declared))
                    .map(|(slot, index)| (index, verdict(slot)))
                    .collect(),
            ),
            Effect::Reduce => {
                self.reductions += 1;
                let state = format!("{}", self.machine.durable().step);
                Input::Reduced(Ok(Reduction {
                    state: state.into_bytes().into(),
                    finish: None,
                    should_stop: false,
                }))
            }
            Effect::Judge => Input::Judged(Ok(Judgement::Continue)),
            _ => return None,
        })
    }

    fn perform(&mut self, effect: &Effect) -> Option<Input> {
        match effect {
            Effect::Request { ordinal } => {
                self.sent += 1;
                self.out.requests.push(*ordinal);
            }
            Effect::Dispatch { slot, attempt } => {
                let intent = match &self.stored.phase {
                    Phase::Acting(turn) => turn.batch.as_ref().map(|batch| &batch.slots),
                    _ => None,
                };
                let intent = intent.map(|slots| &slots[*slot as usize].state);
                // EXE-16: what is entered has a durable intent.
                assert!(
                    matches!(intent, Some(SlotState::Started(intent)) if intent.attempt_id == *attempt)
                );
                let id = self.slots()[*slot as usize].id.to_string();
                *self.entered.entry(id).or_default() += 1;
                self.out.attempts.push((*slot, attempt.clone()));
            }
            Effect::StopRequest => {
                let ordinal = self.out.requests.pop()?;
                return Some(Input::Responded {
                    ordinal,
                    outcome: Box::new(ResponseOutcome::Stopped {
                        sent: RequestSent::Maybe,
                    }),
                });
            }
            Effect::StopAttempt { slot } => self.out.stop.push(*slot),
            Effect::RetryLater { slot, attempt, .. } => {
                self.out.retries.push((*slot, attempt.clone()));
            }
            Effect::Sleep { .. } => self.out.sleeps += 1,
            Effect::Reconcile { slot } => self.out.reconcile.push(*slot),
            Effect::Continue => return Some(Input::Continue),
            _ => {}
        }
        None
    }

    pub(super) fn slots(&self) -> Vec<Slot> {
        match &self.machine.durable().phase {
            Phase::Acting(turn) => turn
                .batch
                .as_ref()
                .map(|batch| batch.slots.clone())
                .unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Answers the newest request.
    pub(super) fn respond(&mut self, outcome: ResponseOutcome) -> &mut Self {
        let ordinal = self.out.requests.pop().expect("a request is out");
        self.give(Input::Responded {
            ordinal,
            outcome: Box::new(outcome),
        })
    }

    /// Ends the running attempt of a slot.
    pub(super) fn end(&mut self, slot: u32, end: End) -> &mut Self {
        let at = self
            .out
            .attempts
            .iter()
            .position(|(index, _)| *index == slot);
        let (slot, attempt) = self.out.attempts.remove(at.expect("the slot runs"));
        self.give(ended(slot, &attempt, end))
    }

    pub(super) fn running(&self) -> Vec<u32> {
        self.out.attempts.iter().map(|(slot, _)| *slot).collect()
    }

    pub(super) fn steer(&mut self, text: &str) -> &mut Self {
        self.give(Input::Steer {
            item_id: None,
            content: vec![ContentBlock::text(text)],
        })
    }

    /// Forgets everything that is not durable and goes on as a new owner.
    pub(super) fn resume(&mut self) -> &mut Self {
        let mut durable = copy(&self.stored);
        durable.owner_generation += 1;
        let policy = self.machine.fixed.policy.clone();
        self.machine = Machine::from_durable(durable, policy, false, now());
        self.out = Out::default();
        self.dead = false;
        self.death = None;
        self.machine.recover(now());
        // The claim is a commit of its own.
        let _ = self.machine.take_delta();
        self.stored = copy(self.machine.durable());
        self.give(Input::Start)
    }

    /// The log as short words; results carry their endings.
    pub(super) fn log(&self) -> Vec<String> {
        self.machine
            .durable()
            .log
            .items()
            .iter()
            .map(|item| match &item.item().body {
                ItemBody::ToolResult(result) => {
                    format!("{}={}", result.call_id, ending(&result.result))
                }
                body => body.kind().to_owned(),
            })
            .collect()
    }

    pub(super) fn results(&self) -> BTreeMap<String, Arc<ToolResult>> {
        let mut found = BTreeMap::new();
        for item in self.machine.durable().log.items().iter() {
            if let ItemBody::ToolResult(result) = &item.item().body {
                let twice = found.insert(result.call_id.to_string(), Arc::clone(&result.result));
                assert!(twice.is_none(), "{} has two terminals", result.call_id);
            }
        }
        found
    }

    pub(super) fn ending_of(&self, call: &str) -> String {
        ending(&self.results()[call])
    }

    pub(super) fn stop_reason(&self) -> &'static str {
        self.machine
            .ended()
            .map_or("running", |end| end.stop_reason.as_str())
    }
}

pub(super) fn ended(slot: u32, attempt: &AttemptId, end: End) -> Input {
    Input::Ended {
        slot,
        attempt: attempt.clone(),
        end: Box::new(AttemptEnd { end, latency_ms: 1 }),
    }
}

pub(super) fn ending(result: &ToolResult) -> String {
    match result.error_code() {
        Some(code) => format!("{}/{code}", result.status()),
        None => result.status().to_string(),
    }
}

pub(super) fn value(result: &ToolResult) -> Value {
    result.output().clone()
}
