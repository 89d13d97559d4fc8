//! Identities: how each is written and parsed (SES-1 to SES-5).
//!
//! Each kind is its own type; there is no conversion or equality across kinds. `Display` and serde give the
//! plain value; [`IdentityObject`] is the `{kind, value}` form of snapshots, commits and fork records.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::clock::IdSource;
use crate::digest::Digest;

/// The text is no identity of the wanted kind; code `invalid_identity_relationship` (SES-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {kind} identity")]
pub struct InvalidIdentity {
    /// The kind that was wanted.
    pub kind: &'static str,
}

fn has_prefixed_hex(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('_'))
        .is_some_and(|hex| {
            (16..=64).contains(&hex.len())
                && hex
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
}

macro_rules! plain_text_traits {
    ($name:ident) => {
        impl $name {
            /// The text as written everywhere.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}({})", stringify!($name), self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The `kind` of the `{kind, value}` form.
            pub const KIND: &'static str = $kind;

            /// A new identity: the prefix, `_` and 32 hex digits (SES-2).
            #[must_use]
            pub fn generate(source: &dyn IdSource) -> Self {
                $name(format!(concat!($prefix, "_{:032x}"), source.next_id()).into())
            }

            /// An identity that follows from durable facts: the prefix and 32 hex digits of their digest.
            #[must_use]
            pub fn derived(facts: &Digest) -> Self {
                $name(format!(concat!($prefix, "_{}"), facts.short_hex(32)).into())
            }

            /// The `{kind, value}` form of snapshots, commits and fork records (decision 1).
            #[must_use]
            pub fn to_object(&self) -> IdentityObject {
                IdentityObject { kind: $kind.into(), value: self.0.as_ref().into() }
            }

            /// Reads the `{kind, value}` form.
            ///
            /// # Errors
            /// `invalid_identity_relationship` if the kind or the value does not fit.
            pub fn from_object(object: &IdentityObject) -> Result<Self, InvalidIdentity> {
                if object.kind == $kind { object.value.parse() } else { Err(InvalidIdentity { kind: $kind }) }
            }
        }

        impl FromStr for $name {
            type Err = InvalidIdentity;

            fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
                if has_prefixed_hex(text, $prefix) { Ok($name(text.into())) } else { Err(InvalidIdentity { kind: $kind }) }
            }
        }

        plain_text_traits!($name);
    };
}

/// The object form of an identity: exactly `kind` and `value` (SES-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityObject {
    /// One of the kinds of section 1 of the session specification.
    pub kind: String,
    /// The text of the identity.
    pub value: String,
}

identity!(
    /// A durable container with one head.
    SessionId, "session", "session"
);
identity!(
    /// One execution interval and owner token of a session.
    RunId, "run", "run"
);
identity!(
    /// An immutable snapshot.
    SnapshotId, "snapshot", "snapshot"
);
identity!(
    /// One persistence commit of a snapshot.
    CheckpointId, "checkpoint", "checkpoint"
);
identity!(
    /// An owned unit of work.
    WorkItemId, "work_item", "work_item"
);
identity!(
    /// One try of a work item (not a tool attempt, decision 3).
    WorkAttemptId, "attempt", "attempt"
);
identity!(
    /// The session-level identity of a tool call: derived from its slot (decision 2).
    ToolCallIdentity, "tool_call", "tool_call"
);
identity!(
    /// A resolvable execution subject.
    AgentId, "agent", "agent"
);
identity!(
    /// A provider-side continuation handle.
    ContinuationId, "continuation", "continuation"
);
identity!(
    /// A fork operation, chosen by the caller or generated (SES-5).
    ForkOperationId, "fork", "fork"
);
identity!(
    /// One execution of a slot; differs from [`WorkAttemptId`] in spite of the prefix (decision 3).
    AttemptId, "attempt", "attempt"
);
identity!(
    /// One approval request (PRM-10).
    ApprovalId, "approval", "approval"
);

impl AttemptId {
    /// Decision 69: 32 hex of SHA-256 over slot, attempt number and owner generation.
    #[must_use]
    pub fn of_slot(slot: &SlotId, attempt: u32, owner_generation: u64) -> Self {
        let text = format!("{slot}\n{attempt}\n{owner_generation}");
        AttemptId::derived(&Digest::of(text.as_bytes()))
    }
}

impl ToolCallIdentity {
    /// `tool_call_` + 32 hex of SHA-256(slot id) (decision 2).
    #[must_use]
    pub fn of_slot(slot: &SlotId) -> Self {
        ToolCallIdentity::derived(&Digest::of(slot.as_str().as_bytes()))
    }
}

macro_rules! token {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl FromStr for $name {
            type Err = InvalidIdentity;

            fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
                let valid: fn(&str) -> bool = $valid;
                if (1..=$max).contains(&text.len()) && valid(text) {
                    Ok($name(text.into()))
                } else {
                    Err(InvalidIdentity { kind: $kind })
                }
            }
        }

        plain_text_traits!($name);
    };
}

/// `[A-Za-z0-9][A-Za-z0-9._:@+-]*`, the alphabet of id-like strings in records (TRJ-5).
fn is_record_token(text: &str) -> bool {
    text.bytes()
        .next()
        .is_some_and(|first| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._:@+-".contains(&byte))
}

token!(
    /// One model request of a session: `request_` + 24 hex for built views (CTX-23).
    RequestId, "request", 256, is_record_token
);
token!(
    /// All calls of one assistant item: `batch_<request_id>` for model turns.
    BatchId, "batch", 256, is_record_token
);
token!(
    /// A tool call as the provider, or we in its place, named it (decision 2).
    CallId, "call", 256, is_record_token
);
token!(
    /// A call's place in its batch: `<batch_id>:<declaration index>`.
    SlotId, "slot", 272, is_record_token
);
token!(
    /// An entry of the exchange log.
    ItemId, "item", 256, is_record_token
);
token!(
    /// A group of log items: one user turn and what answered it (LOG-1).
    ExchangeId, "exchange", 256, is_record_token
);
token!(
    /// The external effect that a call may have (TOL-6).
    EffectRef, "effect_ref", 128, |text| {
        text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
    }
);

impl BatchId {
    /// `batch_<request_id>`.
    #[must_use]
    pub fn of_request(request: &RequestId) -> Self {
        BatchId(format!("batch_{request}").into())
    }
}

impl SlotId {
    /// `<batch_id>:<declaration index>`.
    #[must_use]
    pub fn new(batch: &BatchId, index: u32) -> Self {
        SlotId(format!("{batch}:{index}").into())
    }
}

impl RequestId {
    /// `request_` + 24 hex of the view's digest (CTX-23).
    #[must_use]
    pub fn of_view(digest: &Digest) -> Self {
        RequestId(format!("request_{}", digest.short_hex(24)).into())
    }
}

impl EffectRef {
    /// The reference that stands for the undeclared effect of a slot (RES-10).
    #[must_use]
    pub fn undeclared(slot: &SlotId) -> Self {
        EffectRef(
            format!(
                "effect:undeclared:{}",
                slot.as_str().replace(['@', '+'], "-")
            )
            .into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::CountingIds;

    #[test]
    fn identities_match_their_own_prefix_only() {
        // SES-2: `run_item_<hex>` is no run, upper case and short values are refused.
        let ids = CountingIds::new(7);
        let run = RunId::generate(&ids);
        assert_eq!(run.as_str(), "run_00000000000000070000000000000001");
        assert_eq!(run.as_str().parse::<RunId>().as_ref(), Ok(&run));
        for text in [
            "run_item_0123456789abcdef",
            "run_0123456789abcde",
            "run_0123456789ABCDEF",
            "session_0123456789abcdef",
            "run",
            "",
        ] {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
        assert!(format!("run_{}", "a".repeat(64)).parse::<RunId>().is_ok());
        assert!(format!("run_{}", "a".repeat(65)).parse::<RunId>().is_err());
    }

    #[test]
    fn the_object_form_checks_its_kind() {
        // SES-1
        let session = SessionId::generate(&CountingIds::new(1));
        let mut object = session.to_object();
        assert_eq!(SessionId::from_object(&object), Ok(session));
        object.kind = "run".into();
        assert!(SessionId::from_object(&object).is_err());
        assert!(
            serde_json::from_str::<IdentityObject>(r#"{"kind":"run","value":"x","more":1}"#)
                .is_err()
        );
    }

    #[test]
    fn slot_ids_derive_from_batch_and_index() {
        let request: RequestId = "request_0123456789abcdef01234567".parse().unwrap();
        let slot = SlotId::new(&BatchId::of_request(&request), 0);
        assert_eq!(slot.as_str(), "batch_request_0123456789abcdef01234567:0");
        assert_eq!(
            EffectRef::undeclared(&slot).as_str(),
            "effect:undeclared:batch_request_0123456789abcdef01234567:0"
        );
        assert_ne!(
            AttemptId::of_slot(&slot, 1, 0),
            AttemptId::of_slot(&slot, 1, 1)
        );
    }
}
