//! What goes to the wire, and what writing it cost (PRV-12 to PRV-15).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ContinuationReference, Target, ToolUsePolicy};
use crate::canonical_json;
use crate::error::{ContractError, Performed, Retry};
use crate::ids::RequestId;
use crate::log::ItemRef;

/// A request body: a small head and a list of immutable encoded fragments (PRV-12).
///
/// Written out it is one JSON object: the keys of the head in order, and under the list key an array of the
/// fragments. Each fragment holds zero or more JSON values joined by commas; fragments are shared with the log
/// and with other requests, so they are never copied until the body is written.
#[derive(Clone, Debug)]
pub struct WirePayload {
    head: Map<String, Value>,
    list_key: Option<&'static str>,
    lead: Vec<Arc<[u8]>>,
    fragments: Vec<Arc<[u8]>>,
    waiting: Vec<WaitingState>,
}

/// A fragment that was written without the provider state that its item refers to (PRV-32).
///
/// Whoever sends the payload resolves each reference and hands the state to
/// [`apply_continuation`](super::ProviderCodec::apply_continuation); a payload sent with states still waiting is
/// a stateless replay, which is a loss (PRV-31).
#[derive(Clone, Debug)]
pub struct WaitingState {
    /// Place among the fragments of the history; the lead is not counted.
    pub fragment: usize,
    /// The item.
    pub item: ItemRef,
    /// Whose state it is.
    pub reference: ContinuationReference,
}

impl WirePayload {
    /// A payload whose history stands under `list_key`.
    #[must_use]
    pub fn new(
        head: Map<String, Value>,
        list_key: &'static str,
        fragments: Vec<Arc<[u8]>>,
    ) -> Self {
        WirePayload {
            head,
            list_key: Some(list_key),
            lead: Vec::new(),
            fragments,
            waiting: Vec::new(),
        }
    }

    /// A payload without a list: everything stands in the head.
    #[must_use]
    pub fn of_head(head: Map<String, Value>) -> Self {
        WirePayload {
            head,
            list_key: None,
            lead: Vec::new(),
            fragments: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Says which fragments of the history wait for their state.
    #[must_use]
    pub fn with_waiting(mut self, waiting: Vec<WaitingState>) -> Self {
        self.waiting = waiting;
        self
    }

    /// The fragments that wait for their state, oldest first.
    #[must_use]
    pub fn waiting(&self) -> &[WaitingState] {
        &self.waiting
    }

    /// Puts the whole form of a waiting item in its place; it waits no longer.
    ///
    /// Returns the item, so that the codec can keep the bytes for later requests
    /// ([`SealedItem::keep_fragment`](crate::log::SealedItem::keep_fragment)); nothing if no item waits for
    /// `reference_id`.
    pub fn settle(&mut self, reference_id: &str, bytes: Arc<[u8]>) -> Option<ItemRef> {
        let state = self.take_waiting(reference_id)?;
        *self.fragments.get_mut(state.fragment)? = bytes;
        Some(state.item)
    }

    /// Leaves out the history up to and with a waiting item, because the provider holds it.
    ///
    /// Nothing waits afterwards. Returns whether an item waited for `reference_id`; if none did, nothing changes.
    pub fn start_after(&mut self, reference_id: &str) -> bool {
        let Some(state) = self.take_waiting(reference_id) else {
            return false;
        };
        self.fragments
            .drain(..self.fragments.len().min(state.fragment + 1));
        self.waiting.clear();
        true
    }

    fn take_waiting(&mut self, reference_id: &str) -> Option<WaitingState> {
        let place = self
            .waiting
            .iter()
            .position(|state| state.reference.reference_id == reference_id)?;
        Some(self.waiting.remove(place))
    }

    /// Puts fragments, such as instructions, in front of the history.
    #[must_use]
    pub fn with_lead(mut self, lead: Vec<Arc<[u8]>>) -> Self {
        self.lead = lead;
        self
    }

    /// What stands in front of the history.
    #[must_use]
    pub fn lead(&self) -> &[Arc<[u8]>] {
        &self.lead
    }

    /// Leaves out what stands in front of the history, because the provider holds it too.
    pub fn drop_lead(&mut self) {
        self.lead.clear();
    }

    /// The keys beside the history.
    #[must_use]
    pub fn head(&self) -> &Map<String, Value> {
        &self.head
    }

    /// The keys beside the history, to add transport options.
    pub fn head_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.head
    }

    /// The key of the history, if the dialect has a list.
    #[must_use]
    pub fn list_key(&self) -> Option<&'static str> {
        self.list_key
    }

    /// The fragments in order, lead included.
    pub fn fragments(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.lead.iter().chain(&self.fragments)
    }

    /// Length of the fragments in bytes.
    #[must_use]
    pub fn fragment_bytes(&self) -> usize {
        self.fragments().map(|fragment| fragment.len() + 1).sum()
    }

    /// Writes the body.
    ///
    /// # Errors
    /// The head holds a value that JSON cannot carry: `codec_payload_invalid`.
    pub fn write_out(&self, buffer: &mut Vec<u8>) -> Result<(), CodecError> {
        let invalid = |_| CodecError::PayloadInvalid {
            reason: "a value of the head is not JSON",
        };
        buffer.reserve(self.fragment_bytes() + 512);
        buffer.push(b'{');
        for (place, (key, value)) in self.head.iter().enumerate() {
            if place > 0 {
                buffer.push(b',');
            }
            canonical_json::write_str(key, buffer);
            buffer.push(b':');
            canonical_json::write(value, buffer).map_err(invalid)?;
        }
        if let Some(list_key) = self.list_key {
            if !self.head.is_empty() {
                buffer.push(b',');
            }
            canonical_json::write_str(list_key, buffer);
            buffer.extend_from_slice(b":[");
            let mut first = true;
            for fragment in self.fragments().filter(|fragment| !fragment.is_empty()) {
                if !first {
                    buffer.push(b',');
                }
                first = false;
                buffer.extend_from_slice(fragment);
            }
            buffer.push(b']');
        }
        buffer.push(b'}');
        Ok(())
    }
}

/// How the request went out although something could not be carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// As wanted.
    #[default]
    None,
    /// The history was sent instead of provider-side state.
    StatelessReplay,
}

/// `qitos.codec_report/v2`: what encoding did (PRV-13). `lossless` follows from the lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecReport {
    /// `qitos.codec_report/v2`.
    pub schema_version: String,
    /// The codec.
    pub codec_id: String,
    /// Its version.
    pub codec_version: u32,
    /// The request.
    pub request_id: RequestId,
    /// The target.
    pub target: Target,
    /// What was carried.
    pub supported: Vec<String>,
    /// What the target cannot do; not empty means refused.
    pub unsupported: Vec<String>,
    /// What became of reasoning.
    pub reasoning: String,
    /// What became of content other than text.
    pub multimodal_conversion: String,
    /// What became of tool schemas.
    pub tool_schema_conversion: String,
    /// What became of provider-side state.
    pub continuation: String,
    /// Contributions carried.
    pub context_selected: Vec<String>,
    /// Contributions left out.
    pub context_omitted: Vec<String>,
    /// Receipts of compaction.
    pub compaction_receipts: Vec<String>,
    /// Fields that were dropped, by the names of PRV-14.
    pub lossy_fields: Vec<String>,
    /// Texts for people.
    pub warnings: Vec<String>,
    /// How the request went out.
    pub fallback: Fallback,
    /// Text protocol of the run.
    pub protocol_id: String,
    /// Policy of the run.
    pub tool_use_policy: ToolUsePolicy,
    /// Whether the policy is satisfied already.
    pub tool_use_satisfied: bool,
    /// No lossy field and nothing unsupported.
    pub lossless: bool,
}

impl CodecReport {
    /// Schema id.
    pub const SCHEMA: &'static str = "qitos.codec_report/v2";

    /// Recomputes `lossless` from the lists.
    #[must_use]
    pub fn settled(mut self) -> Self {
        self.lossless = self.lossy_fields.is_empty() && self.unsupported.is_empty();
        self
    }

    /// Whether the stored flag agrees with the lists; a report whose flag disagrees is refused.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.lossless == (self.lossy_fields.is_empty() && self.unsupported.is_empty())
    }
}

/// Why nothing was encoded; nothing was sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// `codec_capability_mismatch`: the target cannot do it, allowed loss or not (PRV-14, PRV-15).
    #[error("the target does not support: {}", .unsupported.join(", "))]
    CapabilityMismatch {
        /// What it cannot do.
        unsupported: Vec<String>,
    },
    /// `codec_loss_rejected`: content would be lost and that is not allowed.
    #[error("encoding would lose: {}", .lossy_fields.join(", "))]
    LossRejected {
        /// What would be lost.
        lossy_fields: Vec<String>,
    },
    /// `codec_encode_failed`.
    #[error("the view cannot be encoded: {reason}")]
    EncodeFailed {
        /// A constant text.
        reason: &'static str,
    },
    /// `codec_payload_invalid`.
    #[error("the payload is not valid: {reason}")]
    PayloadInvalid {
        /// A constant text.
        reason: &'static str,
    },
    /// `codec_transport_options_invalid`.
    #[error("option `{option}` is not valid")]
    OptionsInvalid {
        /// The option's name.
        option: String,
    },
    /// `request_closure_violation` (CTX-28).
    #[error("calls and results of the request do not pair")]
    ClosureViolation,
}

impl ContractError for CodecError {
    fn code(&self) -> &str {
        match self {
            CodecError::CapabilityMismatch { .. } => "codec_capability_mismatch",
            CodecError::LossRejected { .. } => "codec_loss_rejected",
            CodecError::EncodeFailed { .. } => "codec_encode_failed",
            CodecError::PayloadInvalid { .. } => "codec_payload_invalid",
            CodecError::OptionsInvalid { .. } => "codec_transport_options_invalid",
            CodecError::ClosureViolation => "request_closure_violation",
        }
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(payload: &WirePayload) -> String {
        let mut body = Vec::new();
        payload.write_out(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }

    fn fragment(text: &str) -> Arc<[u8]> {
        text.as_bytes().into()
    }

    #[test]
    fn a_body_is_one_object_with_or_without_head_list_and_lead() {
        // PRV-12
        let head = |value: Value| value.as_object().cloned().unwrap();
        let list = vec![fragment("1"), fragment(""), fragment("2,3")];
        let payload = WirePayload::new(head(json!({"a": 1})), "list", list.clone());
        assert_eq!(written(&payload), r#"{"a":1,"list":[1,2,3]}"#);
        let payload = WirePayload::new(Map::new(), "list", list).with_lead(vec![fragment("0")]);
        assert_eq!(written(&payload), r#"{"list":[0,1,2,3]}"#);
        assert_eq!(payload.lead(), [fragment("0")]);
        let mut held = payload.clone();
        held.drop_lead();
        assert_eq!(written(&held), r#"{"list":[1,2,3]}"#);
        let payload = WirePayload::of_head(head(json!({"a": 1, "b": 2})));
        assert_eq!(written(&payload), r#"{"a":1,"b":2}"#);
        assert_eq!(written(&WirePayload::of_head(Map::new())), "{}");
    }
}
