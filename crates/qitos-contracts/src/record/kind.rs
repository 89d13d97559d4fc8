//! The closed vocabularies of a record: kind, role, privacy view.

use std::fmt;
use std::str::FromStr;

/// The text is no word of the vocabulary concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not one of the words of {vocabulary}")]
pub struct UnknownWord {
    /// Which vocabulary was read: `kind`, `role` or `privacy_view`.
    pub vocabulary: &'static str,
}

macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident, $vocabulary:literal, { $($(#[$word_doc:meta])* $word:ident => $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$word_doc])* $word,)*
        }

        impl $name {
            /// Every word, in the order of the specification.
            pub const ALL: &'static [$name] = &[$($name::$word,)*];

            /// The word as it is written on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$word => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text {
                    $($text => Ok($name::$word),)*
                    _ => Err(UnknownWord { vocabulary: $vocabulary }),
                }
            }
        }
    };
}

vocabulary!(
    /// What a record tells about; 27 words, closed. Finer names stand in `payload.event` (decision 25).
    RecordKind, "kind", {
        /// A session was made, restored, closed.
        Session => "session",
        /// A run began or ended.
        Run => "run",
        /// A request to a model is about to leave.
        ModelRequest => "model_request",
        /// A verified response of a model.
        ModelResponse => "model_response",
        /// One exchange on the wire with a provider.
        ProviderTransaction => "provider_transaction",
        /// Reasoning that a model disclosed.
        Reasoning => "reasoning",
        /// A provider-side continuation.
        Continuation => "continuation",
        /// All calls of one decision.
        ToolBatch => "tool_batch",
        /// One call: declared, started, ended.
        ToolSlot => "tool_slot",
        /// What a call returned.
        ToolResult => "tool_result",
        /// A change of the session's lifecycle.
        Lifecycle => "lifecycle",
        /// An effect outside the process.
        Effect => "effect",
        /// What a request was built from.
        Context => "context",
        /// History was compacted.
        Compaction => "compaction",
        /// Input that arrived during a run.
        Steering => "steering",
        /// A snapshot was committed.
        Snapshot => "snapshot",
        /// A run was paused.
        Pause => "pause",
        /// A session was restored.
        Restore => "restore",
        /// A limit and what was used of it.
        Budget => "budget",
        /// Why a run ended.
        Stop => "stop",
        /// A failure.
        Error => "error",
        /// Something that is not there any more.
        Loss => "loss",
        /// A stored body.
        Artifact => "artifact",
        /// A sandbox was set up, used, cleaned up.
        Sandbox => "sandbox",
        /// Who owns the session's head.
        Ownership => "ownership",
        /// A change of the work graph.
        WorkGraph => "work_graph",
        /// An aggregate of one step; always a derived view.
        Step => "step",
    }
);

vocabulary!(
    /// Who vouches for a record; stated by the producer, never inferred from the kind (TRJ-6).
    RecordRole, "role", {
        /// The runtime saw it happen.
        CanonicalRuntimeFact => "canonical_runtime_fact",
        /// Computed from other records.
        DerivedView => "derived_view",
        /// Made from another format; never promoted to a fact.
        CompatibilityArtifact => "compatibility_artifact",
    }
);

vocabulary!(
    /// How much of a record a reader may see; later ones show less.
    PrivacyView, "privacy_view", {
        /// The record as it was produced.
        RawPrivate => "raw_private",
        /// Secrets, host paths, local endpoints and bodies are replaced.
        RedactedPublic => "redacted_public",
        /// As before with narrow limits; for error reports and inspection.
        SafeDiagnostic => "safe_diagnostic",
    }
);

impl PrivacyView {
    /// Whether going from `self` to `target` would show more than `self` does (TRJ-22).
    #[must_use]
    pub fn widens_to(self, target: PrivacyView) -> bool {
        target < self
    }

    /// The loss policy that a projection to this view adds (TRJ-26); none for `raw_private`.
    #[must_use]
    pub const fn loss_policy(self) -> Option<&'static str> {
        match self {
            PrivacyView::RawPrivate => None,
            PrivacyView::RedactedPublic => Some("qitos.projection/redacted_public"),
            PrivacyView::SafeDiagnostic => Some("qitos.projection/safe_diagnostic"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabularies_have_the_specified_size_and_round_trip() {
        assert_eq!(RecordKind::ALL.len(), 27);
        assert_eq!(RecordRole::ALL.len(), 3);
        assert_eq!(PrivacyView::ALL.len(), 3);
        for kind in RecordKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
        assert!("Run".parse::<RecordKind>().is_err());
    }

    #[test]
    fn only_steps_towards_less_are_allowed() {
        // TRJ-22
        use PrivacyView::{RawPrivate, RedactedPublic, SafeDiagnostic};
        assert!(!RawPrivate.widens_to(RedactedPublic));
        assert!(!RedactedPublic.widens_to(SafeDiagnostic));
        assert!(!RedactedPublic.widens_to(RedactedPublic));
        assert!(SafeDiagnostic.widens_to(RedactedPublic));
        assert!(RedactedPublic.widens_to(RawPrivate));
    }
}
