//! Provider state that is not there (PRV-29 to PRV-33).

use std::sync::Arc;

use async_trait::async_trait;
use qitos_contracts::canonical_json;
use qitos_contracts::digest::Digest;
use qitos_contracts::log::{AssistantPart, ContinuationAttachment, ReasoningBlock};
use qitos_contracts::model::{
    ContinuationReference, ContinuationResolution, ContinuationResolver, Model, RequestView,
    ResolvedContinuation, ResponsePart, Target, UnresolvedReason,
};
use serde_json::{Value, json};

use super::exchange::{Stopped, exchange};
use super::expect::{body_of, encoded, form, must_succeed, stand, whole_reply, wire};
use super::subject::{Answer, ProviderSubject, needs};
use super::views;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ProviderSubject>> {
    vec![
        Check::new(
            "continuation_missing_fails",
            "without resolver, with an unknown or an expired reference a request fails before sending, or goes out as a declared loss where loss is allowed",
            &["PRV-29", "PRV-30", "PRV-31", "PRV-32"],
            continuation_missing_fails,
        )
        .needing(needs::CONTINUATION),
    ]
}

const KEY: &str = "conformance";

/// Knows one state, or why it does not.
#[derive(Debug)]
struct OneState(Result<Value, UnresolvedReason>);

#[async_trait]
impl ContinuationResolver for OneState {
    fn resolver_key(&self) -> &str {
        KEY
    }

    async fn resolve(&self, reference: &ContinuationReference) -> ContinuationResolution {
        match &self.0 {
            Ok(payload) => ContinuationResolution::Resolved(Box::new(ResolvedContinuation {
                reference: reference.clone(),
                payload: payload.clone(),
            })),
            Err(reason) => ContinuationResolution::Unresolved(*reason),
        }
    }

    async fn capture(&self, _: &Target, _: Value) -> Result<ContinuationReference, String> {
        Err("this resolver keeps nothing".into())
    }
}

fn reference(target: &Target, state: &Value) -> ContinuationReference {
    let bytes = canonical_json::to_bytes(state).unwrap_or_default();
    ContinuationReference {
        reference_id: "state-1".into(),
        resolver_key: KEY.into(),
        provider: target.provider().into(),
        model: target.model().into(),
        api_mode: target.api_mode().into(),
        attachment_id: None,
        payload_digest: Some(Digest::of(&bytes)),
        expires_at: None,
    }
}

/// A history whose answer refers to state at a resolver.
fn continued(
    model: &dyn Model,
    state: &Value,
    parts: &[ResponsePart],
) -> Result<RequestView, Failure> {
    let target = model.target();
    let attachment = ContinuationAttachment {
        attachment_id: "continuation-1".into(),
        reference: reference(target, state),
    };
    let mut kept: Vec<AssistantPart> = Vec::new();
    for part in parts {
        match part {
            ResponsePart::Content(block) => kept.push(AssistantPart::Content(block.clone())),
            ResponsePart::Reasoning {
                block_type, text, ..
            } => kept.push(AssistantPart::ReasoningBlock(ReasoningBlock {
                provider_scope: target.scope().into(),
                reference_id: "reasoning-1".into(),
                attachment_id: Some(Arc::clone(&attachment.attachment_id)),
                block_type: Arc::clone(block_type),
                summary: text.clone(),
            })),
            ResponsePart::ToolCall { .. } => {}
        }
    }
    views::view(
        target,
        vec![
            views::user("think"),
            views::attached(kept, attachment),
            views::user("go on"),
        ],
        &[],
    )
}

async fn continuation_missing_fails(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let form = form(&stage, false);
    let thinking = Answer::text(&["so"]).thinking("because");
    let plain = wire(&stage, &Answer::text(&["and so on"]), form)?;
    let stateful = wire(&stage, &thinking, form)?;
    let first = stand(&stage, vec![whole_reply(&stateful)])?;
    let (_, decoded) = first.ask(false).await?;
    let decoded = must_succeed(decoded, "an answer with provider state")?;
    let Some(state) = decoded.continuation.clone() else {
        return Err(Failure::new(
            "continuation is claimed, and an answer with reasoning hands over no state",
        ));
    };
    let view = continued(&*first.model, &state, &decoded.parts)?;
    let resolved = OneState(Ok(state.clone()));
    let cases: [(&str, Option<UnresolvedReason>); 5] = [
        ("continuation_resolver_missing", None),
        ("continuation_not_found", Some(UnresolvedReason::NotFound)),
        ("continuation_expired", Some(UnresolvedReason::Expired)),
        (
            "resolver_key_mismatch",
            Some(UnresolvedReason::ResolverKeyMismatch),
        ),
        (
            "continuation_digest_mismatch",
            Some(UnresolvedReason::DigestMismatch),
        ),
    ];
    for (code, reason) in cases {
        let resolver = reason.map(|reason| OneState(Err(reason)));
        let resolver = resolver
            .as_ref()
            .map(|resolver| resolver as &dyn ContinuationResolver);
        let stand = stand(&stage, vec![whole_reply(&plain)])?;
        let view = continued(&*stand.model, &state, &decoded.parts)?;
        match exchange(&*stand.model, &view, false, None, resolver).await {
            Err(Stopped::Continuation(seen)) => {
                ensure!(seen == code, "{code}: it became {seen}");
            }
            Ok(_) => {
                return Err(Failure::new(format!(
                    "{code}: sent without its state, and loss is not allowed"
                )));
            }
            Err(stopped) => {
                return Err(Failure::new(format!(
                    "{code}: it became {}",
                    stopped.code()
                )));
            }
        }
        ensure!(
            stand.peer.opened() == 0,
            "{code}: a connection was opened before the refusal"
        );
        let lossy = exchange(&*stand.model, &view, true, None, resolver).await;
        let report = must_succeed(lossy, code)?.report;
        ensure!(
            !report.lossless
                && report
                    .lossy_fields
                    .iter()
                    .any(|field| field == "continuation.state"),
            "{code}: the loss is not declared"
        );
    }
    state_is_applied(&*first.model, &view, &resolved, &stage).await
}

/// With its state the request goes out without loss, and state of another form is refused.
async fn state_is_applied(
    model: &dyn Model,
    view: &RequestView,
    resolved: &OneState,
    stage: &Stage<dyn ProviderSubject>,
) -> Verdict {
    let (mut payload, mut report) = encoded(model, view, false)?;
    let bare = body_of(&payload)?;
    let forged = ResolvedContinuation {
        reference: payload
            .waiting()
            .first()
            .map(|waiting| waiting.reference.clone())
            .ok_or_else(|| Failure::new("nothing waits for the state"))?,
        payload: json!(["no state of this codec"]),
    };
    ensure!(
        model
            .codec()
            .apply_continuation(&mut payload, &forged, &mut report)
            .is_err(),
        "state in another form was taken"
    );
    let plain = wire(stage, &Answer::text(&["and so on"]), form(stage, false))?;
    let stand = stand(stage, vec![whole_reply(&plain)])?;
    let answer = exchange(&*stand.model, view, false, None, Some(resolved)).await;
    let report = must_succeed(answer, "a request with its state")?.report;
    ensure!(
        report.lossless && report.lossy_fields.is_empty(),
        "a request with its state declares a loss"
    );
    let sent = stand.peer.last_request();
    ensure!(
        sent.as_deref() != Some(bare.as_slice()),
        "the state changed nothing about the request"
    );
    Ok(())
}
