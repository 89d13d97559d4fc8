//! A small engine that keeps the tool contract, and the ways in which it can break it.
//!
//! It exists to prove the checks: right, it passes all of them; with one [`Flaw`], the check named for that flaw
//! rejects it. It is no kernel: threads instead of an executor, a vector of states instead of a store.

mod attempt;
mod batch;
mod control;
mod durable;
mod engine;
mod gates;

use async_trait::async_trait;

use crate::tool::{Feature, Observation, Scenario, ToolEngine};

macro_rules! flaws {
    ($($(#[$doc:meta])* $name:ident => $check:literal),+ $(,)?) => {
        /// The rule that a wrong engine breaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Flaw {
            $($(#[$doc])* $name,)+
        }

        impl Flaw {
            /// Every flaw.
            pub const ALL: &'static [Flaw] = &[$(Flaw::$name),+];

            /// The id of the check that must reject it.
            #[must_use]
            pub const fn rejected_by(self) -> &'static str {
                match self {
                    $(Flaw::$name => $check,)+
                }
            }
        }
    };
}

flaws!(
    /// Names are compared without case and punctuation.
    RepairsNames => "TCK-3.unknown_name_not_repaired",
    /// A tool can be registered while the run goes on.
    RegistersDuringRun => "TCK-4.frozen",
    /// Bad arguments become an empty object.
    ForgivesArguments => "TCK-6.args_never_dispatched",
    /// Rewritten arguments are not looked at again.
    TrustsRewrites => "TCK-7.rewrite_revalidated",
    /// An output that says "failed" is an error.
    ReadsStatusFromOutput => "TCK-14.status_word_in_output",
    /// Every call of a parallel batch runs at once.
    OverlapsEverything => "TCK-15.serial_and_barriers",
    /// Calls run one by one whatever the mode.
    OverlapsNothing => "TCK-15.serial_and_barriers",
    /// Results are put into declaration order.
    SortsResults => "TCK-16.completion_order",
    /// The first failure cancels the rest of the batch.
    FirstErrorEndsBatch => "TCK-17.sibling_isolation",
    /// Fail-fast fires on any error.
    FailsFastOnAnything => "TCK-18.fail_fast",
    /// A dropped future is said to run on.
    CallsDroppedRunning => "TCK-19.timeout_async",
    /// A worker that runs on is said to have stopped.
    ForgetsWorkers => "TCK-20.timeout_blocking",
    /// The call of a dropped run is dispatched again.
    RepeatsDroppedRuns => "TCK-21.drop_run_future",
    /// A late return is recorded as the terminal.
    AcceptsLateReturns => "TCK-22.late_content",
    /// A panic is reported as a cancel.
    CallsPanicsCancels => "TCK-23.panic_named",
    /// A declared effect that was cut off is dispatched again.
    RepeatsUnknownEffects => "TCK-24.unknown_not_retried",
    /// A tool that declares nothing is taken for harmless.
    TrustsUndeclaredWrites => "TCK-25.undeclared_write_unknown",
    /// All calls of an effect share one key.
    SharesKeys => "TCK-26.key_stable",
    /// Logical keys are ignored.
    IgnoresLogicalKeys => "TCK-26.key_stable",
    /// A call is dispatched before its intent is durable.
    DispatchesFirst => "TCK-27.intent_before_dispatch",
    /// The artifact of a cut result holds no more than the model saw.
    KeepsWhatItShows => "TCK-28.projection_bounds",
    /// Steering is appended as soon as the log lets it.
    SteersBeforeTheAnswer => "TCK-29.steering_waits",
    /// A cancelled call has no terminal.
    LosesTerminals => "TCK-30.one_terminal_each",
    /// After a death everything that has no terminal is dispatched again.
    RepeatsAfterDeath => "TCK-31.crash_matrix",
    /// After a death what was cut off is said to have failed without effect.
    HidesWhatWasCutOff => "TCK-31.crash_matrix",
);

/// The small engine, right or with a flaw.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmallEngine {
    flaw: Option<Flaw>,
}

impl SmallEngine {
    /// The engine that keeps the contract.
    #[must_use]
    pub fn right() -> Self {
        SmallEngine { flaw: None }
    }

    /// The engine with one flaw.
    #[must_use]
    pub fn wrong(flaw: Flaw) -> Self {
        SmallEngine { flaw: Some(flaw) }
    }
}

#[async_trait]
impl ToolEngine for SmallEngine {
    fn name(&self) -> &str {
        "small-engine"
    }

    fn offers(&self, _feature: Feature) -> bool {
        true
    }

    async fn run(&self, scenario: Scenario) -> Result<Observation, String> {
        engine::run(&scenario, self.flaw)
    }
}
