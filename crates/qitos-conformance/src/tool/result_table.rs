//! TCK-13 and TCK-14: the tables of section 4, and what does not decide a status.

use qitos_contracts::error::ContractError;
use qitos_contracts::tool::result::{EffectState, TerminalStatus, ToolResult};
use serde_json::{Value, json};

use super::bench_tool::{BenchTool, Ledger, value};
use super::expect::{closed_batch, result, run, succeeded};
use super::scenario::{Scenario, ToolEngine, Turn};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    vec![
        Check::new(
            "TCK-13.result_table",
            "every legal combination reads back byte for byte, every other has the code of its table",
            &["RES-1", "RES-2", "RES-3", "RES-4"],
            result_table,
        ),
        Check::new(
            "TCK-14.status_word_in_output",
            "what an output says never decides a status",
            &["TOL-11"],
            status_word_in_output,
        ),
    ]
}

/// A result as JSON, by the words that the tables are about.
#[derive(Clone, Debug)]
struct Row {
    status: TerminalStatus,
    kind: Option<&'static str>,
    running: bool,
    attempts: u64,
    effect: EffectState,
    unknown: bool,
    reconcile: bool,
    disposition: &'static str,
    recoverable: bool,
}

impl Row {
    fn json(&self) -> Value {
        let failed = self.status != TerminalStatus::Success;
        let effect_ref = match self.effect {
            EffectState::NoEffectDeclared => Value::Null,
            _ => json!("pay:1"),
        };
        json!({
            "schema_version": "qitos.tool_result/v2", "status": self.status.as_str(), "success": !failed,
            "tool_name": "t", "action_id": "call_1", "output": null, "model_output": null,
            "error": failed.then_some("why"), "error_kind": self.kind,
            "error_code": failed.then_some("some_code"), "recoverable": self.recoverable,
            "recovery_hint": null, "next_action": null, "complete": !failed, "truncated": false,
            "omitted": {}, "attempts": self.attempts, "latency_ms": 5, "declared_effects": [],
            "filesystem_changes": [], "artifact_refs": [], "normalized_request": {}, "provenance": {},
            "worker_still_running": self.running, "attempt_id": null, "effect_ref": effect_ref,
            "effect_state": self.effect.as_str(), "idempotency_ref": null,
            "retry_disposition": self.disposition, "reconciliation_required": self.reconcile,
            "outcome_unknown": self.unknown, "late_result": false, "owner_generation": 3,
            "stale_owner": false, "batch_closure": {}, "metadata": {},
        })
    }

    /// The table of statuses.
    fn legal_status(&self) -> bool {
        let execution = self.kind == Some("execution");
        match self.status {
            TerminalStatus::Success => self.kind.is_none() && !self.running && self.attempts >= 1,
            TerminalStatus::Error => self.kind.is_some() && !self.running,
            TerminalStatus::Skipped => {
                self.kind == Some("policy") && !self.running && self.attempts == 0
            }
            TerminalStatus::TimedOut => execution && self.attempts >= 1,
            TerminalStatus::Cancelled => execution && (!self.running || self.attempts >= 1),
        }
    }

    /// The table of effect states, dispositions apart.
    fn legal_effect(&self) -> bool {
        use EffectState::{
            Committed, NoEffectDeclared, NotStarted, ReconciliationRequired, Rejected, Started,
            Unknown,
        };
        use TerminalStatus::{Cancelled, Error, Skipped, Success, TimedOut};
        let (unknown, reconcile) = (self.unknown, self.reconcile);
        match self.effect {
            NoEffectDeclared => !unknown && !reconcile,
            NotStarted => {
                !unknown
                    && !reconcile
                    && self.attempts == 0
                    && matches!(self.status, Error | Skipped | Cancelled)
            }
            Started => {
                unknown && !reconcile && self.running && matches!(self.status, TimedOut | Cancelled)
            }
            Committed => {
                !unknown
                    && !reconcile
                    && matches!(self.status, Success | Error | TimedOut | Cancelled)
            }
            Rejected => {
                !unknown && !reconcile && matches!(self.status, Error | TimedOut | Cancelled)
            }
            Unknown => unknown && matches!(self.status, Error | TimedOut | Cancelled),
            ReconciliationRequired => {
                unknown && reconcile && matches!(self.status, Error | TimedOut | Cancelled)
            }
        }
    }

    /// The column of dispositions and its footnote.
    fn legal_disposition(&self) -> bool {
        use EffectState::{
            Committed, NoEffectDeclared, NotStarted, ReconciliationRequired, Rejected, Started,
            Unknown,
        };
        let allowed: &[&str] = match self.effect {
            NoEffectDeclared => &[
                "not_evaluated",
                "retryable",
                "non_retryable",
                "blocked_worker_running",
            ],
            NotStarted => &["not_evaluated", "retryable", "non_retryable"],
            Started => &["blocked_worker_running"],
            Committed => &["non_retryable", "blocked_worker_running"],
            Rejected => &["retryable", "non_retryable"],
            Unknown => &[
                "requires_reconciliation",
                "blocked_worker_running",
                "non_retryable",
            ],
            ReconciliationRequired => &["requires_reconciliation", "blocked_worker_running"],
        };
        let retryable = self.disposition != "retryable"
            || (self.recoverable
                && !self.running
                && !self.unknown
                && self.effect != Committed
                && self.status != TerminalStatus::Success);
        allowed.contains(&self.disposition)
            && retryable
            && (self.disposition == "blocked_worker_running") == self.running
    }
}

const DISPOSITIONS: [&str; 5] = [
    "not_evaluated",
    "retryable",
    "non_retryable",
    "blocked_worker_running",
    "requires_reconciliation",
];

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for status in TerminalStatus::ALL {
        for kind in [None, Some("semantic"), Some("execution"), Some("policy")] {
            for effect in EffectState::ALL {
                for disposition in DISPOSITIONS {
                    for flags in 0..16u32 {
                        for attempts in [0, 1] {
                            rows.push(Row {
                                status: *status,
                                kind,
                                running: flags & 1 != 0,
                                attempts,
                                effect: *effect,
                                unknown: flags & 2 != 0,
                                reconcile: flags & 4 != 0,
                                disposition,
                                recoverable: flags & 8 != 0,
                            });
                        }
                    }
                }
            }
        }
    }
    rows
}

async fn result_table(stage: Stage<dyn ToolEngine>) -> Verdict {
    let _ = stage;
    let (mut legal, mut illegal) = (0u32, 0u32);
    for row in rows() {
        let read = ToolResult::from_value(row.json());
        let (status, effect, disposition) = (
            row.legal_status(),
            row.legal_effect(),
            row.legal_disposition(),
        );
        if status && effect && disposition {
            legal += 1;
            let result =
                read.map_err(|error| Failure::new(format!("{row:?} gave {}", error.code())))?;
            let again = ToolResult::from_bytes(result.canonical_bytes())
                .map_err(|error| Failure::new(format!("{row:?} does not read back: {error}")))?;
            ensure!(
                again.canonical_bytes() == result.canonical_bytes(),
                "{row:?} is not written twice the same way"
            );
            continue;
        }
        illegal += 1;
        let error = match read {
            Ok(_) => {
                return Err(Failure::new(format!(
                    "{row:?} is outside the tables and was read"
                )));
            }
            Err(error) => error,
        };
        // With exactly one table broken its code is the one.
        let expected = match (status, effect, disposition) {
            (false, true, true) => "contradictory_outcome",
            (true, false, true) => "contradictory_effect",
            (true, true, false) => "unsafe_retry_disposition",
            _ => continue,
        };
        ensure!(
            error.code() == expected
                // The disposition column is part of the effect table, too.
                || (expected == "unsafe_retry_disposition" && error.code() == "contradictory_effect"),
            "{row:?} gave {} instead of {expected}",
            error.code()
        );
    }
    ensure!(
        legal > 50 && illegal > 1_000,
        "{legal} legal and {illegal} illegal rows were tried"
    );
    Ok(())
}

async fn status_word_in_output(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let outputs = [
        json!({"status": "failed", "error": "not at all", "success": false}),
        json!({"isError": true}),
        json!("ERROR: tool not found"),
        Value::Null,
    ];
    let tools = outputs
        .iter()
        .enumerate()
        .map(|(number, output)| {
            let output = output.clone();
            BenchTool::new(&format!("say{number}"), &ledger, move |_, _| {
                let output = output.clone();
                async move { value(output) }
            })
            .shared()
        })
        .collect();
    let calls = [
        ("say0", "{}"),
        ("say1", "{}"),
        ("say2", "{}"),
        ("say3", "{}"),
    ];
    let scenario = Scenario::new("TCK-14", tools, vec![Turn::calls(0, &calls)]);
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    for (index, output) in outputs.iter().enumerate() {
        let result = result(&batch, index)?;
        succeeded(&result).map_err(|failure| Failure::new(format!("{output}: {failure}")))?;
        ensure!(
            result.output() == output,
            "the output {output} became {}",
            result.output()
        );
    }
    Ok(())
}
