//! `#[tool]` and `#[toolset]` (MAC-1 to MAC-8, TCK-5).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use qitos::__private::schemars::JsonSchema;
use qitos::__private::serde::{Deserialize, Serialize};
use qitos::__private::{async_trait, serde_json, serde_json::Value, serde_json::json};
use qitos::tool::call::{BlockingJob, BoxFuture, CallIdentity};
use qitos::tool::function::{EffectRef, SlotId, Toolset};
use qitos::tool::registry::is_tool_name;
use qitos::tool::schema::Schema;
use qitos::tool::spec::ToolAnnotations;
use qitos::tool::{
    ApprovalNeed, CallCtx, CallPort, EffectClass, EffectDeclaration, EffectKey, EffectReport,
    ErrorKind, Facts, PortError, Returned, Tool, ToolError, ToolLifecycle, ToolRegistry, ToolSpec,
};
use qitos::{tool, toolset};
use qitos_contracts::artifact::ArtifactRef;
use qitos_contracts::env::{Ops, OpsGroup};
use qitos_contracts::tool::result::ToolResult;

#[test]
fn tck_5_refused_functions_fail_to_compile_at_the_culprit() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

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
