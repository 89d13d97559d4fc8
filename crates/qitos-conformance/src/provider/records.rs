//! What is written down can be read back: capabilities, views, reports (PRV-10, PRV-11, PRV-13).

use qitos_contracts::canonical_json;
use qitos_contracts::model::{CodecReport, ProviderCapabilities, RequestView};
use serde_json::{Value, json};

use super::expect::{Stand, body_of, encoded, stand};
use super::subject::{CANARY, ProviderSubject};
use super::views;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ProviderSubject>> {
    vec![
        Check::new(
            "capabilities_round_trip",
            "capabilities go to JSON and back unchanged; contradicting flags, unknown fields and units of zero are refused",
            &["PRV-10"],
            capabilities_round_trip,
        ),
        Check::new(
            "view_round_trip",
            "a view goes to JSON text and back unchanged, encoding changes nothing of it, and equal views give equal payloads",
            &["PRV-11", "PRV-12"],
            view_round_trip,
        ),
        Check::new(
            "report_round_trip",
            "a codec's report goes to JSON and back unchanged and names its request; a `lossless` flag that disagrees is refused",
            &["PRV-13"],
            report_round_trip,
        ),
    ]
}

async fn capabilities_round_trip(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let stand = stand(&stage, Vec::new())?;
    let capabilities = stand.model.capabilities();
    ensure!(
        *capabilities == stage.subject().capabilities(),
        "the model does not claim what its subject says"
    );
    ensure!(
        capabilities.target == **stand.model.target(),
        "the capabilities are those of another target"
    );
    if let Err(error) = capabilities.check() {
        return Err(Failure::new(error.to_string()));
    }
    let written = json!(capabilities);
    let refused = |changed: Value, what: &str| {
        let read = serde_json::from_value::<ProviderCapabilities>(changed);
        let valid = read.is_ok_and(|read| read.check().is_ok());
        ensure!(!valid, "{what} was accepted");
        Ok(())
    };
    match serde_json::from_str::<ProviderCapabilities>(&written.to_string()) {
        Ok(read) => ensure!(read == *capabilities, "read back it is another value"),
        Err(error) => {
            return Err(Failure::new(format!("it cannot be read back: {error}")));
        }
    }
    let with = |key: &str, value: Value| {
        let mut changed = written.clone();
        if let Some(object) = changed.as_object_mut() {
            object.insert(key.into(), value);
        }
        changed
    };
    for (feature, flag) in [
        ("tool_calls", "supports_native_tool_calls"),
        ("parallel_tool_calls", "supports_parallel_tool_calls"),
        ("tool_schemas", "supports_tool_schemas"),
        ("multimodal", "supports_multimodal_input"),
        ("continuation", "supports_continuation"),
        ("streaming", "supports_streaming"),
    ] {
        let flipped = json!(!capabilities.has(feature));
        refused(with(flag, flipped), "a flag without its feature")?;
    }
    refused(with("x_unknown", json!(true)), "a field that nobody knows")?;
    for key in ["max_input_units", "max_output_units"] {
        refused(with(key, json!(0)), "a capacity of zero")?;
    }
    Ok(())
}

/// A payload and report of a view, as bytes and JSON.
fn written(stand: &Stand, view: &RequestView) -> Result<(Vec<u8>, Value), Failure> {
    let (payload, report) = encoded(&*stand.model, view, true)?;
    Ok((body_of(&payload)?, json!(report)))
}

async fn view_round_trip(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let stand = stand(&stage, Vec::new())?;
    let made = || views::rich(stand.model.target(), stand.model.capabilities(), "said");
    let (view, _) = made()?;
    let before = view.to_json();
    let text = canonical_json::to_bytes(&before)
        .map_err(|_| Failure::new("the view holds what canonical JSON cannot write"))?;
    let read = serde_json::from_slice::<Value>(&text);
    ensure!(
        read.is_ok_and(|read| read == before),
        "the view's text says something else than the view"
    );
    let first = written(&stand, &view)?;
    ensure!(view.to_json() == before, "encoding changed the view");
    let text = String::from_utf8_lossy(&text);
    ensure!(!text.contains(CANARY), "the view holds a secret");
    ensure!(
        serde_json::from_slice::<Value>(&first.0).is_ok_and(|body| body.is_object()),
        "the payload is not one JSON object"
    );
    ensure!(
        written(&stand, &view)? == first,
        "the same view encoded again gives another payload or report"
    );
    let (equal, _) = made()?;
    ensure!(
        written(&stand, &equal)? == first,
        "an equal view gives another payload or report"
    );
    Ok(())
}

async fn report_round_trip(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let stand = stand(&stage, Vec::new())?;
    let target = stand.model.target();
    let (rich, _) = views::rich(target, stand.model.capabilities(), "said")?;
    let lossy = views::view(
        target,
        vec![
            views::user_content(vec![views::image("image_file", "image")]),
            views::assistant(vec![views::reasoning(target, "thought", "because")]),
            views::user("go on"),
        ],
        &[],
    )?;
    for view in [stand.question()?, rich, lossy] {
        let (_, report) = encoded(&*stand.model, &view, true)?;
        ensure!(
            report.is_consistent(),
            "a report says lossless = {} beside {} lossy and {} unsupported fields",
            report.lossless,
            report.lossy_fields.len(),
            report.unsupported.len()
        );
        let (id, version) = stand.model.codec().id();
        ensure!(
            report.schema_version == CodecReport::SCHEMA
                && report.codec_id == id
                && report.codec_version == version
                && report.request_id == view.request_id
                && report.target == **target
                && *report.protocol_id == *view.protocol_id
                && report.tool_use_policy == view.tool_use_policy
                && report.tool_use_satisfied == view.tool_use_satisfied,
            "a report is about another request, target or codec"
        );
        let mut written = json!(report);
        match serde_json::from_value::<CodecReport>(written.clone()) {
            Ok(read) => ensure!(read == report, "read back it is another report"),
            Err(error) => {
                return Err(Failure::new(format!("it cannot be read back: {error}")));
            }
        }
        if let Some(object) = written.as_object_mut() {
            object.insert("lossless".into(), json!(!report.lossless));
        }
        let forged = serde_json::from_value::<CodecReport>(written);
        ensure!(
            !forged.is_ok_and(|forged| forged.is_consistent()),
            "a report whose flag disagrees is accepted"
        );
    }
    Ok(())
}
