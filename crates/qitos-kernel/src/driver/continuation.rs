//! Provider state around one request: resolved before it is sent, captured after its verdict (PRV-29 to PRV-33).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use qitos_contracts::log::ContinuationAttachment;
use qitos_contracts::model::{
    CodecError, CodecReport, ContinuationReference, ContinuationResolution, ContinuationResolver,
    Fallback, ProviderCodec, Target, WirePayload,
};
use serde_json::Value;

/// The one attachment of an answer; its reasoning blocks point at it.
pub(super) const ATTACHMENT: &str = "continuation-1";

/// Why a payload cannot go out with its state.
pub(super) enum Refused {
    /// The state is not there, and going without it is not allowed: the code of PRV-30 or PRV-31.
    Unresolved(&'static str),
    /// The codec could not use it.
    Codec(CodecError),
}

/// Gives a payload the state that its items refer to.
///
/// What cannot be resolved is a declared loss where loss is allowed: the item then goes out as it stands in the log.
pub(super) async fn apply(
    codec: &dyn ProviderCodec,
    resolver: Option<&dyn ContinuationResolver>,
    payload: &mut WirePayload,
    report: &mut CodecReport,
    allow_loss: bool,
) -> Result<(), Refused> {
    // Taken first, because the codec changes what waits; there is one for each answer since the session was loaded.
    let waiting: Vec<ContinuationReference> = payload
        .waiting()
        .iter()
        .map(|state| state.reference.clone())
        .collect();
    for reference in waiting {
        let still_waits = payload
            .waiting()
            .iter()
            .any(|state| state.reference.reference_id == reference.reference_id);
        if !still_waits {
            continue;
        }
        let resolution = match resolver {
            Some(resolver) => resolver.resolve(&reference).await,
            None => {
                give_up(report, allow_loss, "continuation_resolver_missing")?;
                continue;
            }
        };
        match resolution {
            ContinuationResolution::Resolved(resolved) => {
                let applied = catch_unwind(AssertUnwindSafe(|| {
                    codec.apply_continuation(payload, &resolved, report)
                }));
                applied
                    .unwrap_or(Err(CodecError::EncodeFailed {
                        reason: "the codec panicked",
                    }))
                    .map_err(Refused::Codec)?;
            }
            ContinuationResolution::Unresolved(reason) => {
                give_up(report, allow_loss, reason.code())?;
            }
        }
    }
    Ok(())
}

/// Declares the loss of a state, or refuses (PRV-31).
fn give_up(report: &mut CodecReport, allow_loss: bool, code: &'static str) -> Result<(), Refused> {
    if !allow_loss {
        return Err(Refused::Unresolved(code));
    }
    report.continuation = "fallback_to_stateless_replay".to_owned();
    report.fallback = Fallback::StatelessReplay;
    let lost = "continuation.state";
    if !report.lossy_fields.iter().any(|field| field == lost) {
        report.lossy_fields.push(lost.to_owned());
    }
    report.warnings.push(code.to_owned());
    report.lossless = false;
    Ok(())
}

/// Keeps the state of a verified answer outside the log; the code of PRV-33 if that fails.
pub(super) async fn capture(
    resolver: Option<&dyn ContinuationResolver>,
    target: &Target,
    state: Option<Value>,
) -> Result<Vec<ContinuationAttachment>, &'static str> {
    let Some(state) = state else {
        return Ok(Vec::new());
    };
    let resolver = resolver.ok_or("continuation_capture_unavailable")?;
    let reference = resolver
        .capture(target, state)
        .await
        .map_err(|_| "continuation_capture_failed")?;
    Ok(vec![ContinuationAttachment {
        attachment_id: Arc::from(ATTACHMENT),
        reference,
    }])
}
