//! One execution in the order of PRV-16, as an engine performs it; checks judge what comes out.

use std::error::Error;

use qitos_contracts::model::{
    CodecError, CodecReport, ContinuationReference, ContinuationResolution, ContinuationResolver,
    DeltaSink, Fallback, Model, ProviderError, ProviderFailure, RequestView, WirePayload,
};

/// What an execution gave.
#[derive(Debug)]
pub(super) struct Exchanged {
    pub(super) report: CodecReport,
}

/// Why it gave nothing.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The codec refused; nothing was sent.
    Codec(CodecError),
    /// Provider state is not there and going without it is not allowed; nothing was sent (PRV-31).
    Continuation(&'static str),
    /// The attempt failed.
    Failure(Box<ProviderFailure>),
    /// The callback failed.
    Consumer(Box<dyn Error + Send + Sync>),
}

impl Stopped {
    /// Its code, for explanations.
    pub(super) fn code(&self) -> String {
        use qitos_contracts::error::ContractError as _;
        match self {
            Stopped::Codec(error) => error.code().to_owned(),
            Stopped::Continuation(code) => (*code).to_owned(),
            Stopped::Failure(failure) => match failure.redacted_details.violation {
                Some(violation) => format!("{} ({})", failure.error_code, violation.as_str()),
                None => failure.error_code.clone(),
            },
            Stopped::Consumer(_) => "the consumer's error".to_owned(),
        }
    }
}

/// Encodes, sends and decodes.
pub(super) async fn exchange(
    model: &dyn Model,
    view: &RequestView,
    allow_loss: bool,
    sink: Option<&mut dyn DeltaSink>,
    resolver: Option<&dyn ContinuationResolver>,
) -> Result<Exchanged, Stopped> {
    let capabilities = model.capabilities();
    if sink.is_some() && !capabilities.supports_streaming {
        return Err(Stopped::Codec(CodecError::CapabilityMismatch {
            unsupported: vec!["streaming".into()],
        }));
    }
    let codec = model.codec();
    let (mut payload, mut report) = codec
        .encode(view, capabilities, allow_loss)
        .map_err(Stopped::Codec)?;
    continue_from(model, resolver, &mut payload, &mut report, allow_loss).await?;
    let raw = send(model, payload, sink).await?;
    codec.decode(raw, view).map_err(Stopped::Failure)?;
    Ok(Exchanged { report })
}

/// One attempt.
pub(super) async fn send(
    model: &dyn Model,
    payload: WirePayload,
    sink: Option<&mut dyn DeltaSink>,
) -> Result<qitos_contracts::model::RawResponse, Stopped> {
    model
        .send(payload, sink)
        .await
        .map_err(|error| match error {
            ProviderError::Failure(failure) => Stopped::Failure(failure),
            ProviderError::Consumer(error) => Stopped::Consumer(error),
        })
}

/// Gives the payload the provider state that it waits for (PRV-30, PRV-31).
async fn continue_from(
    model: &dyn Model,
    resolver: Option<&dyn ContinuationResolver>,
    payload: &mut WirePayload,
    report: &mut CodecReport,
    allow_loss: bool,
) -> Result<(), Stopped> {
    let waiting: Vec<ContinuationReference> = payload
        .waiting()
        .iter()
        .map(|state| state.reference.clone())
        .collect();
    for reference in waiting {
        let waits = |state: &qitos_contracts::model::WaitingState| {
            state.reference.reference_id == reference.reference_id
        };
        if !payload.waiting().iter().any(waits) {
            continue;
        }
        let missing = match resolver {
            None => "continuation_resolver_missing",
            Some(resolver) => match resolver.resolve(&reference).await {
                ContinuationResolution::Resolved(resolved) => {
                    model
                        .codec()
                        .apply_continuation(payload, &resolved, report)
                        .map_err(Stopped::Codec)?;
                    continue;
                }
                ContinuationResolution::Unresolved(reason) => reason.code(),
            },
        };
        if !allow_loss {
            return Err(Stopped::Continuation(missing));
        }
        report.continuation = "fallback_to_stateless_replay".into();
        report.fallback = Fallback::StatelessReplay;
        report.lossy_fields.push("continuation.state".into());
        report.warnings.push(missing.into());
        report.lossless = false;
    }
    Ok(())
}
