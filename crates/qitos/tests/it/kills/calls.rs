//! The calls that the program's model asks for, and the tools behind them: one for each effect class.

use std::sync::Arc;

use async_trait::async_trait;
use qitos::contracts::ids::{EffectRef, SlotId};
use qitos::models::scripted::{Answer, Step};
use qitos::tool::{
    CallCtx, DeclaredEffect, EffectClass, EffectDeclaration, EffectKey, EffectReport, Facts,
    Reconciled, Returned, Tool, ToolError, ToolSpec,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::program::{World, effects};

/// How a call behaves, and what the kernel is told about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Read-only.
    Look,
    /// `idempotent`, otherwise undeclared.
    Repeat,
    /// Declared; the backend drops repeats of its key.
    Keyed,
    /// Declared, once only.
    Once,
    /// Declared; the backend can be asked what became of it.
    Asked,
    /// Declared; the tool reports its effect as soon as it is done.
    Told,
    /// Undeclared.
    Blind,
}

impl Kind {
    pub(super) const ALL: [Kind; 7] = [
        Kind::Look,
        Kind::Repeat,
        Kind::Keyed,
        Kind::Once,
        Kind::Asked,
        Kind::Told,
        Kind::Blind,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Look => "look",
            Kind::Repeat => "repeat",
            Kind::Keyed => "keyed",
            Kind::Once => "once",
            Kind::Asked => "asked",
            Kind::Told => "told",
            Kind::Blind => "blind",
        }
    }
}

/// When a call waits for the one before it to have its terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wait {
    Never,
    /// Before its effect.
    Before,
    /// After its effect.
    After,
}

/// The calls of each answer of the model.
pub(super) fn plan() -> Vec<Vec<(Kind, Wait)>> {
    use Kind::{Asked, Blind, Keyed, Look, Once, Repeat, Told};
    let together = [Told, Look, Once, Keyed, Blind, Asked, Repeat];
    vec![
        vec![(Look, Wait::Never)],
        // These end one after the other: of the later one the effect is done by then, or has not begun.
        vec![
            (Once, Wait::Never),
            (Keyed, Wait::Before),
            (Blind, Wait::After),
            (Asked, Wait::Before),
            (Told, Wait::After),
            (Repeat, Wait::After),
            (Look, Wait::Before),
        ],
        // These end together, as far as three at a time allow it.
        together.map(|kind| (kind, Wait::Never)).to_vec(),
    ]
}

/// The id of a call.
pub(super) fn call_id(batch: usize, index: usize) -> String {
    format!("call_{batch}_{index}")
}

/// The model's n-th answer when it asks for these batches.
pub(super) fn answer(batches: &[usize], number: usize) -> Option<Step> {
    let Some(batch) = batches.get(number).copied() else {
        return (batches.len() == number).then(|| Step::answer(Answer::text("done")));
    };
    let mut answer = Answer::default();
    for (index, (kind, wait)) in plan()[batch].iter().enumerate() {
        let id = call_id(batch, index);
        let previous = call_id(batch, index.saturating_sub(1));
        let arguments = json!({"id": id, "previous": previous, "wait": wait});
        answer = answer.and_call(id, kind.name(), arguments.to_string());
    }
    Some(Step::answer(answer))
}

/// One arrival of an effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Arrival {
    pub(super) id: String,
    pub(super) key: Option<String>,
    pub(super) attempt: String,
}

#[derive(Debug)]
pub(super) struct Effectful {
    kind: Kind,
    spec: ToolSpec,
    world: Arc<World>,
}

impl Effectful {
    pub(super) fn new(kind: Kind, world: &Arc<World>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "previous": {"type": "string"},
                "wait": {"enum": ["Never", "Before", "After"]},
            },
            "required": ["id", "previous", "wait"],
            "additionalProperties": false,
        });
        let declared = |dedupe, reconcile| EffectDeclaration::Declared { dedupe, reconcile };
        let spec =
            ToolSpec::new(kind.name(), "Appends a line.", schema).with_concurrency_safe(true);
        let spec = match kind {
            Kind::Look => spec.read_only(),
            Kind::Repeat => spec.idempotent(),
            Kind::Keyed => spec.with_effect(declared(true, false)),
            Kind::Once | Kind::Told => spec.with_effect(declared(false, false)),
            Kind::Asked => spec.with_effect(declared(false, true)),
            Kind::Blind => spec,
        };
        Effectful {
            kind,
            spec,
            world: Arc::clone(world),
        }
    }
}

#[async_trait]
impl Tool for Effectful {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn validate(&self, _args: &Value) -> Result<(), ToolError> {
        Ok(())
    }

    fn effect(&self, args: &Value, _slot: &SlotId) -> Result<EffectClass, ToolError> {
        Ok(match self.spec.effect {
            EffectDeclaration::Pure => EffectClass::Pure,
            EffectDeclaration::Undeclared => EffectClass::Undeclared,
            EffectDeclaration::Declared { dedupe, reconcile } => {
                let name = format!("line:{}", args["id"].as_str().unwrap());
                EffectClass::Declared(DeclaredEffect {
                    effect_ref: name.parse().unwrap(),
                    key: EffectKey::PerSlot,
                    dedupe,
                    reconcile,
                })
            }
        })
    }

    fn needs_approval(&self, _args: &Value, _facts: &Facts) -> Result<bool, ToolError> {
        Ok(false)
    }

    async fn execute(&self, args: Arc<Value>, context: CallCtx) -> Result<Returned, ToolError> {
        let world = &self.world;
        let word = |key: &str| args[key].as_str().unwrap();
        let (id, previous, wait) = (word("id"), word("previous"), word("wait"));
        world.pass("tool");
        if wait == "Before" {
            world.ended(previous).await;
            world.pass("tool");
        }
        let arrival = Arrival {
            id: id.to_owned(),
            key: context.call.idempotency_key.clone(),
            attempt: context.call.attempt_id.to_string(),
        };
        let line = serde_json::to_string(&arrival).unwrap();
        world.append(&effects(&world.job.directory), &line);
        world.pass("tool");
        if self.kind == Kind::Told {
            let receipt = json!({"line": id});
            if context
                .report_effect(EffectReport::Committed, receipt)
                .await
                .is_err()
            {
                return Err(ToolError::new("not_told", "the report was not taken"));
            }
            world.pass("tool");
        }
        if wait == "After" {
            world.ended(previous).await;
            world.pass("tool");
        }
        Ok(Returned::Value(json!({"id": id})))
    }

    async fn reconcile(&self, effect: &EffectRef, _key: &str) -> Reconciled {
        self.world.pass("tool");
        let id = effect.as_str().trim_start_matches("line:");
        let found = std::fs::read_to_string(effects(&self.world.job.directory)).unwrap_or_default();
        if found.contains(&format!("\"id\":\"{id}\"")) {
            Reconciled::Committed
        } else {
            Reconciled::Rejected
        }
    }
}
