//! Everything before dispatch: name, arguments, rewrites, validation, effect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use qitos_contracts::error::ContractError;
use qitos_contracts::ids::SlotId;
use qitos_contracts::tool::arguments::ArgumentError;
use qitos_contracts::tool::registry::RegisteredTool;
use qitos_contracts::tool::result::{Refusal, RefusalStatus};
use qitos_contracts::tool::{EffectClass, ErrorKind, FrozenRegistry};
use serde_json::{Map, Value, json};

use super::Flaw;
use crate::tool::{Rewrite, ScriptedCall, Settings};

/// A call that may be dispatched.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub(super) tool: RegisteredTool,
    pub(super) args: Arc<Value>,
    pub(super) class: EffectClass,
}

/// The answer of the gates. A refused call has no effect class: only its last gate asks for one.
pub(super) type Gated = Result<Ready, Box<Refusal>>;

fn refusal(code: &str, message: String) -> Box<Refusal> {
    Box::new(Refusal {
        status: RefusalStatus::Error,
        kind: ErrorKind::Execution,
        code: code.into(),
        message,
        recoverable: true,
        hint: None,
        metadata: Map::new(),
    })
}

fn found<'a>(
    registry: &'a FrozenRegistry,
    name: &str,
    flaw: Option<Flaw>,
) -> Option<&'a RegisteredTool> {
    if flaw == Some(Flaw::RepairsNames) {
        let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
        return registry
            .tools()
            .iter()
            .find(|tool| plain(&tool.spec.name) == plain(name));
    }
    registry.by_wire_name(name)
}

/// Leads one call through the gates.
pub(super) fn pass(
    registry: &FrozenRegistry,
    call: &ScriptedCall,
    slot: &SlotId,
    settings: &Settings,
    flaw: Option<Flaw>,
) -> Gated {
    let Some(tool) = found(registry, &call.name, flaw) else {
        return Err(refusal("tool_not_found", "no such tool".into()));
    };
    let bad = |error: ArgumentError| refusal(error.code(), error.message());
    let mut args = match tool.read_arguments(&call.raw_arguments) {
        Ok(args) => args,
        Err(_) if flaw == Some(Flaw::ForgivesArguments) => json!({}),
        Err(error) => return Err(bad(error)),
    };
    if let Some(
        Rewrite::Interceptor(rewritten) | Rewrite::Policy(rewritten) | Rewrite::Approver(rewritten),
    ) = &settings.rewrite
    {
        args = rewritten.clone();
        if flaw != Some(Flaw::TrustsRewrites) {
            args = tool.read_arguments(&rewritten.to_string()).map_err(bad)?;
        }
    }
    match catch_unwind(AssertUnwindSafe(|| tool.tool.validate(&args))) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let code = if error.code.is_empty() {
                "validation_failed"
            } else {
                &error.code
            };
            return Err(refusal(code, error.message.clone()));
        }
        Err(_) => return Err(refusal("tool_panicked", "its validation panicked".into())),
    }
    let class = match tool.tool.effect(&args, slot) {
        Ok(class) => class,
        Err(error) => return Err(refusal(&error.code, error.message.clone())),
    };
    let class = match class {
        EffectClass::Undeclared if flaw == Some(Flaw::TrustsUndeclaredWrites) => EffectClass::Pure,
        class => class,
    };
    Ok(Ready {
        tool: tool.clone(),
        args: Arc::new(args),
        class,
    })
}
