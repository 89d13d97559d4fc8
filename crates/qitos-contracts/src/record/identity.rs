//! Rules for the identities of new records (TRJ-5, TRJ-16, TRJ-18).

use super::privacy::value_rule;
use super::{Record, RecordError, RecordKind, RecordRole};

const MAXIMUM_LENGTH: usize = 256;

/// `[A-Za-z0-9][A-Za-z0-9._:@+-]{0,255}`, with spaces too where `spaces` says so (TRJ-5).
fn has_alphabet(text: &str, spaces: bool) -> bool {
    text.len() <= MAXIMUM_LENGTH
        && text
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || b"._:@+-".contains(&byte) || (spaces && byte == b' ')
        })
}

/// Identities of ours, alone or followed by `:` and numbers: they disclose nothing and skip the scan.
fn is_generated(text: &str) -> bool {
    const PREFIXES: [&str; 15] = [
        "session_",
        "run_",
        "snapshot_",
        "checkpoint_",
        "request_",
        "batch_request_",
        "attempt_",
        "work_item_",
        "tool_call_",
        "approval_",
        "agent_",
        "fork_",
        "exchange_",
        "item_",
        "sandbox_",
    ];
    let (head, numbers) = text.split_once(':').unwrap_or((text, "0"));
    PREFIXES
        .iter()
        .filter_map(|prefix| head.strip_prefix(prefix))
        .any(|hex| {
            (16..=64).contains(&hex.len())
                && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        })
        && numbers
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b':')
}

/// Whether `text` may stand as an identity of a new record (TRJ-5).
#[must_use]
pub(super) fn is_admissible(text: &str, spaces: bool) -> bool {
    has_alphabet(text, spaces) && (is_generated(text) || value_rule::finding_in(text).is_none())
}

impl Record {
    /// The id-like fields, by wire key.
    pub(super) fn identities(&self) -> [(&'static str, Option<&str>); 19] {
        [
            ("record_id", Some(&self.record_id)),
            ("session_id", self.session_id.as_deref()),
            ("run_id", self.run_id.as_deref()),
            ("work_item_id", self.work_item_id.as_deref()),
            ("snapshot_id", self.snapshot_id.as_deref()),
            ("exchange_id", self.exchange_id.as_deref()),
            ("tool_call_id", self.tool_call_id.as_deref()),
            ("attempt_id", self.attempt_id.as_deref()),
            ("owner_id", self.owner_id.as_deref()),
            ("operation_id", self.operation_id.as_deref()),
            (
                "provider_transaction_id",
                self.provider_transaction_id.as_deref(),
            ),
            ("effect_id", self.effect_id.as_deref()),
            ("sandbox_id", self.sandbox_id.as_deref()),
            ("source_session_id", self.source_session_id.as_deref()),
            ("source_work_item_id", self.source_work_item_id.as_deref()),
            ("causation_id", self.causation_id.as_deref()),
            ("correlation_id", self.correlation_id.as_deref()),
            ("parent_run_id", self.parent_run_id.as_deref()),
            ("parent_work_item_id", self.parent_work_item_id.as_deref()),
        ]
    }

    /// The free-text fields, by wire key: the same alphabet, spaces allowed.
    pub(super) fn texts(&self) -> [(&'static str, Option<&str>); 5] {
        [
            ("phase", self.phase.as_deref()),
            ("lifecycle_state", self.lifecycle_state.as_deref()),
            ("producer_authority", self.producer_authority.as_deref()),
            ("agent_id", self.agent_id.as_deref()),
            ("checkpoint_ref", self.checkpoint_ref.as_deref()),
        ]
    }

    /// Everything that a new record owes (TRJ-5, TRJ-15, TRJ-16, TRJ-18).
    pub(super) fn check_new(&self) -> Result<(), RecordError> {
        let spaceless = self
            .identities()
            .into_iter()
            .map(|(field, text)| (field, text, false));
        let spaced = self
            .texts()
            .into_iter()
            .map(|(field, text)| (field, text, true));
        for (field, text, spaces) in spaceless.chain(spaced) {
            if text.is_some_and(|text| !is_admissible(text, spaces)) {
                return Err(RecordError::IdentityInvalid { field });
            }
        }
        for reference in &self.artifact_refs {
            super::read::check_reference(reference)?;
        }
        if self.kind == RecordKind::Step && self.role != RecordRole::DerivedView {
            return Err(RecordError::InvalidField { field: "role" });
        }
        self.check_work_graph()?;
        self.check_pairing()
    }

    fn check_work_graph(&self) -> Result<(), RecordError> {
        if self.kind != RecordKind::WorkGraph {
            return Ok(());
        }
        let needed = [
            ("session_id", &self.session_id),
            ("run_id", &self.run_id),
            ("operation_id", &self.operation_id),
            ("producer_authority", &self.producer_authority),
        ];
        match needed.into_iter().find(|(_, value)| value.is_none()) {
            Some((field, _)) => Err(RecordError::EventIdentityMissing { field }),
            None => Ok(()),
        }
    }

    /// TRJ-18. A `tool_batch` stands for several calls and so names none.
    fn check_pairing(&self) -> Result<(), RecordError> {
        if self.role != RecordRole::CanonicalRuntimeFact {
            return Ok(());
        }
        let transaction = (
            "provider_transaction_id",
            self.provider_transaction_id.is_some(),
        );
        let needed: &[(&'static str, bool)] = match self.kind {
            RecordKind::Run => &[("run_id", self.run_id.is_some())],
            RecordKind::ModelRequest
            | RecordKind::ModelResponse
            | RecordKind::ProviderTransaction => &[transaction],
            RecordKind::ToolSlot | RecordKind::ToolResult => {
                &[("tool_call_id", self.tool_call_id.is_some())]
            }
            RecordKind::Effect => &[
                ("effect_id", self.effect_id.is_some()),
                ("operation_id", self.operation_id.is_some()),
            ],
            RecordKind::Ownership => &[
                ("owner_id", self.owner_id.is_some()),
                ("owner_generation", self.owner_generation.is_some()),
            ],
            RecordKind::Sandbox => &[("sandbox_id", self.sandbox_id.is_some())],
            _ => &[],
        };
        match needed.iter().find(|(_, present)| !present) {
            Some((field, _)) => Err(RecordError::IdentityMissing {
                kind: self.kind.as_str(),
                field,
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    fn record(kind: RecordKind) -> Record {
        Record::new(kind, "rec-1", Timestamp::from_micros(0))
    }

    #[track_caller]
    fn refused(record: Record, expected: RecordError) {
        assert_eq!(record.seal(0, Timestamp::from_micros(0)), Err(expected));
    }

    #[test]
    fn identities_keep_to_their_alphabet_and_disclose_nothing() {
        // TRJ-5
        let long = "a".repeat(256);
        for text in [
            "a",
            "run_0123456789abcdef:7",
            "sandbox:notes:batch_x:0",
            &long,
        ] {
            assert!(is_admissible(text, false), "{text}");
        }
        let longer = "a".repeat(257);
        for text in [
            "",
            " a",
            "a b",
            "-a",
            "a/b",
            "é",
            "sk-AAAAAAAAAAAAAAA",
            "api_key:abc",
            "10.0.0.5",
            &longer,
        ] {
            assert!(!is_admissible(text, false), "{text}");
        }
        assert!(is_admissible("waiting for input", true));
        let mut bad = record(RecordKind::Session);
        bad.run_id = Some("/home/alice".into());
        refused(bad, RecordError::IdentityInvalid { field: "run_id" });
        let mut bad = record(RecordKind::Session);
        bad.phase = Some("password: hunter2".into());
        refused(bad, RecordError::IdentityInvalid { field: "phase" });
    }

    #[test]
    fn facts_carry_the_identity_that_pairs_them() {
        // TRJ-18
        for (kind, field) in [
            (RecordKind::Run, "run_id"),
            (RecordKind::ModelRequest, "provider_transaction_id"),
            (RecordKind::ModelResponse, "provider_transaction_id"),
            (RecordKind::ProviderTransaction, "provider_transaction_id"),
            (RecordKind::ToolSlot, "tool_call_id"),
            (RecordKind::ToolResult, "tool_call_id"),
            (RecordKind::Effect, "effect_id"),
            (RecordKind::Ownership, "owner_id"),
            (RecordKind::Sandbox, "sandbox_id"),
        ] {
            refused(
                record(kind),
                RecordError::IdentityMissing {
                    kind: kind.as_str(),
                    field,
                },
            );
        }
        let mut view = record(RecordKind::Run);
        view.role = RecordRole::DerivedView;
        assert!(view.seal(0, Timestamp::from_micros(0)).is_ok());
    }

    #[test]
    fn work_graph_facts_name_session_run_operation_and_authority() {
        // TRJ-16
        let mut fact = record(RecordKind::WorkGraph);
        refused(
            fact.clone(),
            RecordError::EventIdentityMissing {
                field: "session_id",
            },
        );
        fact.session_id = Some("s".into());
        fact.run_id = Some("r".into());
        fact.operation_id = Some("o".into());
        refused(
            fact.clone(),
            RecordError::EventIdentityMissing {
                field: "producer_authority",
            },
        );
        fact.producer_authority = Some("work graph".into());
        assert!(fact.seal(0, Timestamp::from_micros(0)).is_ok());
    }

    #[test]
    fn a_step_is_always_a_derived_view() {
        // TRJ-6, table of payloads
        refused(
            record(RecordKind::Step),
            RecordError::InvalidField { field: "role" },
        );
    }
}
