//! `qit session`: list, inspect, restore, fork and pause stored sessions.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qitos::checkpoint::{CheckpointStore, InboxAppend, InboxKind, SessionError};
use qitos::config::AgentConfig;
use qitos::contracts::clock::IdSource as _;
use qitos::contracts::decision::Decision;
use qitos::contracts::ids::{ItemId, SessionId};
use qitos::contracts::snapshot::Lifecycle;
use qitos::kernel::system::SystemIds;
use qitos::models::scripted::ScriptedModel;
use qitos::{AgentError, AgentModule, Engine, ForkFrom, Observation, Reduced, Task};
use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, quoted};
use crate::args::{Format, OneSession, Session};
use crate::commands::run;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::project;

/// How often a waiting `pause` looks at the head.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Does what the sub-command asks for.
pub(crate) async fn perform(command: Session, format: Format) -> Outcome {
    match command {
        Session::List {
            config,
            state,
            limit,
        } => {
            let config = project::load(&config)?;
            list(&config, state.as_deref(), limit).await
        }
        Session::Inspect(session) => {
            let (config, id) = one(&session)?;
            inspect(&config, &id).await
        }
        Session::Restore { session, taking } => {
            let (config, id) = one(&session)?;
            Box::pin(run::take_up(&session.config, config, id, taking, format)).await
        }
        Session::Fork {
            session,
            snapshot,
            operation_id,
        } => fork(&session, snapshot.as_deref(), operation_id.as_deref()).await,
        Session::Pause { session, wait } => {
            let (config, id) = one(&session)?;
            pause(&config, &id, Duration::from_secs(wait)).await
        }
    }
}

fn one(session: &OneSession) -> Result<(AgentConfig, SessionId), Failure> {
    let config = project::load(&session.config)?;
    Ok((config, project::session_id(&session.session_id)?))
}

fn of_store(error: qitos::checkpoint::StoreError) -> Failure {
    SessionError::from(error).into()
}

async fn list(config: &AgentConfig, state: Option<&str>, limit: u32) -> Outcome {
    let lifecycle = match state {
        None => None,
        Some(word) => Some(word.parse::<Lifecycle>().map_err(|_| {
            let words: Vec<&str> = Lifecycle::ALL
                .iter()
                .map(|lifecycle| lifecycle.as_str())
                .collect();
            Failure::usage(
                format!("`{word}` is no lifecycle state"),
                format!("states: {}", words.join(", ")),
            )
        })?),
    };
    let Some(file) = project::store_file(config) else {
        return Err(Failure::usage(
            format!(
                "sessions of the store `{}` cannot be listed",
                config.runtime().session().store()
            ),
            "only `sqlite` keeps a list",
        ));
    };
    if !file.exists() {
        return Ok(Answer::new(
            "no sessions",
            json!({"sessions": [], "more": false}),
        ));
    }
    let store = project::store_to_look_at(&file).await?;
    let page = store.sessions(None, lifecycle, limit).await;
    store.close().await;
    let page = page.map_err(of_store)?;
    let mut text = String::new();
    let mut lines = Vec::new();
    for line in &page.heads {
        let head = &line.head;
        let _ = writeln!(
            text,
            "{}  {:13} generation {:<5} {}",
            head.session_id,
            head.lifecycle.as_str(),
            head.generation,
            line.created_at
        );
        lines.push(json!({
            "session_id": head.session_id,
            "lifecycle": head.lifecycle.as_str(),
            "generation": head.generation,
            "owner_run_id": head.owner_run_id,
            "snapshot_id": head.snapshot_id,
            "checkpoint_id": head.checkpoint_id,
            "created_at": line.created_at,
        }));
    }
    let more = page.next_before.is_some();
    if lines.is_empty() {
        text.push_str("no sessions");
    } else if more {
        text.push_str("there are more; raise `--limit`\n");
    }
    Ok(Answer::new(text, json!({"sessions": lines, "more": more})))
}

async fn inspect(config: &AgentConfig, id: &SessionId) -> Outcome {
    let found = match project::store_file(config) {
        Some(file) => {
            let store = project::store_to_look_at(&file).await?;
            let found = qitos::session::inspect(&store, id).await;
            store.close().await;
            found?
        }
        None => {
            project::with_store(config, async |store| {
                Ok(qitos::session::inspect(&**store, id).await?)
            })
            .await?
        }
    };
    Ok(Answer::new(described(&found), found))
}

/// The lines that a person looks for first; everything else is in the JSON form.
fn described(found: &Value) -> String {
    let at = |pointer: &str| match found.pointer(pointer) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => crate::progress::escaped(text),
        Some(value) => value.to_string(),
    };
    let mut text = String::new();
    for (name, pointer) in [
        ("session", "/head/session_id"),
        ("lifecycle", "/lifecycle"),
        ("generation", "/head/generation"),
        ("owner run", "/owner/run_id"),
        ("owner generation", "/owner/owner_generation"),
        ("task", "/task/objective"),
        ("phase", "/phase"),
        ("next step", "/step"),
        ("last stop", "/last_stop"),
        ("counters", "/counters"),
        ("budget", "/budget"),
        ("tool batch", "/tool_batch"),
        ("log items", "/storage/log_lengths/conversation"),
        ("snapshot", "/head/snapshot_id"),
        ("intact", "/snapshot_integrity/intact"),
        ("store", "/store_kind"),
        ("durability", "/durability_class"),
        ("forked from", "/fork_lineage/source_session_id"),
        ("created at", "/created_at"),
    ] {
        let _ = writeln!(text, "{name:17} {}", at(pointer));
    }
    text
}

/// A fork reads and writes snapshots only: no model answers and no agent acts.
#[derive(Debug)]
struct NoAgent;

#[async_trait::async_trait]
impl AgentModule for NoAgent {
    type State = Value;

    fn name(&self) -> &str {
        "no_agent"
    }

    fn init_state(&self, _task: &Task) -> Result<Value, AgentError> {
        Err(AgentError::new("this agent runs nothing"))
    }

    fn reduce(
        &self,
        _state: &Value,
        _observation: &Observation,
        _decision: &Decision,
    ) -> Result<Reduced<Value>, AgentError> {
        Err(AgentError::new("this agent runs nothing"))
    }
}

async fn fork(session: &OneSession, snapshot: Option<&str>, operation_id: Option<&str>) -> Outcome {
    let (config, id) = one(session)?;
    let from = match snapshot {
        None => ForkFrom::Head,
        Some(text) => ForkFrom::Snapshot(text.parse().map_err(|_| {
            Failure::usage(
                "`--snapshot` is not a snapshot id",
                "`qit session inspect` shows the newest one",
            )
        })?),
    };
    let operation = operation_id
        .map(|text| {
            text.parse().map_err(|_| {
                Failure::usage(
                    "`--operation-id` is not a fork operation id",
                    "leave it out to have one made; the receipt shows it",
                )
            })
        })
        .transpose()?;
    let internal = |text: String| Failure::new(ExitCode::Session, "fork_failed", text, "");
    let model =
        ScriptedModel::new("none", Vec::new()).map_err(|error| internal(error.to_string()))?;
    let receipt = project::with_store(&config, async |store| {
        let engine = Engine::builder(NoAgent, Arc::new(model))
            .store(Arc::clone(store))
            .build()
            .map_err(|error| internal(error.to_string()))?;
        Ok(engine.fork(&id, from, operation).await?)
    })
    .await?;
    let text = format!(
        "{}\n\nparent     {id}, unchanged\noperation  {}\nnext       qit run --config {} --restore {}",
        receipt.child_session_id,
        receipt.operation_id,
        quoted(&session.config),
        receipt.child_session_id,
    );
    Ok(Answer::new(
        text,
        json!({
            "session_id": receipt.child_session_id,
            "receipt": receipt,
        }),
    ))
}

/// SES-57: `accepted` says that the request is stored, `persisted` that the session rests.
async fn pause(config: &AgentConfig, id: &SessionId, wait: Duration) -> Outcome {
    project::with_store(config, async |store| pause_in(&**store, id, wait).await).await
}

async fn pause_in(store: &dyn CheckpointStore, id: &SessionId, wait: Duration) -> Outcome {
    let mut lifecycle = lifecycle_of(store, id).await?;
    if !rests(lifecycle) {
        let groups = store.groups();
        let inbox = groups.inbox().map_err(of_store)?;
        let item: ItemId = format!("pause_{:032x}", SystemIds.next_id())
            .parse()
            .map_err(|_| Failure::usage("the request cannot be named", ""))?;
        let entry = InboxAppend::new(item, InboxKind::Pause, b"{}".to_vec()).map_err(of_store)?;
        inbox.append(id, entry).await.map_err(of_store)?;
        let until = Instant::now() + wait;
        loop {
            lifecycle = lifecycle_of(store, id).await?;
            if rests(lifecycle) || lifecycle.is_terminal() || Instant::now() >= until {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    let status = if rests(lifecycle) {
        "persisted"
    } else if lifecycle.is_terminal() {
        "finished_first"
    } else {
        "accepted"
    };
    Ok(Answer::new(
        format!("{status}: session {id} is {}", lifecycle.as_str()),
        json!({"session_id": id, "status": status, "lifecycle": lifecycle.as_str()}),
    ))
}

fn rests(lifecycle: Lifecycle) -> bool {
    matches!(lifecycle, Lifecycle::Paused | Lifecycle::WaitingInput)
}

async fn lifecycle_of(store: &dyn CheckpointStore, id: &SessionId) -> Result<Lifecycle, Failure> {
    let head = store.head(id).await.map_err(of_store)?;
    head.map(|head| head.lifecycle).ok_or_else(|| {
        Failure::new(
            ExitCode::Session,
            "session_not_found",
            "the store has no session of this id",
            "`qit session list` shows those that exist",
        )
    })
}
