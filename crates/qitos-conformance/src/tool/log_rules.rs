//! TCK-29 for the log itself: while a batch is open nothing but its results is appended.

use std::sync::Arc;

use qitos_contracts::error::ContractError;
use qitos_contracts::ids::{BatchId, CallId, ItemId, SlotId};
use qitos_contracts::log::{
    AssistantItem, AssistantPart, ContentBlock, ExchangeLog, Item, ItemBody, ParseStatus,
    QueuedSteering, SteeringItem, ToolCallPart, ToolResultItem, UserItem,
};
use qitos_contracts::tool::EffectClass;
use qitos_contracts::tool::result::{ResultIdentity, ToolResult};
use serde_json::{Map, json};

use super::scenario::ToolEngine;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    vec![Check::new(
        "TCK-29.open_batch_blocks",
        "with an open batch user items are refused, steering waits, results are taken once and in any order",
        &["LOG-5", "LOG-6", "LOG-7", "LOG-9"],
        open_batch_blocks,
    )]
}

fn id<T: std::str::FromStr>(text: &str) -> Result<T, Failure> {
    text.parse()
        .map_err(|_| Failure::new(format!("{text} is no identity")))
}

fn item(log: &ExchangeLog, name: &str, body: ItemBody) -> Result<Item, Failure> {
    Ok(Item {
        item_id: id::<ItemId>(name)?,
        exchange_id: log.exchange_for(&body),
        body,
    })
}

fn user() -> ItemBody {
    ItemBody::User(UserItem {
        content: vec![ContentBlock::text("hello")],
        metadata: Map::new(),
    })
}

fn answer(batch: &BatchId, calls: &[&str]) -> Result<ItemBody, Failure> {
    let mut parts = Vec::new();
    for call in calls {
        parts.push(AssistantPart::ToolCall(ToolCallPart {
            provider_scope: "fake:chat".into(),
            call_id: id(call)?,
            batch_id: batch.clone(),
            name: "t".into(),
            raw_arguments: "{}".into(),
            parsed_arguments: Some(Arc::new(json!({}))),
            parse_status: ParseStatus::Parsed,
            parse_error: None,
            metadata: Map::new(),
        }));
    }
    Ok(ItemBody::Assistant(AssistantItem {
        parts,
        ..AssistantItem::default()
    }))
}

fn outcome(batch: &BatchId, call: &str, index: u32) -> Result<ItemBody, Failure> {
    let call_id: CallId = id(call)?;
    let identity = ResultIdentity {
        tool_name: "t".into(),
        call_id: call_id.clone(),
        slot_id: SlotId::new(batch, index),
        owner_generation: 0,
    };
    Ok(ItemBody::ToolResult(ToolResultItem {
        provider_scope: "fake:chat".into(),
        call_id,
        batch_id: batch.clone(),
        result: Arc::new(ToolResult::cancelled_unstarted(
            identity,
            "test",
            &EffectClass::Pure,
        )),
        synthetic: false,
        closure_reason: None,
    }))
}

fn append(log: &mut ExchangeLog, name: &str, body: ItemBody) -> Verdict {
    let next = item(log, name, body)?;
    log.append(next, &mut Vec::new())
        .map(|_| ())
        .map_err(|error| Failure::new(format!("appending {name} gave {}", error.code())))
}

fn refused(log: &mut ExchangeLog, name: &str, body: ItemBody, code: &str) -> Verdict {
    let next = item(log, name, body)?;
    let before = (log.items().len(), log.chain(), log.queue().len());
    match log.append(next, &mut Vec::new()) {
        Ok(_) => {
            return Err(Failure::new(format!(
                "{name} was appended instead of {code}"
            )));
        }
        Err(error) => ensure!(error.code() == code, "{name} gave {}", error.code()),
    }
    ensure!(
        (log.items().len(), log.chain(), log.queue().len()) == before,
        "a refused append changed the log"
    );
    Ok(())
}

async fn open_batch_blocks(stage: Stage<dyn ToolEngine>) -> Verdict {
    let _ = stage;
    let batch: BatchId = id("batch_request_0123456789abcdef01234567")?;
    let other: BatchId = id("batch_request_76543210fedcba9876543210")?;
    let mut log = ExchangeLog::new();
    append(&mut log, "u-1", user())?;
    append(&mut log, "a-1", answer(&batch, &["c-1", "c-2"])?)?;
    ensure!(log.open_batch().is_some(), "declared calls open no batch");
    refused(&mut log, "u-2", user(), "incomplete_tool_batch")?;
    refused(
        &mut log,
        "a-2",
        answer(&other, &["c-3"])?,
        "incomplete_tool_batch",
    )?;
    log.enqueue(QueuedSteering {
        item_id: id("s-1")?,
        steering: SteeringItem {
            content: vec![ContentBlock::text("mind the gap")],
            metadata: Map::new(),
        },
    })
    .map_err(|error| Failure::new(format!("queueing steering gave {}", error.code())))?;
    let early = log.append_queued(&mut Vec::new());
    ensure!(
        matches!(&early, Some(Err(error)) if error.code() == "incomplete_tool_batch"),
        "queued steering was applied while a batch is open"
    );
    refused(
        &mut log,
        "r-x",
        outcome(&batch, "c-9", 0)?,
        "unknown_call_id",
    )?;
    refused(
        &mut log,
        "r-y",
        outcome(&other, "c-1", 0)?,
        "tool_batch_mismatch",
    )?;
    append(&mut log, "r-2", outcome(&batch, "c-2", 1)?)?;
    refused(
        &mut log,
        "r-3",
        outcome(&batch, "c-2", 1)?,
        "duplicate_tool_result",
    )?;
    ensure!(
        log.open_batch().is_some_and(|open| open.completed == [1]),
        "the open batch does not know which call is done"
    );
    append(&mut log, "r-1", outcome(&batch, "c-1", 0)?)?;
    ensure!(log.open_batch().is_none(), "the batch is still open");
    match log.append_queued(&mut Vec::new()) {
        Some(Ok(applied)) => ensure!(
            matches!(applied.item().body, ItemBody::Steering(_)),
            "something else than the steering was applied"
        ),
        _ => {
            return Err(Failure::new(
                "queued steering was not applied after the batch",
            ));
        }
    }
    ensure!(
        log.append_queued(&mut Vec::new()).is_none(),
        "steering was applied twice"
    );
    refused(
        &mut log,
        "r-9",
        outcome(&batch, "c-1", 0)?,
        "unknown_call_id",
    )?;
    append(&mut log, "u-3", user())
}
