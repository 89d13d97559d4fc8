//! The gates of a batch, in order: look-up, arguments, agent gate, policy, effect (section 3).
//!
//! Loop guard and effect ledger are durable facts and therefore rules of the machine.

use std::sync::Arc;

use qitos_contracts::canonical_json;
use qitos_contracts::decision::Action;
use qitos_contracts::digest::Digest;
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::{RunId, SessionId};
use qitos_contracts::tool::arguments::{self, ArgumentError, Boundary};
use qitos_contracts::tool::effect::idempotency_key;
use qitos_contracts::tool::permission::{PermissionPolicy, RuleEffect};
use qitos_contracts::tool::registry::{FrozenRegistry, RegisteredTool};
use qitos_contracts::tool::result::{Refusal, RefusalStatus};
use qitos_contracts::tool::{ApprovalNeed, EffectClass, ErrorKind, Facts, ToolError};
use serde_json::{Map, Value, json};

use crate::agent::{ErasedAgent, GateAnswer, StateBox, panic_text};
use crate::machine::GateVerdict;
use crate::machine::limits::EnginePolicy;
use crate::machine::state::{Admitted, Slot};
use crate::workers::WorkerTable;

/// What the gates look at beside the slot.
#[derive(Debug)]
pub(crate) struct Gates<'a> {
    pub(crate) registry: &'a FrozenRegistry,
    pub(crate) permissions: &'a PermissionPolicy,
    pub(crate) policy: &'a EnginePolicy,
    pub(crate) agent: &'a dyn ErasedAgent,
    pub(crate) state: &'a StateBox,
    pub(crate) workers: &'a WorkerTable,
    pub(crate) session: &'a SessionId,
    pub(crate) run: &'a RunId,
    pub(crate) step: u64,
    pub(crate) tool_calls_left: Option<u64>,
}

struct Refused {
    class: EffectClass,
    refusal: Refusal,
}

impl Gates<'_> {
    /// Passes one slot.
    pub(crate) fn pass(&self, slot: &Slot) -> GateVerdict {
        let native = !matches!(&*slot.scope, "text" | "agent");
        let found = if native {
            self.registry.by_wire_name(&slot.name)
        } else {
            self.registry.by_name(&slot.name)
        };
        let Some(tool) = found else {
            return GateVerdict::Refuse {
                tool: Arc::clone(&slot.name),
                class: EffectClass::Pure,
                refusal: Box::new(self.unknown(&slot.name)),
            };
        };
        match self.admit(slot, tool) {
            Ok((admitted, args)) => GateVerdict::Pass {
                admitted: Box::new(admitted),
                args,
            },
            Err(refused) => GateVerdict::Refuse {
                tool: Arc::clone(&tool.spec.name),
                class: refused.class,
                refusal: Box::new(refused.refusal),
            },
        }
    }

    fn unknown(&self, name: &str) -> Refusal {
        let near = self.registry.suggestions(name);
        let hint =
            (!near.is_empty()).then(|| format!("tools with a similar name: {}", near.join(", ")));
        Refusal {
            status: RefusalStatus::Error,
            kind: ErrorKind::Execution,
            code: "tool_not_found".into(),
            message: "there is no tool of this name".into(),
            recoverable: true,
            hint,
            metadata: Map::new(),
        }
    }

    fn admit(
        &self,
        slot: &Slot,
        tool: &RegisteredTool,
    ) -> Result<(Admitted, Arc<Value>), Box<Refused>> {
        let pure = |refusal| {
            Box::new(Refused {
                class: EffectClass::Pure,
                refusal,
            })
        };
        let args = self
            .arguments(slot, tool)
            .map_err(|error| pure(argument_refusal(&error, Boundary::Structural)))?;
        guarded(|| tool.tool.validate(&args)).map_err(|error| {
            let code = match error.code.as_str() {
                "" | "tool_failed" => "validation_failed".to_owned(),
                code => code.to_owned(),
            };
            pure(Refusal {
                status: RefusalStatus::Error,
                kind: ErrorKind::Execution,
                code,
                message: error.message,
                recoverable: true,
                hint: error.hint,
                metadata: Map::new(),
            })
        })?;
        let class = guarded(|| tool.tool.effect(&args, &slot.id))
            .map_err(|error| pure(from_tool(error)))?;
        let refuse = |refusal| {
            Box::new(Refused {
                class: class.clone(),
                refusal,
            })
        };
        let action = Action::new(tool.spec.name.as_ref(), (*args).clone());
        match self.agent.gate(self.state, &action) {
            Ok(GateAnswer::Allow) => {}
            Ok(GateAnswer::Block(reason)) => {
                return Err(refuse(policy_refusal(
                    RefusalStatus::Error,
                    "action_blocked",
                    &reason,
                )));
            }
            Err(_) => {
                return Err(refuse(policy_refusal(
                    RefusalStatus::Skipped,
                    "policy_error",
                    "the agent's gate failed",
                )));
            }
        }
        self.permission(tool, &args, &class).map_err(refuse)?;
        let effect_ref = class.effect_ref();
        if self.workers.holds(&tool.spec.name, effect_ref) {
            let text = "an earlier call of this tool still runs and cannot be stopped";
            return Err(refuse(policy_refusal(
                RefusalStatus::Error,
                "worker_still_running",
                text,
            )));
        }
        if tool.spec.lifecycle.is_blocking() && !self.workers.has_capacity() {
            return Err(refuse(Refusal {
                status: RefusalStatus::Error,
                kind: ErrorKind::Execution,
                code: "worker_capacity_exhausted".into(),
                message: "too many earlier calls still run and cannot be stopped".into(),
                recoverable: true,
                hint: None,
                metadata: Map::new(),
            }));
        }
        let key = match &class {
            EffectClass::Declared(declared) => Some(idempotency_key(
                self.session,
                &slot.id,
                declared,
                &tool.spec.name,
                &args,
            )),
            _ => None,
        };
        let spec = &tool.spec;
        let concurrent = spec.needs_approval == ApprovalNeed::Never
            && spec.concurrency_safe.unwrap_or(spec.read_only);
        let admitted = Admitted {
            tool: Arc::clone(&spec.name),
            args_digest: canonical_json::digest(&args).unwrap_or(Digest::ZERO),
            repeatable: class.is_pure() || spec.idempotent,
            class,
            key,
            concurrent,
            max_attempts: spec.retry.max_attempts,
            retryable_codes: spec.retry.retryable_codes.clone().into(),
            backoff_ms: millis(spec.retry.backoff_factor),
            max_backoff_ms: u64::try_from(spec.retry.max_backoff.as_millis()).unwrap_or(u64::MAX),
            resume_with_key: self.policy.resume_with_key,
        };
        Ok((admitted, args))
    }

    /// Arguments as validated; what the provider layer parsed already is not parsed again.
    fn arguments(&self, slot: &Slot, tool: &RegisteredTool) -> Result<Arc<Value>, ArgumentError> {
        match &slot.args {
            Some(args) => match arguments::validate(args, &tool.input) {
                Ok(()) => Ok(Arc::clone(args)),
                Err(error) => {
                    // ARG-6: a null where the original schema has an optional field means "absent".
                    let mut value = (**args).clone();
                    tool.input.remove_strict_nulls(&mut value);
                    if value == **args {
                        return Err(error);
                    }
                    arguments::validate(&value, &tool.input)?;
                    Ok(Arc::new(value))
                }
            },
            None => Ok(Arc::new(tool.read_arguments(&slot.raw_arguments)?)),
        }
    }

    fn permission(
        &self,
        tool: &RegisteredTool,
        args: &Value,
        class: &EffectClass,
    ) -> Result<(), Refusal> {
        let asks = match tool.spec.needs_approval {
            ApprovalNeed::Never => false,
            ApprovalNeed::Always => true,
            ApprovalNeed::Predicate => {
                let sandboxed = class
                    .effect_ref()
                    .is_some_and(|effect| effect.as_str().starts_with("sandbox:"));
                let facts = Facts {
                    session_id: self.session.clone(),
                    run_id: self.run.clone(),
                    step_id: self.step,
                    tool_name: Arc::clone(&tool.spec.name),
                    sandboxed,
                    earlier_decisions: Vec::new(),
                    tool_calls_left: self.tool_calls_left,
                };
                guarded(|| tool.tool.needs_approval(args, &facts)).map_err(|_| {
                    policy_refusal(
                        RefusalStatus::Skipped,
                        "policy_error",
                        "the approval predicate failed",
                    )
                })?
            }
        };
        let decision = self.permissions.decide(&tool.spec, asks);
        let text = |fallback: &str| {
            decision
                .message
                .clone()
                .unwrap_or_else(|| fallback.to_owned())
        };
        match decision.effect {
            RuleEffect::Allow => Ok(()),
            RuleEffect::Deny => Err(policy_refusal(
                RefusalStatus::Skipped,
                "permission_denied",
                &text("a rule of this run forbids the call"),
            )),
            // PRM-7: neither an approver nor a durable channel is configured; silence is never consent.
            RuleEffect::Ask => Err(policy_refusal(
                RefusalStatus::Skipped,
                "permission_ask",
                &text("the call needs an approval and nobody is there to give it"),
            )),
        }
    }
}

fn millis(seconds: f64) -> u64 {
    let millis = (seconds * 1_000.0).clamp(0.0, 86_400_000.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to a day just above"
    )]
    let whole = millis as u64;
    whole
}

fn policy_refusal(status: RefusalStatus, code: &str, message: &str) -> Refusal {
    Refusal {
        status,
        kind: ErrorKind::Policy,
        code: code.into(),
        message: message.into(),
        recoverable: false,
        hint: None,
        metadata: Map::new(),
    }
}

fn argument_refusal(error: &ArgumentError, boundary: Boundary) -> Refusal {
    let mut metadata = Map::new();
    metadata.insert("validation".into(), error.to_metadata(boundary));
    Refusal {
        status: RefusalStatus::Error,
        kind: ErrorKind::Execution,
        code: error.code().to_owned(),
        message: error.message(),
        recoverable: true,
        hint: None,
        metadata,
    }
}

fn from_tool(error: ToolError) -> Refusal {
    let mut metadata = Map::new();
    metadata.insert("source".into(), json!("effect"));
    Refusal {
        status: RefusalStatus::Error,
        kind: ErrorKind::Execution,
        code: error.code,
        message: error.message,
        recoverable: error.recoverable,
        hint: error.hint,
        metadata,
    }
}

/// Runs a tool's own synchronous code; a panic becomes an error of that slot (EXE-17).
fn guarded<T>(run: impl FnOnce() -> Result<T, ToolError>) -> Result<T, ToolError> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(result) => result,
        Err(payload) => {
            let text = panic_text(payload.as_ref());
            Err(ToolError::new(
                "policy_error",
                format!("the tool's own check panicked: {text}"),
            ))
        }
    }
}
