//! The tool contract (tools specification, section 11): any tool, and any engine that runs tools.
//!
//! Two suites. [`tools_conformance`] holds a list of tools and the registry that takes them against their rules,
//! without running anything. [`engine_conformance`] gives a [`ToolEngine`] scripted models, tools that meet at
//! barriers, refused commits and deaths, and judges what became of them.
//!
//! Not here: TCK-5 (what macros refuse shows at compile time), TCK-8 to TCK-12 (strict schemas, policies,
//! approvals), TCK-32 to TCK-36 (budgets, critics, loop guard, grammars, stale owners).

mod arguments;
mod bench_tool;
mod crash_matrix;
mod durability;
mod effects;
mod expect;
mod failures;
mod log_rules;
mod names;
mod observation;
mod one_terminal;
mod projection;
mod result_table;
mod scenario;
mod scheduling;
mod static_tools;
mod steering;
mod timeouts;

use std::sync::Arc;

use qitos_contracts::tool::Tool;

use crate::check::{Check, Claims};
use crate::report::Report;
use crate::run::{RunOptions, run_checks};

pub use observation::{LateRecord, Observation};
pub use scenario::{
    BatchOrder, FailFast, Fault, Feature, Mode, RequestSeen, Rewrite, RunControl, Scenario, Script,
    ScriptedCall, Settings, ToolEngine, Turn,
};
pub use static_tools::ToolSet;

/// The word for this mechanism in reports and on the command line.
pub const MECHANISM: &str = "tool";

/// Holds a list of tools against the rules that can be seen without running them.
pub fn tools_conformance(name: &str, tools: Vec<Arc<dyn Tool>>, options: &RunOptions) -> Report {
    let subject = Arc::new(ToolSet::new(tools));
    run_checks(MECHANISM, name, subject, &static_tools::checks(), options)
}

/// Runs the whole suite for engines.
pub fn engine_conformance(engine: Arc<dyn ToolEngine>, options: &RunOptions) -> Report {
    let name = engine.name().to_owned();
    run_checks(MECHANISM, &name, engine, &engine_checks(), options)
}

/// All checks for engines in the order of the specification.
#[must_use]
pub fn engine_checks() -> Vec<Check<dyn ToolEngine>> {
    let mut all = Vec::new();
    all.extend(names::checks());
    all.extend(arguments::checks());
    all.extend(result_table::checks());
    all.extend(scheduling::checks());
    all.extend(failures::checks());
    all.extend(timeouts::checks());
    all.extend(effects::checks());
    all.extend(durability::checks());
    all.extend(projection::checks());
    all.extend(log_rules::checks());
    all.extend(steering::checks());
    all.extend(one_terminal::checks());
    all.extend(crash_matrix::checks());
    all
}

impl Claims for dyn ToolEngine {
    fn claims(&self, name: &str) -> bool {
        Feature::ALL
            .into_iter()
            .any(|feature| feature.as_str() == name && self.offers(feature))
    }

    fn has_hook(&self, _name: &str) -> bool {
        false
    }
}
