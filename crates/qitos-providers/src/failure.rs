//! The typed failures of section 4, built from causes alone.
//!
//! Every text in here is constant. Nothing of a body, URL, header or key can reach a failure, because
//! no function takes one (PRV-43, PRV-44).

use std::time::Duration;

use qitos_contracts::model::{
    FailureCategory, FailureStage, ProviderFailure, RequestSent, Target, TimeoutKind, Violation,
};

use crate::classify_failure::{FaultClass, ProviderFault};
use crate::http::TransportError;
use crate::verdict::{Defect, FailedAnswer};

/// The failure that a judged answer gives, with what had arrived of it.
pub(crate) fn of_answer(
    target: &Target,
    answer: &FailedAnswer,
    provider_request_id: Option<&str>,
) -> ProviderFailure {
    let mut failure = of_defect(target, &answer.defect);
    add_counts(&mut failure, answer);
    failure.redacted_details.provider_request_id = provider_request_id.map(str::to_owned);
    failure
}

/// What had arrived before the failure (PRV-43, PRV-75).
pub(crate) fn add_counts(failure: &mut ProviderFailure, answer: &FailedAnswer) {
    let details = &mut failure.redacted_details;
    details.partial_text_characters = answer.counts.text_characters;
    details.partial_reasoning_characters = answer.counts.reasoning_characters;
    details.partial_tool_calls = answer.counts.tool_calls;
    details.usage = answer.usage;
}

/// The failure of an answer that arrived but is no success.
pub(crate) fn of_defect(target: &Target, defect: &Defect) -> ProviderFailure {
    match defect {
        Defect::Violation(violation) => of_violation(target, *violation),
        Defect::Refusal => ProviderFailure::new(
            target,
            FailureCategory::ProviderRefusal,
            "provider_refusal",
            FailureStage::ProviderRejection,
            RequestSent::Yes,
            "the model or the provider's filter refused to answer",
        )
        .with_remediation("change the request; repeating it gives the same refusal"),
        Defect::Fault(fault) => of_fault(target, *fault, None),
        Defect::Incomplete => ProviderFailure::new(
            target,
            FailureCategory::Stream,
            "provider_response_incomplete",
            FailureStage::Stream,
            RequestSent::Yes,
            "the provider declared its answer incomplete",
        )
        .with_remediation("raise the output limit"),
        Defect::Malformed => ProviderFailure::new(
            target,
            FailureCategory::MalformedStructuredResponse,
            "provider_response_malformed",
            FailureStage::MalformedStructuredResponse,
            RequestSent::Yes,
            "the answer does not have the shape of its dialect",
        )
        .with_remediation("check that base_url points at a server of this dialect"),
        Defect::Envelope => ProviderFailure::new(
            target,
            FailureCategory::MalformedResponse,
            "provider_response_envelope_invalid",
            FailureStage::Decode,
            RequestSent::Yes,
            "the answer is JSON but no object",
        )
        .with_remediation("check that base_url points at a server of this dialect"),
        Defect::NotJson => ProviderFailure::new(
            target,
            FailureCategory::ProviderException,
            "provider_response_decode_failed",
            FailureStage::Decode,
            RequestSent::Yes,
            "the answer is not JSON",
        )
        .with_remediation("check that base_url points at a server of this dialect"),
    }
}

fn of_violation(target: &Target, violation: Violation) -> ProviderFailure {
    let mut failure = ProviderFailure::new(
        target,
        FailureCategory::Stream,
        "provider_stream_protocol_error",
        FailureStage::Stream,
        RequestSent::Yes,
        "the answer broke its protocol before it could be verified",
    )
    .with_remediation(match violation {
        Violation::TruncatedToolInput => "raise the output limit",
        Violation::UnknownTerminal => "map the finish reason in the provider's profile",
        Violation::FinishDisallowsTools => {
            "set stop_may_carry_tool_calls in the provider's profile if this server means it"
        }
        Violation::NonSseBody => "this server does not stream; use it without streaming",
        _ => "nothing of the answer was used; start a new attempt",
    });
    failure.redacted_details.violation = Some(violation);
    failure
}

/// A fault that the provider reported; `status` and class decide, words only refine (PRV-40, PRV-41).
pub(crate) fn of_fault(
    target: &Target,
    fault: ProviderFault,
    retry_after: Option<Duration>,
) -> ProviderFailure {
    use FailureCategory as Category;
    use FailureStage as Stage;
    let (category, code, stage, retryable, message, remediation) = match fault.class {
        FaultClass::Rejected => (
            Category::ProviderRejection,
            "provider_request_rejected",
            Stage::ProviderRejection,
            false,
            "the provider rejected the request",
            "check the model's name and the request options",
        ),
        FaultClass::RejectedForNow => (
            Category::ProviderRejection,
            "provider_request_rejected",
            Stage::ProviderRejection,
            true,
            "the provider rejected the request for now",
            "try again later",
        ),
        FaultClass::TooLarge => (
            Category::ProviderRejection,
            "provider_request_too_large",
            Stage::ProviderRejection,
            false,
            "the request is larger than the provider accepts",
            "shorten the context",
        ),
        FaultClass::Authentication => (
            Category::Authentication,
            "provider_authentication_failed",
            Stage::Authentication,
            false,
            "the provider refused the credential",
            "check the credential and its permissions",
        ),
        FaultClass::QuotaExhausted => (
            Category::RateLimit,
            "provider_quota_exhausted",
            Stage::RateLimit,
            false,
            "the account's quota is exhausted",
            "fill the quota; waiting alone does not help",
        ),
        FaultClass::RateLimited => (
            Category::RateLimit,
            "provider_rate_limited",
            Stage::RateLimit,
            true,
            "the provider limits the rate of requests",
            "wait before the next request",
        ),
        FaultClass::Timeout => (
            Category::Timeout,
            "provider_timeout",
            Stage::Timeout,
            true,
            "the provider gave up waiting",
            "try again",
        ),
        FaultClass::ServerError => (
            Category::ProviderServer,
            "provider_server_error",
            Stage::ProviderServer,
            true,
            "the provider failed",
            "try again",
        ),
        FaultClass::ServerErrorFinal => (
            Category::ProviderServer,
            "provider_server_error",
            Stage::ProviderServer,
            false,
            "the provider failed",
            "ask the provider; repeating is not known to help",
        ),
        FaultClass::Overloaded => (
            Category::ProviderServer,
            "provider_overloaded",
            Stage::ProviderServer,
            true,
            "the provider is overloaded",
            "wait before the next request",
        ),
    };
    // Inside a 200 answer the stage is the stream's and no status was told (PRV-41).
    let stage = if fault.status.is_some() {
        stage
    } else {
        Stage::Stream
    };
    let mut failure =
        ProviderFailure::new(target, category, code, stage, RequestSent::Yes, message)
            .with_remediation(remediation);
    failure.retryable = retryable;
    failure.status_code = fault.status.filter(|status| (100..=599).contains(status));
    failure.redacted_details.provider_error_type = fault.word.map(str::to_owned);
    failure.redacted_details.retry_after_ms =
        retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    failure
}

/// How far an attempt had come when its transport failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// A status line had arrived.
    pub(crate) headers: bool,
    /// The attempt streams.
    pub(crate) streaming: bool,
}

impl Reached {
    fn sent(self) -> RequestSent {
        if self.headers {
            RequestSent::Yes
        } else {
            RequestSent::Maybe
        }
    }

    fn phase(self) -> &'static str {
        if self.headers { "body" } else { "opening" }
    }
}

/// The transport failed (PRV-39).
pub(crate) fn of_transport(
    target: &Target,
    error: TransportError,
    reached: Reached,
) -> ProviderFailure {
    if error == TransportError::Construction {
        return construction(target);
    }
    if error == TransportError::ConnectTimeout {
        return of_timeout(target, TimeoutKind::Connect, reached);
    }
    let stage = if reached.headers || reached.streaming {
        FailureStage::Stream
    } else {
        FailureStage::Connection
    };
    let mut failure = ProviderFailure::new(
        target,
        FailureCategory::Connection,
        "provider_connection_failed",
        stage,
        reached.sent(),
        "the connection to the provider failed",
    )
    .with_remediation("check the network and base_url, then try again")
    .retryable();
    failure.redacted_details.cause_kind = Some(error.cause_kind().to_owned());
    failure.redacted_details.transport_phase = Some(reached.phase().to_owned());
    failure
}

/// A time limit passed (PRV-85).
pub(crate) fn of_timeout(target: &Target, kind: TimeoutKind, reached: Reached) -> ProviderFailure {
    let stage = if reached.streaming {
        FailureStage::Stream
    } else {
        FailureStage::Timeout
    };
    let mut failure = ProviderFailure::new(
        target,
        FailureCategory::Timeout,
        "provider_timeout",
        stage,
        reached.sent(),
        "a time limit of the request passed",
    )
    .with_remediation("raise the time limit or try again")
    .retryable();
    failure.redacted_details.timeout_kind = Some(kind);
    failure.redacted_details.transport_phase = Some(reached.phase().to_owned());
    failure
}

/// The client could not be built: nothing was sent (PRV-38).
pub(crate) fn construction(target: &Target) -> ProviderFailure {
    let mut failure = ProviderFailure::new(
        target,
        FailureCategory::ProviderException,
        "provider_client_construction_failed",
        FailureStage::Connection,
        RequestSent::No,
        "the client could not be built",
    )
    .with_remediation("check base_url, headers and the certificate store");
    failure.redacted_details.cause_kind = Some("construction".to_owned());
    failure
}

/// The payload cannot be written: nothing was sent.
pub(crate) fn invalid_payload(target: &Target) -> ProviderFailure {
    ProviderFailure::new(
        target,
        FailureCategory::ProviderException,
        "codec_payload_invalid",
        FailureStage::Encode,
        RequestSent::No,
        "the payload cannot be written as JSON",
    )
    .with_remediation("report the codec that made it")
}

/// A request option cannot be used: nothing was sent.
pub(crate) fn options(target: &Target) -> ProviderFailure {
    ProviderFailure::new(
        target,
        FailureCategory::UnsupportedRequest,
        "codec_transport_options_invalid",
        FailureStage::Projection,
        RequestSent::No,
        "a request option is not valid",
    )
    .with_remediation("check model.request")
}
