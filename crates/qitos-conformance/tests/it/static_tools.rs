//! The suite for lists of tools: right ones pass, each wrong one is rejected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use qitos_conformance::report::Status;
use qitos_conformance::run::RunOptions;
use qitos_conformance::tool::tools_conformance;
use qitos_contracts::ids::{EffectRef, SlotId};
use qitos_contracts::tool::{
    CallCtx, EffectClass, Facts, Reconciled, Returned, Tool, ToolError, ToolSpec, default_effect,
};
use serde_json::{Value, json};

#[derive(Debug)]
struct Listed {
    spec: ToolSpec,
    other: ToolSpec,
    asked: AtomicU32,
    effect: Option<EffectClass>,
}

impl Listed {
    fn named(name: &str) -> Self {
        let spec = ToolSpec::new(name, "says hello", json!({"type": "object"})).read_only();
        Listed {
            other: spec.clone(),
            spec,
            asked: AtomicU32::new(0),
            effect: None,
        }
    }
}

#[async_trait]
impl Tool for Listed {
    fn spec(&self) -> &ToolSpec {
        if self.asked.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            &self.spec
        } else {
            &self.other
        }
    }

    fn validate(&self, _args: &Value) -> Result<(), ToolError> {
        Ok(())
    }

    fn effect(&self, _args: &Value, slot: &SlotId) -> Result<EffectClass, ToolError> {
        Ok(self
            .effect
            .clone()
            .unwrap_or_else(|| default_effect(&self.spec, slot)))
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

fn spec_static(tool: Listed) -> Option<(Status, String)> {
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Listed::named("neighbour")), Arc::new(tool)];
    let report = tools_conformance("tools", tools, &RunOptions::default());
    let check = report.check("TCK-1.spec_static")?;
    Some((check.status(), check.detail().to_owned()))
}

#[test]
fn right_tools_pass_all_static_checks() {
    let tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(Listed::named("read_file")),
        Arc::new(Listed::named("fs.list")),
    ];
    let report = tools_conformance("tools", tools, &RunOptions::default())
        .conforms()
        .unwrap();
    assert_eq!((report.passed(), report.not_claimed()), (4, 0));
}

#[test]
fn each_wrong_tool_is_rejected() {
    let mut wrong = Vec::new();
    wrong.push(Listed::named("1st"));
    let mut tool = Listed::named("a");
    tool.spec.description = String::new();
    tool.other.description = String::new();
    wrong.push(tool);
    let mut tool = Listed::named("b");
    tool.other.idempotent = true;
    wrong.push(tool);
    let mut tool = Listed::named("c");
    tool.effect = Some(EffectClass::Undeclared);
    wrong.push(tool);
    let mut tool = Listed::named("d");
    tool.spec.input_schema = json!({"type": "array"});
    tool.other.input_schema = json!({"type": "array"});
    wrong.push(tool);
    for tool in wrong {
        let name = tool.spec.name.to_string();
        let (status, detail) = spec_static(tool).unwrap();
        assert_eq!(status, Status::Fail, "{name}");
        assert!(!detail.is_empty());
    }
    let nothing = tools_conformance("none", Vec::new(), &RunOptions::default());
    assert!(nothing.conforms().is_err());
}
