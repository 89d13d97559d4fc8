//! The Provider contract: request view, codec, verified response, typed failure.
//!
//! ```text
//! RequestView ── codec.encode ──► WirePayload ── model.send ──► RawResponse ── codec.decode ──► DecodedResponse
//! ```
//!
//! The codec never sees credentials, headers or endpoint; the transport never sees the exchange log (PRV-7).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

mod capabilities;
mod continuation;
mod failure;
mod messages_codec;
mod payload;
pub mod request_rules;
mod response;
mod view;

pub use capabilities::{CapabilityError, ProviderCapabilities, Target, TargetError};
pub use continuation::{
    ContinuationReference, ContinuationResolution, ContinuationResolver, ResolvedContinuation,
    UnresolvedReason,
};
pub use failure::{
    FailureCategory, FailureDetails, FailureStage, ProviderError, ProviderFailure, RequestSent,
    TimeoutKind, Violation,
};
pub use messages_codec::MessagesCodec;
pub use payload::{CodecError, CodecReport, Fallback, WaitingState, WirePayload};
pub use response::{DecodedResponse, Finish, FinishReason, RawResponse, ResponsePart, TokenUsage};
pub use view::{
    ContextBudget, CorrelationFacts, Instruction, InstructionRole, PrefixDigests, ReasoningMode,
    ReasoningPolicy, RequestView, SelectionReport, SteeringBoundary, ToolSchema, ToolSchemas,
    ToolUsePolicy, UnitKind, ViewSource,
};

/// Receives text while it streams.
///
/// # Contract
/// Called in wire order on the task that drives the request; the next piece is not read until it returns
/// (PRV-93). An error stops the request and comes back unchanged as [`ProviderError::Consumer`] (PRV-94).
pub trait DeltaSink: Send {
    /// A piece of the answer's text.
    ///
    /// # Errors
    /// Any error of the consumer's own.
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

/// A model behind some transport.
///
/// # Contract
/// * `target`, `capabilities` and `codec` return the same values for the life of the object.
/// * One `send` is one wire request: no hidden retry, fallback or resend with fewer options (PRV-86).
/// * Success is returned only after the provider's terminal was verified (PRV-50).
/// * Every connection and body is closed on success, failure, callback error and drop (PRV-90).
#[async_trait]
pub trait Model: fmt::Debug + Send + Sync + 'static {
    /// What the model is; declared, never inferred from a name (PRV-8).
    fn target(&self) -> &Arc<Target>;

    /// What it can do (PRV-10).
    fn capabilities(&self) -> &ProviderCapabilities;

    /// Its codec.
    fn codec(&self) -> &dyn ProviderCodec;

    /// Sends one request; with a sink it streams, and the joined deltas equal the answer's text (PRV-19).
    ///
    /// # Errors
    /// [`ProviderError::Failure`] by the table of section 4; [`ProviderError::Consumer`] with the sink's own error.
    ///
    /// # Cancel safety
    /// Dropping the future closes everything within a second and calls nothing afterwards; whether the provider
    /// acted on the request is then unknown (PRV-96).
    async fn send(
        &self,
        payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError>;
}

/// Translates between the request view and a dialect's JSON; pure and synchronous.
pub trait ProviderCodec: fmt::Debug + Send + Sync + 'static {
    /// Stable id and version, such as `("qitos.openai.chat", 1)`.
    fn id(&self) -> (&str, u32);

    /// Writes the view as a payload and says what it cost (PRV-12 to PRV-15).
    ///
    /// # Errors
    /// `codec_capability_mismatch` for what the target cannot do, allowed loss or not; `codec_loss_rejected` for
    /// loss that is not allowed; `codec_encode_failed`. Nothing was sent.
    fn encode(
        &self,
        view: &RequestView,
        capabilities: &ProviderCapabilities,
        allow_loss: bool,
    ) -> Result<(WirePayload, CodecReport), CodecError>;

    /// Puts resolved provider state into the payload; called for each of [`WirePayload::waiting`], oldest first
    /// (PRV-32).
    ///
    /// # Errors
    /// `codec_encode_failed` if the state does not have the codec's form.
    fn apply_continuation(
        &self,
        payload: &mut WirePayload,
        resolved: &ResolvedContinuation,
        report: &mut CodecReport,
    ) -> Result<(), CodecError>;

    /// Validates a response, streamed or not, and gives its normal form (PRV-18, PRV-49).
    ///
    /// # Errors
    /// A typed failure, `request_sent` = yes; nothing of the response may be used then.
    fn decode(
        &self,
        response: RawResponse,
        view: &RequestView,
    ) -> Result<DecodedResponse, Box<ProviderFailure>>;
}
