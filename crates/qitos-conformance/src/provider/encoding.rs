//! What may reach the wire, and what is refused before (PRV-7, PRV-14 to PRV-16).

use std::sync::Arc;

use qitos_contracts::error::ContractError as _;
use qitos_contracts::log::ItemBody;
use qitos_contracts::model::{
    CodecError, ContinuationReference, Model, ProviderCapabilities, ReasoningMode, RequestView,
    Target, ToolUsePolicy,
};
use serde_json::Value;

use super::exchange::{Stopped, exchange};
use super::expect::{Stand, body_of, encoded, stand};
use super::subject::{CANARY, ProviderSubject};
use super::views::{
    TOOLS, assistant, call, image, reasoning, result, rich, text, user, user_content, view,
};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ProviderSubject>> {
    vec![
        Check::new(
            "no_secret_keys_in_payload",
            "no key of a payload names a credential or a header, and no value is one",
            &["PRV-7"],
            no_secret_keys_in_payload,
        ),
        Check::new(
            "undeclared_loss_refused",
            "what the codec cannot carry is named in its report and refused unless loss is allowed; the rest is in the payload",
            &["PRV-14"],
            undeclared_loss_refused,
        ),
        Check::new(
            "unsupported_refused_before_send",
            "what the target cannot do is `codec_capability_mismatch`, also with loss allowed, and nothing is sent",
            &["PRV-14", "PRV-15", "PRV-16"],
            unsupported_refused_before_send,
        ),
    ]
}

const SECRET_KEYS: [&str; 9] = [
    "authorization",
    "apikey",
    "credential",
    "password",
    "secret",
    "cookie",
    "header",
    "accesstoken",
    "refreshtoken",
];

fn secret_key(value: &Value) -> Option<&'static str> {
    match value {
        Value::Object(object) => object.iter().find_map(|(key, value)| {
            let plain: String = key
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .map(|letter| letter.to_ascii_lowercase())
                .collect();
            let named = SECRET_KEYS.into_iter().find(|word| plain.contains(word));
            named.or_else(|| secret_key(value))
        }),
        Value::Array(list) => list.iter().find_map(secret_key),
        _ => None,
    }
}

async fn no_secret_keys_in_payload(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let stand = stand(&stage, Vec::new())?;
    let (rich, _) = rich(stand.model.target(), stand.model.capabilities(), "said")?;
    for view in [stand.question()?, rich] {
        let (payload, report) = encoded(&*stand.model, &view, true)?;
        let body = body_of(&payload)?;
        let value: Value = serde_json::from_slice(&body)
            .map_err(|_| Failure::new("the payload is not one JSON value"))?;
        if let Some(word) = secret_key(&value) {
            return Err(Failure::new(format!(
                "a key of the payload matches `{word}`"
            )));
        }
        let told = [
            String::from_utf8_lossy(&body).into_owned(),
            format!("{report:?} {payload:?}"),
        ];
        ensure!(
            !told.iter().any(|text| text.contains(CANARY)),
            "the codec knows the credential or the address"
        );
    }
    Ok(())
}

/// A part of a history that a codec may be unable to carry.
struct Carried {
    what: &'static str,
    view: RequestView,
    /// Text that is in the payload exactly if the part was carried; in this order.
    markers: Vec<String>,
    /// The name of the loss; none for what every codec carries.
    loss: Option<String>,
}

fn carried(
    target: &Arc<Target>,
    capabilities: &ProviderCapabilities,
) -> Result<Vec<Carried>, Failure> {
    let (view_of_texts, markers) = rich(target, capabilities, "marker")?;
    let mut parts = vec![Carried {
        what: "text",
        view: view_of_texts,
        markers,
        loss: None,
    }];
    for kind in ["image_url", "image_base64", "image_file"] {
        let marker = format!("marker{}", kind.replace('_', ""));
        parts.push(Carried {
            what: "an image",
            view: view(target, vec![user_content(vec![image(kind, &marker)])], &[])?,
            markers: vec![marker.clone()],
            loss: Some(format!("multimodal.{kind}")),
        });
        let answer = assistant(vec![
            text("before"),
            qitos_contracts::log::AssistantPart::Content(image(kind, &marker)),
        ]);
        parts.push(Carried {
            what: "an image of an answer",
            view: view(target, vec![user("draw"), answer, user("more")], &[])?,
            markers: vec![marker],
            loss: Some(format!("assistant.multimodal.{kind}")),
        });
    }
    for block_type in ["reasoning_content", "thinking", "reasoning"] {
        let marker = format!("marker{}", block_type.replace('_', ""));
        let answer = assistant(vec![reasoning(target, block_type, &marker), text("so")]);
        parts.push(Carried {
            what: "reasoning",
            view: view(target, vec![user("why"), answer, user("and")], &[])?,
            markers: vec![marker],
            loss: Some("assistant.reasoning".into()),
        });
    }
    if capabilities.supports_native_tool_calls {
        let first = "markerfirst".to_owned();
        let second = "markersecond".to_owned();
        let third = "markerthird".to_owned();
        let arguments = format!("{{\"n\":\"{second}\"}}");
        let answer = assistant(vec![
            text(&first),
            call(target, "one", &arguments)?,
            text(&third),
        ]);
        let given = result(target, "one", 5.into())?;
        let bodies: Vec<ItemBody> = vec![user("add"), answer, given];
        parts.push(Carried {
            what: "text behind a call",
            view: view(target, bodies, &TOOLS)?,
            markers: vec![first, second, third],
            loss: Some("assistant.ordered_interleaving".into()),
        });
    }
    for part in &mut parts {
        part.view.reasoning_policy.allow_loss = false;
    }
    Ok(parts)
}

async fn undeclared_loss_refused(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let stand = stand(&stage, Vec::new())?;
    for part in carried(stand.model.target(), stand.model.capabilities())? {
        is_carried_or_named(&*stand.model, &part)?;
    }
    Ok(())
}

fn is_carried_or_named(model: &dyn Model, part: &Carried) -> Verdict {
    let what = part.loss.as_deref().unwrap_or(part.what);
    let encode = |allow_loss| {
        model
            .codec()
            .encode(&part.view, model.capabilities(), allow_loss)
    };
    let (payload, report) = encode(true).map_err(|error| {
        Failure::new(format!(
            "{what}: refused with {} although loss is allowed",
            error.code()
        ))
    })?;
    let body = String::from_utf8_lossy(&body_of(&payload)?).into_owned();
    let places: Vec<Option<usize>> = part.markers.iter().map(|text| body.find(text)).collect();
    // Only interleaving is about order; elsewhere a codec may put instructions and context where it wants.
    let ordered = part.what != "text behind a call" || places.is_sorted();
    let whole = places.iter().all(Option::is_some) && ordered;
    let names = |fields: &[String]| match &part.loss {
        Some(loss) => fields.contains(loss),
        None => false,
    };
    ensure!(
        whole || names(&report.lossy_fields),
        "{what}: left out, and the report does not name it"
    );
    match encode(false) {
        Ok((_, strict)) => ensure!(
            whole && strict.lossless && report.lossy_fields.is_empty(),
            "{what}: lost although loss is not allowed"
        ),
        Err(CodecError::LossRejected { lossy_fields }) => ensure!(
            names(&lossy_fields),
            "{what}: refused as a loss of something else"
        ),
        Err(error) => {
            return Err(Failure::new(format!(
                "{what}: refused with {} instead of codec_loss_rejected",
                error.code()
            )));
        }
    }
    Ok(())
}

/// A request that the target cannot serve.
type Demand = (&'static str, RequestView);

fn demands(stand: &Stand) -> Result<Vec<Demand>, Failure> {
    let capabilities = stand.model.capabilities();
    let target = stand.model.target();
    let plain = || view(target, vec![user("question")], &[]);
    let mut demands = Vec::new();
    let mut add = |what, made: RequestView| demands.push((what, made));

    let other = Target::new(
        target.provider(),
        &format!("{}-other", target.model()),
        target.transport(),
        target.api_mode(),
    )
    .map_err(|_| Failure::new("a target was refused"))?;
    add(
        "another target",
        view(&Arc::new(other), vec![user("question")], &[])?,
    );
    let mut unknown = plain()?;
    unknown.capability_requirements = vec!["x.conformance.absent".into()];
    add("an unknown feature", unknown);
    if !capabilities.supports_tool_schemas {
        add("tools", view(target, vec![user("question")], &TOOLS)?);
    }
    if !capabilities.supports_tool_choice {
        let mut forced = view(target, vec![user("question")], &TOOLS)?;
        forced.tool_use_policy = ToolUsePolicy::RequiredForNextDecision;
        add("a forced choice", forced);
    }
    for (mode, word) in [
        (ReasoningMode::InlineReplay, "inline_replay"),
        (ReasoningMode::SignedBlockReplay, "signed_block_replay"),
        (
            ReasoningMode::NativeItemContinuation,
            "native_item_continuation",
        ),
    ] {
        if !capabilities.reasoning_modes.iter().any(|have| have == word) {
            let mut demanding = plain()?;
            demanding.reasoning_policy.mode = mode;
            add(word, demanding);
        }
    }
    if !capabilities.supports_continuation {
        let mut continued = plain()?;
        continued.continuation = Some(ContinuationReference {
            reference_id: "state-1".into(),
            resolver_key: "conformance".into(),
            provider: target.provider().into(),
            model: target.model().into(),
            api_mode: target.api_mode().into(),
            attachment_id: None,
            payload_digest: None,
            expires_at: None,
        });
        add("a continuation", continued);
    }
    Ok(demands)
}

async fn unsupported_refused_before_send(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let stand = stand(&stage, Vec::new())?;
    for (what, view) in demands(&stand)? {
        for allow_loss in [false, true] {
            match exchange(&*stand.model, &view, allow_loss, None, None).await {
                Err(Stopped::Codec(CodecError::CapabilityMismatch { unsupported })) => ensure!(
                    !unsupported.is_empty(),
                    "{what}: a mismatch that names nothing"
                ),
                Err(stopped) => {
                    return Err(Failure::new(format!(
                        "{what}: {} instead of codec_capability_mismatch",
                        stopped.code()
                    )));
                }
                Ok(_) => return Err(Failure::new(format!("{what}: it was sent and answered"))),
            }
        }
    }
    capacities(&stand)?;
    ensure!(
        stand.peer.opened() == 0 && stand.peer.request_count() == 0,
        "something was sent"
    );
    Ok(())
}

/// Capacities are met exactly, and not by one unit more (PRV-15).
fn capacities(stand: &Stand) -> Verdict {
    const CAPACITY: u64 = 1_000;
    for (what, over) in [
        ("context_window", false),
        ("context_window", true),
        ("output_budget", false),
        ("output_budget", true),
    ] {
        let mut view = stand.question()?;
        let mut capabilities = stand.model.capabilities().clone();
        let units = CAPACITY + u64::from(over);
        if what == "context_window" {
            capabilities.max_input_units = Some(CAPACITY);
            view.selection.selected_units = units;
        } else {
            capabilities.max_output_units = Some(CAPACITY);
            view.context_budget.reserved_output_units = units;
        }
        for allow_loss in [false, true] {
            let answer = stand.model.codec().encode(&view, &capabilities, allow_loss);
            match answer {
                Ok(_) if !over => {}
                Err(CodecError::CapabilityMismatch { unsupported }) if over => ensure!(
                    unsupported.iter().any(|name| name == what),
                    "{what}: the mismatch names something else"
                ),
                Ok(_) => return Err(Failure::new(format!("{what}: exceeded and accepted"))),
                Err(error) => {
                    return Err(Failure::new(format!(
                        "{what}: met exactly or exceeded by one, refused with {}",
                        error.code()
                    )));
                }
            }
        }
    }
    Ok(())
}
