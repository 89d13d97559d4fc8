//! The flaws of wrong providers, and the checks that must reject them.

use qitos_contracts::model::ProviderCapabilities;

flaws!(
    /// Claims a continuation that its features do not list, or the other way round.
    ClaimsAgainstItself => "capabilities_round_trip",
    /// Each payload holds how many were encoded before it.
    CountsItsPayloads => "view_round_trip",
    /// Its report says lossless when it is not, and not when it is.
    MiscallsLosses => "report_round_trip",
    /// The key travels in the payload.
    PutsTheKeyIntoThePayload => "no_secret_keys_in_payload",
    /// What it cannot carry is left out and not named.
    HidesLosses => "undeclared_loss_refused",
    /// With loss allowed it leaves out what the target cannot do, and sends the rest.
    SendsTheUnsupported => "unsupported_refused_before_send",
    /// Building it opens a connection, to see whether somebody is there.
    ConnectsEarly => "construction_sends_nothing",
    /// Parts come back last first.
    ReversesParts => "part_order",
    /// The callback is given every piece twice.
    RepeatsDeltas => "deltas_equal_text",
    /// No answer is good enough.
    RefusesEverything => "deltas_equal_text",
    /// Text that was shown is an answer, however the stream ends.
    TakesAnyEndForTheTerminal => "no_success_without_terminal",
    /// Whatever fails is an answer.
    AnswersAnyway => "no_success_without_terminal",
    /// A call that was cut is completed to one without arguments.
    CompletesHalfCalls => "half_call_never_returned",
    /// Usage that nobody reported is 0.
    InventsUsage => "usage_unknown_stays_unknown",
    /// The key stands in the message of each failure.
    TellsTheKey => "failure_is_redacted",
    /// A callback's error comes back as its text.
    RewrapsConsumerErrors => "consumer_error_unchanged",
    /// A dropped attempt keeps its connection.
    KeepsDroppedConnections => "drop_closes",
    /// After two cancelled attempts it serves nobody.
    DiesOfTheSecondCancel => "cancel_twice",
    /// The one chunk is split to imitate tokens.
    SplitsItsOneChunk => "no_streaming_claim_one_chunk",
    /// Items that refer to provider state go out without it, and nobody is told.
    ForgetsState => "continuation_missing_fails",
);

/// Whether a flaw can show on a provider with these capabilities: what is not claimed is not checked.
#[must_use]
pub fn shows_on(flaw: Flaw, capabilities: &ProviderCapabilities) -> bool {
    match flaw {
        Flaw::CompletesHalfCalls | Flaw::ReversesParts => capabilities.supports_native_tool_calls,
        // Only a stream shows text before its end.
        Flaw::TakesAnyEndForTheTerminal => capabilities.supports_streaming,
        Flaw::KeepsDroppedConnections | Flaw::DiesOfTheSecondCancel => {
            capabilities.supports_cancellation
        }
        Flaw::SplitsItsOneChunk => !capabilities.supports_streaming,
        Flaw::ForgetsState => capabilities.supports_continuation,
        _ => true,
    }
}
