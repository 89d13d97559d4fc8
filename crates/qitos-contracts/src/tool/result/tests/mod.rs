//! Tests of results, by what they prove.

use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::*;
use crate::artifact::ArtifactRef;
use crate::error::ContractError;
use crate::ids::{AttemptId, SlotId};
use crate::tool::call::{EffectReport, Returned, ToolError};
use crate::tool::effect::EffectClass;

mod events;
mod reader;
mod tables;

fn attempt_id() -> AttemptId {
    "attempt_00112233445566778899aabbccddeeff".parse().unwrap()
}

fn slot_id() -> SlotId {
    "batch_request_0123456789abcdef01234567:0".parse().unwrap()
}

fn identity() -> ResultIdentity {
    ResultIdentity {
        tool_name: "shell".into(),
        call_id: "call_7".parse().unwrap(),
        slot_id: slot_id(),
        owner_generation: 3,
    }
}

fn attempt() -> AttemptFacts {
    AttemptFacts {
        attempt_id: attempt_id(),
        attempts: 1,
        latency_ms: 7003,
    }
}
