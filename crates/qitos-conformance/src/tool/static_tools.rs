//! TCK-1 to TCK-4 for a list of tools, without running any.

use std::sync::Arc;

use async_trait::async_trait;
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::{EffectRef, SlotId};
use qitos_contracts::tool::registry::RegistryError;
use qitos_contracts::tool::{
    CallCtx, EffectClass, Facts, FrozenRegistry, Reconciled, Returned, Tool, ToolError,
    ToolRegistry, ToolSpec,
};
use serde_json::{Value, json};

use crate::check::{Check, Claims, Failure, Stage, Verdict, ensure};

/// Tools under test.
#[derive(Debug)]
pub struct ToolSet {
    tools: Vec<Arc<dyn Tool>>,
}

impl ToolSet {
    /// A list of tools.
    #[must_use]
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        ToolSet { tools }
    }
}

impl Claims for ToolSet {
    fn claims(&self, _name: &str) -> bool {
        true
    }

    fn has_hook(&self, _name: &str) -> bool {
        false
    }
}

pub(super) fn checks() -> Vec<Check<ToolSet>> {
    vec![
        Check::new(
            "TCK-1.spec_static",
            "names, descriptions, schemas and flags are valid and the manifest does not depend on order",
            &["TOL-1", "TOL-2", "TOL-3", "TOL-4", "REG-1", "REG-7"],
            spec_static,
        ),
        Check::new(
            "TCK-2.duplicate_refused",
            "a second tool of a name is refused and the first stays",
            &["REG-2"],
            duplicate_refused,
        ),
        Check::new(
            "TCK-3.unknown_name_not_repaired",
            "a name from the model finds exactly the tool it was shown",
            &["REG-4"],
            unknown_name_not_repaired,
        ),
        Check::new(
            "TCK-4.frozen",
            "what is registered after freezing does not change the frozen set",
            &["REG-6"],
            frozen,
        ),
    ]
}

fn refused(tool: &dyn Tool, error: &RegistryError) -> Failure {
    Failure::new(format!(
        "tool {} is refused with {}: {error}",
        tool.spec().name,
        error.code()
    ))
}

fn registered<'a>(tools: impl Iterator<Item = &'a Arc<dyn Tool>>) -> Result<ToolRegistry, Failure> {
    let mut registry = ToolRegistry::new();
    for tool in tools {
        registry
            .register_shared(Arc::clone(tool))
            .map_err(|error| refused(&**tool, &error))?;
    }
    Ok(registry)
}

fn freeze(registry: &ToolRegistry) -> Result<FrozenRegistry, Failure> {
    registry
        .freeze(&[])
        .map_err(|error| Failure::new(format!("freezing gave {}: {error}", error.code())))
}

async fn spec_static(stage: Stage<ToolSet>) -> Verdict {
    let tools = &stage.subject().tools;
    ensure!(!tools.is_empty(), "there is no tool to check");
    let forwards = freeze(&registered(tools.iter())?)?;
    let backwards = freeze(&registered(tools.iter().rev())?)?;
    ensure!(
        forwards.manifest_digest() == backwards.manifest_digest(),
        "the manifest depends on the order of registration"
    );
    let again = freeze(&registered(tools.iter())?)?;
    ensure!(
        forwards.manifest_digest() == again.manifest_digest(),
        "the same tools give another manifest the second time"
    );
    let names = |registry: &FrozenRegistry| -> Vec<String> {
        registry
            .tools()
            .iter()
            .map(|tool| tool.spec.name.to_string())
            .collect()
    };
    ensure!(
        names(&forwards)
            .windows(2)
            .all(|pair| matches!(pair, [one, two] if one < two)),
        "the listing is not sorted by name"
    );
    for tool in tools {
        let spec = tool.spec();
        let twice = tool.spec();
        ensure!(
            spec.manifest_entry("") == twice.manifest_entry(""),
            "tool {} does not return the same specification twice",
            spec.name
        );
        let slot: SlotId = "batch_request_0123456789abcdef01234567:0"
            .parse()
            .map_err(|error| Failure::new(format!("a slot id: {error}")))?;
        let first = tool.effect(&json!({}), &slot);
        let second = tool.effect(&json!({}), &slot);
        let same = match (&first, &second) {
            (Ok(first), Ok(second)) => first == second,
            (Err(_), Err(_)) => true,
            _ => false,
        };
        ensure!(
            same,
            "tool {} declares another effect for the same arguments and slot",
            spec.name
        );
        if let Ok(class) = first {
            ensure!(
                !spec.read_only || class.is_pure(),
                "tool {} is read-only and has an effect",
                spec.name
            );
        }
    }
    Ok(())
}

/// Takes the name of another tool.
#[derive(Debug)]
struct Impostor(ToolSpec);

#[async_trait]
impl Tool for Impostor {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn validate(&self, _args: &Value) -> Result<(), ToolError> {
        Ok(())
    }

    fn effect(&self, _args: &Value, _slot: &SlotId) -> Result<EffectClass, ToolError> {
        Ok(EffectClass::Undeclared)
    }

    fn needs_approval(&self, _args: &Value, _facts: &Facts) -> Result<bool, ToolError> {
        Ok(false)
    }

    async fn execute(&self, _args: Arc<Value>, _ctx: CallCtx) -> Result<Returned, ToolError> {
        Ok(Returned::Value(Value::Null))
    }

    async fn reconcile(&self, _effect: &EffectRef, _key: &str) -> Reconciled {
        Reconciled::Unknown
    }
}

fn impostor(name: &str) -> Arc<dyn Tool> {
    Arc::new(Impostor(ToolSpec::new(
        name,
        "an impostor",
        json!({"type": "object"}),
    )))
}

async fn duplicate_refused(stage: Stage<ToolSet>) -> Verdict {
    let tools = &stage.subject().tools;
    let mut registry = registered(tools.iter())?;
    let before = freeze(&registry)?.manifest_digest();
    for tool in tools {
        match registry.register_shared(impostor(&tool.spec().name)) {
            Ok(_) => {
                return Err(Failure::new(format!(
                    "a second tool named {} was registered",
                    tool.spec().name
                )));
            }
            Err(error) => ensure!(
                error.code() == "duplicate_tool",
                "a second tool of a name gave {}",
                error.code()
            ),
        }
    }
    ensure!(
        freeze(&registry)?.manifest_digest() == before,
        "a refused tool changed the manifest"
    );
    Ok(())
}

async fn unknown_name_not_repaired(stage: Stage<ToolSet>) -> Verdict {
    let tools = &stage.subject().tools;
    let frozen = freeze(&registered(tools.iter())?)?;
    let shown: Vec<String> = frozen
        .tools()
        .iter()
        .flat_map(|tool| [tool.spec.name.to_string(), tool.wire_name.to_string()])
        .collect();
    for tool in frozen.tools() {
        let name = tool.spec.name.to_string();
        let found = frozen.by_name(&name).map(|tool| &tool.spec.name);
        ensure!(
            found == Some(&tool.spec.name),
            "tool {name} is not found by its own name"
        );
        let mut shortened = name.clone();
        shortened.pop();
        for other in [
            name.to_uppercase(),
            format!(" {name}"),
            format!("{name} "),
            format!("{name}s"),
            shortened,
        ] {
            if shown.contains(&other) {
                continue;
            }
            ensure!(
                frozen.by_name(&other).is_none() && frozen.by_wire_name(&other).is_none(),
                "{other:?} was taken for {name}"
            );
        }
    }
    Ok(())
}

async fn frozen(stage: Stage<ToolSet>) -> Verdict {
    let mut registry = registered(stage.subject().tools.iter())?;
    let frozen = freeze(&registry)?;
    let before = (frozen.manifest_digest(), frozen.tools().len());
    registry
        .register_shared(impostor("conformance_late_tool"))
        .map_err(|error| Failure::new(format!("registering another tool: {error}")))?;
    ensure!(
        (frozen.manifest_digest(), frozen.tools().len()) == before
            && frozen.by_name("conformance_late_tool").is_none(),
        "a tool that was registered later is in the frozen set"
    );
    Ok(())
}
