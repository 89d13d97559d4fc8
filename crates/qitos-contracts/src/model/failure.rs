//! Typed failures of a provider attempt (section 4).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CodecReport, Target, TokenUsage};
use crate::digest::Digest;
use crate::error::{ContractError, Performed, Retry};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// The word of the specification.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }

            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
        }
    };
}

words!(
    /// Categories of PRV-36.
    FailureCategory {
        /// The model refused.
        ProviderRefusal = "provider_refusal",
        /// The provider refused the request.
        ProviderRejection = "provider_rejection",
        /// The provider failed.
        ProviderServer = "provider_server",
        /// The client failed.
        ProviderException = "provider_exception",
        /// The response's envelope is wrong.
        MalformedResponse = "malformed_response",
        /// The response's structure is wrong.
        MalformedStructuredResponse = "malformed_structured_response",
        /// The request cannot be made.
        UnsupportedRequest = "unsupported_request",
        /// The request would lose content.
        CapabilityLoss = "capability_loss",
        /// The budget refused.
        Admission = "admission",
        /// No connection.
        Connection = "connection",
        /// The key was refused.
        Authentication = "authentication",
        /// Too many requests, or the quota ended.
        RateLimit = "rate_limit",
        /// A time limit passed.
        Timeout = "timeout",
        /// The transport broke.
        Transport = "transport",
        /// The stream broke its protocol.
        Stream = "stream",
        /// The response could not be decoded.
        Decode = "decode",
        /// Cancelled.
        Cancellation = "cancellation",
    }
);

words!(
    /// Stages of PRV-36.
    FailureStage {
        /// Writing the payload.
        Encode = "encode",
        /// Preparing it.
        Projection = "projection",
        /// Asking the budget.
        Admission = "admission",
        /// Opening the connection.
        Connection = "connection",
        /// Sending.
        Transport = "transport",
        /// Waiting.
        Timeout = "timeout",
        /// The key.
        Authentication = "authentication",
        /// The rate.
        RateLimit = "rate_limit",
        /// The provider's refusal.
        ProviderRejection = "provider_rejection",
        /// The provider's failure.
        ProviderServer = "provider_server",
        /// Cancelled.
        Cancellation = "cancellation",
        /// Reading the stream.
        Stream = "stream",
        /// Decoding.
        Decode = "decode",
        /// Structure of the answer.
        MalformedStructuredResponse = "malformed_structured_response",
        /// Loss.
        CapabilityLoss = "capability_loss",
    }
);

words!(
    /// What a stream did wrong (PRV-42, closed list).
    Violation {
        /// Ended before its terminal.
        MissingTerminal = "missing_terminal",
        /// A terminal nobody knows.
        UnknownTerminal = "unknown_terminal",
        /// Two terminals.
        ConflictingTerminal = "conflicting_terminal",
        /// Content after the terminal.
        ContentAfterTerminal = "content_after_terminal",
        /// A tool terminal without a call.
        TerminalWithoutTool = "terminal_without_tool",
        /// Calls under a finish that has none.
        FinishDisallowsTools = "finish_disallows_tools",
        /// A call whose arguments are not whole.
        IncompleteToolInput = "incomplete_tool_input",
        /// A call cut by the limit.
        TruncatedToolInput = "truncated_tool_input",
        /// A call without id or name.
        ToolIdentityMissing = "tool_identity_missing",
        /// Calls that cannot be told apart.
        ToolIdentityConflict = "tool_identity_conflict",
        /// Usage that contradicts itself.
        UsageConflict = "usage_conflict",
        /// An event that cannot be read.
        MalformedEvent = "malformed_event",
        /// Events in a wrong order.
        EventOrder = "event_order",
        /// A choice beyond the first.
        ExtraChoice = "extra_choice",
        /// Not an event stream.
        NonSseBody = "non_sse_body",
        /// Pieces and whole disagree.
        SnapshotMismatch = "snapshot_mismatch",
        /// Asks for an action that was not offered.
        UnsupportedClientAction = "unsupported_client_action",
        /// Over a bound of PRV-60.
        LimitExceeded = "limit_exceeded",
    }
);

words!(
    /// Did the request leave the process (PRV-37)?
    RequestSent {
        /// Proven not.
        No = "no",
        /// Nobody can tell.
        Maybe = "maybe",
        /// An answer began.
        Yes = "yes",
    }
);

words!(
    /// Which time limit passed (PRV-85).
    TimeoutKind {
        /// Connecting.
        Connect = "connect",
        /// Waiting for the status line.
        Header = "header",
        /// No byte.
        Idle = "idle",
        /// No data event.
        Progress = "progress",
        /// The whole request.
        Total = "total",
    }
);

/// Everything else that a failure may say (PRV-43): counts and closed words, never content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FailureDetails {
    /// Closed word for the cause.
    pub cause_kind: Option<String>,
    /// What the stream did wrong.
    pub violation: Option<Violation>,
    /// 0 or 1.
    pub transport_attempts: u8,
    /// Where the transport was.
    pub transport_phase: Option<String>,
    /// Which time limit passed.
    pub timeout_kind: Option<TimeoutKind>,
    /// How long the provider asks to wait.
    pub retry_after_ms: Option<u64>,
    /// Usage reported before the failure.
    pub usage: Option<TokenUsage>,
    /// Text received, in Unicode scalars.
    pub partial_text_characters: u64,
    /// Calls begun.
    pub partial_tool_calls: u64,
    /// Reasoning received, in Unicode scalars.
    pub partial_reasoning_characters: u64,
    /// Resources that failed to close.
    pub cleanup_failures: u64,
    /// The provider's word, from a closed list, else `other`.
    pub provider_error_type: Option<String>,
    /// `[A-Za-z0-9_-]{1,128}`.
    pub provider_request_id: Option<String>,
}

/// `qitos.provider_failure/v1`: how one attempt failed.
///
/// `message` is a constant text; nothing in here comes from a body, URL, header or key (PRV-43, PRV-44).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("{message}")]
pub struct ProviderFailure {
    /// Category.
    pub category: FailureCategory,
    /// Constant text.
    pub message: String,
    /// Whose failure.
    pub provider: String,
    /// Its dialect.
    pub api_mode: String,
    /// The same request may succeed later.
    pub retryable: bool,
    /// Status, if a status line told it (PRV-41).
    pub status_code: Option<u16>,
    /// Stable code.
    pub error_code: String,
    /// Where it happened.
    pub stage: FailureStage,
    /// Whether the request left the process.
    pub request_sent: RequestSent,
    /// What a person can do.
    pub remediation: String,
    /// Digest that ties the failure to its attempt.
    pub correlation_digest: Option<Digest>,
    /// Counts and closed words.
    pub redacted_details: FailureDetails,
    /// What encoding cost, if it got so far.
    pub codec_report: Option<Box<CodecReport>>,
}

impl ProviderFailure {
    /// A failure of `target` with empty details.
    #[must_use]
    pub fn new(
        target: &Target,
        category: FailureCategory,
        error_code: &str,
        stage: FailureStage,
        request_sent: RequestSent,
        message: &str,
    ) -> Self {
        ProviderFailure {
            category,
            message: message.into(),
            provider: target.provider().into(),
            api_mode: target.api_mode().into(),
            retryable: false,
            status_code: None,
            error_code: error_code.into(),
            stage,
            request_sent,
            remediation: String::new(),
            correlation_digest: None,
            redacted_details: FailureDetails {
                transport_attempts: u8::from(request_sent != RequestSent::No),
                ..FailureDetails::default()
            },
            codec_report: None,
        }
    }

    /// The same failure, worth repeating.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// The same failure with a remedy for people.
    #[must_use]
    pub fn with_remediation(mut self, remediation: &str) -> Self {
        self.remediation = remediation.into();
        self
    }

    /// How long the provider asks to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.redacted_details
            .retry_after_ms
            .map(Duration::from_millis)
    }
}

impl ContractError for ProviderFailure {
    fn code(&self) -> &str {
        &self.error_code
    }

    fn retry(&self) -> Retry {
        match (self.retryable, self.redacted_details.retry_after_ms) {
            (true, Some(_)) => Retry::AfterDelay,
            (true, None) => Retry::SameRequest,
            (false, _) => Retry::Never,
        }
    }

    fn performed(&self) -> Performed {
        match self.request_sent {
            RequestSent::No => Performed::No,
            RequestSent::Maybe => Performed::Unknown,
            RequestSent::Yes => Performed::Yes,
        }
    }
}

/// Why [`send`](super::Model::send) gave no response.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The attempt failed.
    #[error(transparent)]
    Failure(#[from] Box<ProviderFailure>),
    /// The consumer's callback failed; its error, unchanged (PRV-94).
    #[error("the consumer of the stream failed")]
    Consumer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<ProviderFailure> for ProviderError {
    fn from(failure: ProviderFailure) -> Self {
        ProviderError::Failure(Box::new(failure))
    }
}
