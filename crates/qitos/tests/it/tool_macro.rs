//! `#[tool]` and `#[toolset]` (MAC-1 to MAC-8, TCK-5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use qitos::__private::schemars::JsonSchema;
use qitos::__private::serde::{Deserialize, Serialize};
use qitos::__private::serde_json::{self, Value, json};
use qitos::tool::call::Facts;
use qitos::tool::function::SlotId;
use qitos::tool::result::ToolResult;
use qitos::tool::schema::Schema;
use qitos::tool::{
    ApprovalNeed, CallCtx, EffectClass, EffectDeclaration, EffectKey, ErrorKind, Returned, Tool,
    ToolError, ToolLifecycle, ToolRegistry,
};
use qitos::{tool, toolset};

use crate::call_port::{context, run};

/// How loud to be.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(crate = "qitos::__private::serde", rename_all = "snake_case")]
#[schemars(crate = "qitos::__private::schemars")]
enum Volume {
    Quiet,
    Loud,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(
    crate = "qitos::__private::serde",
    tag = "kind",
    rename_all = "snake_case"
)]
#[schemars(crate = "qitos::__private::schemars")]
enum Shape {
    Circle(Circle),
    Square { side: f64 },
    Nothing,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(crate = "qitos::__private::serde")]
#[schemars(crate = "qitos::__private::schemars")]
struct Circle {
    /// In metres.
    radius: f64,
    center: Option<Point>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(crate = "qitos::__private::serde")]
#[schemars(crate = "qitos::__private::schemars")]
struct Point {
    x: i32,
    y: i32,
}

/// Draws shapes.
///
/// Every shape is drawn once.
///
/// # Arguments
/// * `shapes` - what to draw,
///   in this order
/// * `volume`: how loud the pen is
///
/// # Errors
/// Never.
#[tool(name = "draw.shapes", title = "Draw")]
#[expect(clippy::too_many_arguments, reason = "one argument of every kind")]
fn draw_everything(
    shapes: Vec<Shape>,
    volume: Volume,
    /// How many copies.
    #[arg(default = 3)]
    copies: u8,
    #[arg(default = Volume::Quiet, description = "for the eraser")] eraser: Volume,
    title: Option<String>,
    labels: BTreeMap<String, u64>,
    r#type: Option<Point>,
    _ctx: CallCtx,
) -> usize {
    let _ = (volume, eraser, title, labels, r#type);
    shapes.len() * usize::from(copies)
}

#[test]
fn mac_5_the_schema_is_complete_and_closed() {
    // Enum, list, optional, nested and default in one snapshot (TCK-5).
    let point = json!({
        "type": "object",
        "properties": {
            "x": {"type": "integer", "format": "int32"},
            "y": {"type": "integer", "format": "int32"},
        },
        "required": ["x", "y"],
        "additionalProperties": false,
    });
    let expected = json!({
        "type": "object",
        "properties": {
            "shapes": {
                "description": "what to draw, in this order",
                "type": "array",
                "items": {"$ref": "#/$defs/Shape"},
            },
            "volume": {"description": "how loud the pen is", "$ref": "#/$defs/Volume"},
            "copies": {
                "description": "How many copies.",
                "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255, "default": 3,
            },
            "eraser": {"description": "for the eraser", "$ref": "#/$defs/Volume", "default": "quiet"},
            "title": {"type": ["string", "null"]},
            "labels": {
                "type": "object",
                "additionalProperties": {"type": "integer", "format": "uint64", "minimum": 0},
            },
            "type": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
        },
        "required": ["shapes", "volume", "labels"],
        "additionalProperties": false,
        "$defs": {
            "Point": point,
            "Volume": {"description": "How loud to be.", "type": "string", "enum": ["quiet", "loud"]},
            "Shape": {"oneOf": [
                {
                    "type": "object",
                    "properties": {
                        "kind": {"type": "string", "const": "circle"},
                        "radius": {"description": "In metres.", "type": "number", "format": "double"},
                        "center": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
                    },
                    "required": ["kind", "radius"],
                    "additionalProperties": false,
                },
                {
                    "type": "object",
                    "properties": {
                        "kind": {"type": "string", "const": "square"},
                        "side": {"type": "number", "format": "double"},
                    },
                    "required": ["kind", "side"],
                    "additionalProperties": false,
                },
                {
                    "type": "object",
                    "properties": {"kind": {"type": "string", "const": "nothing"}},
                    "required": ["kind"],
                    "additionalProperties": false,
                },
            ]},
            "Circle": {
                "type": "object",
                "properties": {
                    "radius": {"description": "In metres.", "type": "number", "format": "double"},
                    "center": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
                },
                "required": ["radius"],
                "additionalProperties": false,
            },
        },
    });
    let schema = &DrawEverything.spec().input_schema;
    assert_eq!(
        schema,
        &expected,
        "{}",
        serde_json::to_string_pretty(schema).unwrap()
    );
    Schema::compile(schema).unwrap();
}

/// Adds two numbers.
#[tool(read_only)]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Adds two numbers, later.
#[tool(read_only)]
async fn add_later(a: i64, b: i64) -> i64 {
    a + b
}

#[test]
fn mac_7_a_fn_runs_on_a_worker_and_an_async_fn_as_a_future() {
    assert_eq!(add(2, 3), 5, "the function stays callable");
    assert_eq!(Add.spec().lifecycle, ToolLifecycle::SyncFunction);
    assert_eq!(AddLater.spec().lifecycle, ToolLifecycle::AsyncCoroutine);
    for (tool, workers) in [(&Add as &dyn Tool, 1), (&AddLater as &dyn Tool, 0)] {
        let (output, port) = run(tool, json!({"a": 2, "b": 3}));
        assert_eq!(output.unwrap(), json!(5));
        assert_eq!(port.blocking_jobs(), workers, "{}", tool.spec().name);
    }
}

#[test]
fn mac_3_arguments_are_read_strictly() {
    for wrong in [
        json!({"a": 2}),
        json!({"a": 2, "b": 3, "c": 4}),
        json!({"a": "2", "b": 3}),
    ] {
        let error = Add.validate(&wrong).unwrap_err();
        assert_eq!(
            (error.kind, error.code.as_str()),
            (ErrorKind::Execution, "invalid_argument_value"),
            "{wrong}"
        );
    }
    let error = Add.validate(&json!([2, 3])).unwrap_err();
    assert_eq!(error.code, "invalid_arguments_shape", "ARG-2");
    assert!(Add.validate(&json!({"a": 2, "b": 3})).is_ok());
}

#[test]
fn mac_4_what_is_optional_may_be_left_out() {
    let (output, _) = run(
        &DrawEverything,
        json!({"shapes": [{"kind": "nothing"}], "volume": "loud", "labels": {}}),
    );
    assert_eq!(output.unwrap(), json!(3));
    let error = DrawEverything
        .validate(&json!({"shapes": [], "volume": "loud"}))
        .unwrap_err();
    assert_eq!(error.code, "invalid_argument_value");
}

/// What to look for.
#[derive(Deserialize, JsonSchema)]
#[serde(crate = "qitos::__private::serde")]
#[schemars(crate = "qitos::__private::schemars")]
struct Query {
    /// The words.
    words: Vec<String>,
}

/// Searches.
#[tool(read_only)]
async fn search(ctx: &CallCtx, #[args] query: Query) -> String {
    format!("{} in step {}", query.words.join(" "), ctx.call.step_id)
}

#[test]
fn mac_3_one_struct_may_hold_all_arguments_and_the_context_is_no_argument() {
    let (output, _) = run(&Search, json!({"words": ["a", "b"]}));
    assert_eq!(output.unwrap(), json!("a b in step 7"));
    assert_eq!(
        Search.spec().input_schema,
        json!({
            "description": "What to look for.",
            "type": "object",
            "properties": {"words": {"description": "The words.", "type": "array", "items": {"type": "string"}}},
            "required": ["words"],
            "additionalProperties": false,
        })
    );
}

enum Refusal {
    Busy,
}

impl From<Refusal> for ToolError {
    fn from(_: Refusal) -> Self {
        ToolError::new("busy", "come back later").with_kind(ErrorKind::Execution)
    }
}

/// Answers in every way there is.
#[tool]
fn plain() -> Value {
    json!({"status": "failed"})
}

/// Says nothing.
#[tool]
fn nothing() {}

/// Fails with a text.
#[tool]
fn fails(yes: bool) -> Result<u8, String> {
    if yes { Err("no".into()) } else { Ok(1) }
}

/// Fails with an error of its own kind.
#[tool]
async fn refuses() -> Result<(), Refusal> {
    Err(Refusal::Busy)
}

/// Makes its own result.
#[tool]
fn own() -> ToolResult {
    ToolResult::failure(ErrorKind::Semantic, "own_code", "own message")
}

/// Makes its own result, or fails.
#[tool]
async fn own_or_error() -> Result<ToolResult, ToolError> {
    Ok(ToolResult::failure(
        ErrorKind::Semantic,
        "own_code",
        "own message",
    ))
}

#[test]
fn mac_6_the_return_type_alone_decides_what_becomes_of_an_output() {
    // TOL-11: content is no status; TOL-12: unit is null.
    assert_eq!(
        run(&Plain, json!({})).0.unwrap(),
        json!({"status": "failed"})
    );
    assert_eq!(run(&Nothing, json!({})).0.unwrap(), Value::Null);
    assert_eq!(run(&Fails, json!({"yes": false})).0.unwrap(), json!(1));
    let error = run(&Fails, json!({"yes": true})).0.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Semantic, "no")
    );
    let error = run(&Refuses, json!({})).0.unwrap_err();
    assert_eq!(
        (error.kind, error.code.as_str()),
        (ErrorKind::Execution, "busy")
    );
    for tool in [&Own as &dyn Tool, &OwnOrError] {
        let (context, _) = context();
        let returned =
            crate::call_port::block_on(tool.execute(Arc::new(json!({})), context)).unwrap();
        let Returned::Result(result) = returned else {
            panic!("{}", tool.spec().name)
        };
        assert_eq!(result.error_code(), Some("own_code"));
    }
}

fn only_at_night(args: &Value, facts: &Facts) -> Result<bool, ToolError> {
    Ok(args["hour"] == 3 && facts.step_id == 7)
}

/// This text is not the description.
#[tool(
    name = "billing.pay",
    title = "Pay",
    description = "Pays an invoice.",
    concurrency_safe = false,
    needs_approval(only_at_night),
    timeout_ms = 1_500,
    max_attempts = 4,
    effect = "invoice:{id}",
    idempotency = "pay-{id}-{hour}",
    idempotent,
    destructive,
    open_world = true,
    command,
    fs_read = true,
    fs_write = false,
    result_max_chars = 900,
    requires_user_interaction
)]
fn pay(id: u64, hour: u8) -> String {
    format!("{id} at {hour}")
}

#[test]
fn mac_8_every_attribute_reaches_the_spec() {
    let spec = Pay.spec();
    assert_eq!(
        (spec.name.as_ref(), spec.title.as_deref()),
        ("billing.pay", Some("Pay"))
    );
    assert_eq!(spec.description, "Pays an invoice.", "TOL-3");
    assert_eq!(spec.concurrency_safe, Some(false));
    assert_eq!(spec.needs_approval, ApprovalNeed::Predicate);
    assert_eq!(spec.timeout.unwrap().as_millis(), 1_500);
    assert_eq!(spec.retry.max_attempts, 4);
    assert_eq!(
        spec.effect,
        EffectDeclaration::Declared {
            dedupe: false,
            reconcile: false
        }
    );
    assert!(spec.idempotent && spec.requires_user_interaction && !spec.read_only);
    let hints = &spec.annotations.as_ref().unwrap().hints;
    assert_eq!(
        Value::Object(hints.clone()),
        json!({"destructiveHint": true, "openWorldHint": true})
    );
    let permissions = spec.permissions;
    assert!(permissions.network && permissions.command && permissions.filesystem_read);
    assert!(!permissions.filesystem_write);
    assert_eq!(spec.result_max_chars, Some(900));
}

#[test]
fn mac_8_what_is_not_given_is_the_careful_default() {
    let spec = Nothing.spec();
    assert_eq!(
        (spec.name.as_ref(), spec.description.as_str()),
        ("nothing", "Says nothing.")
    );
    assert_eq!(spec.effect, EffectDeclaration::Undeclared);
    assert_eq!(Add.spec().effect, EffectDeclaration::Pure);
    assert_eq!(
        (spec.concurrency_safe, spec.timeout, spec.needs_approval),
        (None, None, ApprovalNeed::Never)
    );
    assert!(spec.annotations.is_none() && !spec.permissions.network);
}

#[test]
fn tol_3_the_doc_comment_up_to_its_first_heading_is_the_fallback() {
    assert_eq!(
        DrawEverything.spec().description,
        "Draws shapes.\n\nEvery shape is drawn once."
    );
}

#[test]
fn tol_6_effect_and_key_follow_from_arguments_and_slot() {
    let slot: SlotId = "batch_request_0123456789abcdef01234567:0".parse().unwrap();
    let EffectClass::Declared(effect) = Pay.effect(&json!({"id": 12, "hour": 3}), &slot).unwrap()
    else {
        panic!("declared");
    };
    assert_eq!(effect.effect_ref.as_str(), "invoice:12");
    assert_eq!(effect.key, EffectKey::Logical("pay-12-3".into()), "TOL-8");
    assert!(matches!(
        Add.effect(&json!({}), &slot),
        Ok(EffectClass::Pure)
    ));
    assert!(matches!(
        Nothing.effect(&json!({}), &slot),
        Ok(EffectClass::Undeclared)
    ));
}

#[test]
fn a_predicate_sees_arguments_and_facts() {
    let facts = crate::call_port::facts();
    assert!(
        Pay.needs_approval(&json!({"id": 1, "hour": 3}), &facts)
            .unwrap()
    );
    assert!(
        !Pay.needs_approval(&json!({"id": 1, "hour": 4}), &facts)
            .unwrap()
    );
    assert!(!Add.needs_approval(&json!({}), &facts).unwrap());
}

#[derive(Default)]
struct Counter {
    count: AtomicU32,
}

#[toolset(namespace = "counter")]
impl Counter {
    /// Adds to the counter.
    #[tool]
    fn raise(&self, by: u32) -> u32 {
        self.double(by) / 2 + self.count.fetch_add(by, Ordering::SeqCst)
    }

    fn double(&self, number: u32) -> u32 {
        number * 2
    }

    /// Reads the counter.
    #[qitos::tool(read_only, name = "value")]
    async fn read(&self, ctx: CallCtx) -> (u32, u64) {
        (self.count.load(Ordering::SeqCst), ctx.call.step_id)
    }
}

#[test]
fn reg_2_a_toolset_shares_its_object_and_is_registered_under_its_namespace() {
    let counter = Arc::new(Counter::default());
    let mut registry = ToolRegistry::new();
    registry.register_toolset(Arc::clone(&counter)).unwrap();
    let tools = qitos::tool::function::Toolset::tools(Arc::clone(&counter));
    assert_eq!(run(&*tools[0], json!({"by": 5})).0.unwrap(), json!(5));
    assert_eq!(run(&*tools[1], json!({})).0.unwrap(), json!([5, 7]));
    assert_eq!(counter.count.load(Ordering::SeqCst), 5);
    assert_eq!(
        tools[0].spec().name.as_ref(),
        "raise",
        "the tool's own spec is not changed"
    );
    let duplicate = registry.register_toolset(counter).unwrap_err();
    assert!(
        duplicate.to_string().contains("counter.raise"),
        "{duplicate}"
    );
}

/// What a crate below the facade provides, to use the attributes itself.
mod support {
    pub(crate) use qitos::__private;
    pub(crate) use qitos_contracts::tool;
}

/// Doubles.
#[tool(crate = crate::tool_macro::support, read_only)]
fn double(#[arg(default = 21)] number: u32) -> u32 {
    number * 2
}

#[test]
fn mac_8_the_crate_path_can_be_replaced() {
    assert_eq!(run(&Double, json!({})).0.unwrap(), json!(42));
}

#[test]
fn mac_5_every_generated_schema_passes_the_registry() {
    let mut registry = ToolRegistry::new();
    registry
        .register(Add)
        .and_then(|registry| registry.register(AddLater))
        .and_then(|registry| registry.register(DrawEverything))
        .and_then(|registry| registry.register(Search))
        .and_then(|registry| registry.register(Nothing))
        .and_then(|registry| registry.register(Pay))
        .and_then(|registry| registry.register(Double))
        .unwrap();
}

#[test]
fn a_tool_can_stand_inside_a_function() {
    /// Negates.
    #[tool(read_only)]
    fn negate(args: i64, r#match: bool) -> i64 {
        if r#match { -args } else { args }
    }
    assert_eq!(
        run(&Negate, json!({"args": 4, "match": true})).0.unwrap(),
        json!(-4)
    );
}
