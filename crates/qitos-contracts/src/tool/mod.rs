//! The Tool contract.
//!
//! A tool is code that a model may ask to run. It declares beforehand what it is ([`ToolSpec`]) and what a
//! call may change ([`EffectClass`]); the executor decides whether, when and how often it runs, and records
//! one [`ToolResult`](result::ToolResult) per call.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

pub mod arguments;
pub mod call;
pub mod effect;
pub mod function;
pub mod model_view;
pub mod permission;
pub mod registry;
pub mod result;
pub mod schema;
pub mod spec;

pub use call::{
    CallCtx, CallPort, EffectReport, ErrorKind, Facts, PortError, Reconciled, Returned, ToolError,
};
pub use effect::{DeclaredEffect, EffectClass, EffectKey};
pub use registry::{FrozenRegistry, ToolRegistry};
pub use spec::{
    ApprovalNeed, EffectDeclaration, Permissions, RetryPolicy, ToolLifecycle, ToolSpec,
};

use crate::ids::{EffectRef, SlotId};

/// Code that a model may ask to run.
///
/// # Contract
/// * [`spec`](Tool::spec) returns the same value for the life of the object.
/// * [`validate`](Tool::validate), [`effect`](Tool::effect) and [`needs_approval`](Tool::needs_approval) are pure:
///   same inputs, same answer, no I/O. They may run several times for one call.
/// * [`execute`](Tool::execute) runs at most as often as the executor's rules allow. It never detaches tasks or
///   threads of its own; blocking code goes through [`CallCtx::run_blocking`].
/// * A status comes from the return type alone: `Ok` is a success whatever the output says (TOL-11).
///
/// Sections 1 and 4 of the tools specification.
#[async_trait]
pub trait Tool: fmt::Debug + Send + Sync + 'static {
    /// What the tool declares before any call.
    fn spec(&self) -> &ToolSpec;

    /// Checks what the schema cannot say. Sees arguments that already passed the schema.
    ///
    /// # Errors
    /// An error refuses the call before dispatch: `error/execution`, its code or `validation_failed` (ARG-2).
    fn validate(&self, args: &Value) -> Result<(), ToolError>;

    /// The effect of this very call, from arguments and slot alone (TOL-6).
    ///
    /// # Errors
    /// An error refuses the call before dispatch.
    fn effect(&self, args: &Value, slot: &SlotId) -> Result<EffectClass, ToolError>;

    /// The predicate of [`ApprovalNeed::Predicate`].
    ///
    /// # Errors
    /// An error denies the call: `skipped/policy/policy_error` (PRM-5).
    fn needs_approval(&self, args: &Value, facts: &Facts) -> Result<bool, ToolError>;

    /// Does the work.
    ///
    /// # Errors
    /// An orderly `Err` is `error/semantic` unless the error names another kind.
    ///
    /// # Cancel safety
    /// At a deadline or cancel the token is signalled, then after the grace period the future is dropped
    /// (EXE-8); a severed call is recorded by its effect class.
    async fn execute(&self, args: Arc<Value>, ctx: CallCtx) -> Result<Returned, ToolError>;

    /// Asks the backend what became of an effect whose outcome was lost (RES-19).
    ///
    /// # Cancel safety
    /// Dropping it means nothing happened.
    async fn reconcile(&self, effect: &EffectRef, key: &str) -> Reconciled;
}

/// A tool whose work blocks its thread; [`Blocking`] makes a [`Tool`] of it.
///
/// The methods are those of [`Tool`], with a synchronous [`execute`](BlockingTool::execute) that runs on the
/// executor's own pool (MAC-7, EXE-10). It cannot be stopped from outside and should poll
/// [`CallCtx::is_cancelled`].
pub trait BlockingTool: fmt::Debug + Send + Sync + 'static {
    /// As [`Tool::spec`], with a blocking lifecycle.
    fn spec(&self) -> &ToolSpec;

    /// As [`Tool::validate`].
    ///
    /// # Errors
    /// As [`Tool::validate`].
    fn validate(&self, args: &Value) -> Result<(), ToolError>;

    /// As [`Tool::effect`].
    ///
    /// # Errors
    /// As [`Tool::effect`].
    fn effect(&self, args: &Value, slot: &SlotId) -> Result<EffectClass, ToolError>;

    /// Does the work on a worker thread.
    ///
    /// # Errors
    /// As [`Tool::execute`].
    fn execute(&self, args: &Value, ctx: &CallCtx) -> Result<Returned, ToolError>;
}

/// Adapts a [`BlockingTool`] onto the executor's worker pool.
#[derive(Debug)]
pub struct Blocking<T>(Arc<T>);

impl<T: BlockingTool> Blocking<T> {
    /// Wraps `tool`. Its spec should name a blocking lifecycle, or the pool's bound is not checked beforehand.
    #[must_use]
    pub fn new(tool: T) -> Self {
        Blocking(Arc::new(tool))
    }
}

#[async_trait]
impl<T: BlockingTool> Tool for Blocking<T> {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn validate(&self, args: &Value) -> Result<(), ToolError> {
        self.0.validate(args)
    }

    fn effect(&self, args: &Value, slot: &SlotId) -> Result<EffectClass, ToolError> {
        self.0.effect(args, slot)
    }

    fn needs_approval(&self, _args: &Value, _facts: &Facts) -> Result<bool, ToolError> {
        Ok(false)
    }

    async fn execute(&self, args: Arc<Value>, ctx: CallCtx) -> Result<Returned, ToolError> {
        let tool = Arc::clone(&self.0);
        let inner = ctx.clone();
        ctx.run_blocking(move || tool.execute(&args, &inner)).await
    }

    async fn reconcile(&self, _effect: &EffectRef, _key: &str) -> Reconciled {
        Reconciled::Unknown
    }
}

/// The effect that a spec implies when a tool has nothing more to say.
#[must_use]
pub fn default_effect(spec: &ToolSpec, slot: &SlotId) -> EffectClass {
    match spec.effect {
        EffectDeclaration::Pure => EffectClass::Pure,
        EffectDeclaration::Undeclared => EffectClass::Undeclared,
        EffectDeclaration::Declared { dedupe, reconcile } => {
            let text = format!("effect:{}:{}", spec.name, slot).replace(['@', '+'], "-");
            match text.parse::<EffectRef>() {
                Ok(effect_ref) => EffectClass::Declared(DeclaredEffect {
                    effect_ref,
                    key: EffectKey::PerSlot,
                    dedupe,
                    reconcile,
                }),
                Err(_) => EffectClass::Undeclared,
            }
        }
    }
}
