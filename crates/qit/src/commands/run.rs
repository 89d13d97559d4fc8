//! `qit run`: one session of a project, new or taken up.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qitos::checkpoint::CheckpointStore;
use qitos::compose::{CloseReceipt, Composition, CompositionOptions};
use qitos::config::AgentConfig;
use qitos::contracts::ids::SessionId;
use qitos::contracts::secret::CredentialResolver;
use qitos::contracts::snapshot::Lifecycle;
use qitos::credentials::{
    EnvironmentCredentialResolver, LocalCredentialFileResolver, repository_root_of,
};
use qitos::registry::FactoryRegistry;
use qitos::{EngineResult, RestoreOptions, RunError, RunOptions, Session, Takeover};
use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, note, quoted};
use crate::args::{Format, Run, Taking};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::progress::{Watcher, escaped};
use crate::project;
use crate::signals::Signals;

/// The longest task that is read from a file or stdin.
const MOST_TASK_BYTES: u64 = 1024 * 1024;

/// Runs a new session, or the one that `--restore` names.
pub(crate) async fn perform(arguments: Run, format: Format) -> Outcome {
    let config = project::load(&arguments.config)?;
    if arguments.dry_run {
        FactoryRegistry::builtin().resolve(&config)?;
        return Ok(dry_run(&config));
    }
    let configured = config.runtime().session();
    let restore = match &arguments.restore {
        Some(id) => Some(project::session_id(id)?),
        None if configured.restore() => Some(project::session_id(configured.session_id())?),
        None => None,
    };
    if let Some(session) = restore {
        return Box::pin(take_up(
            &arguments.config,
            config,
            session,
            arguments.taking,
            format,
        ))
        .await;
    }
    let task = task_of(&arguments)?;
    let wanted = arguments
        .session_id
        .as_deref()
        .or(Some(configured.session_id()).filter(|id| !id.is_empty()));
    let id = wanted.map(project::session_id).transpose()?;
    let composition = compose(&arguments.config, &config, &arguments.taking).await?;
    let session = match composition.session(task, id).await {
        Ok(session) => session,
        Err(error) => {
            composition.close().await;
            return Err(error.into());
        }
    };
    drive(
        &arguments.config,
        composition,
        session,
        arguments.taking,
        format,
    )
    .await
}

/// Goes on with a stored session: restores one that rests, recovers one whose owner is gone (SES-9, SES-52).
pub(crate) async fn take_up(
    path: &Path,
    config: AgentConfig,
    id: SessionId,
    taking: Taking,
    format: Format,
) -> Outcome {
    let stranded =
        project::with_store(&config, async |store| is_stranded(&**store, &id).await).await?;
    let composition = compose(path, &config, &taking).await?;
    let options = RestoreOptions {
        accept_config_change: taking.accept_config_change,
        ..RestoreOptions::default()
    };
    let taken = if stranded {
        let takeover = if taking.force {
            Takeover::Force
        } else {
            Takeover::WhenLeaseExpired
        };
        composition.recover(&id, takeover, options).await
    } else {
        composition.restore(&id, options).await
    };
    match taken {
        Ok(session) => drive(path, composition, session, taking, format).await,
        Err(error) => {
            composition.close().await;
            let needs_force = stranded
                && !taking.force
                && qitos::contracts::error::ContractError::code(&error) == "unsupported_capability";
            if needs_force {
                return Err(Failure::new(
                    ExitCode::Session,
                    "owner_active",
                    "the session's owner did not let go of it, and this store keeps no leases",
                    "if no other process runs the session, repeat the command with `--force`",
                ));
            }
            Err(error.into())
        }
    }
}

async fn is_stranded(store: &dyn CheckpointStore, id: &SessionId) -> Result<bool, Failure> {
    let head = store
        .head(id)
        .await
        .map_err(|error| Failure::from(qitos::checkpoint::SessionError::from(error)))?;
    Ok(head.is_some_and(|head| {
        matches!(
            head.lifecycle,
            Lifecycle::Created
                | Lifecycle::Running
                | Lifecycle::PauseRequested
                | Lifecycle::Pausing
                | Lifecycle::Restoring
        )
    }))
}

/// Builds the system that a configuration describes.
pub(crate) async fn compose(
    path: &Path,
    config: &AgentConfig,
    taking: &Taking,
) -> Result<Composition, Failure> {
    let options = CompositionOptions {
        credential_resolver: Some(resolver(path, taking)),
        ..CompositionOptions::default()
    };
    Ok(Composition::build(config, &FactoryRegistry::builtin(), options).await?)
}

/// Where credentials come from: the environment only if asked for, else the given or the usual file (CRD-3, CRD-6).
fn resolver(path: &Path, taking: &Taking) -> Arc<dyn CredentialResolver> {
    if taking.credentials_from_env {
        return Arc::new(EnvironmentCredentialResolver::from_process());
    }
    let file = taking.credentials.clone().unwrap_or_else(|| {
        let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("/"));
        home.join(".config/qitos/credentials.yaml")
    });
    Arc::new(LocalCredentialFileResolver::new(
        file,
        repository_root_of(path),
    ))
}

/// CLI-5: nothing was created, sent or read beyond the configuration.
fn dry_run(config: &AgentConfig) -> Answer {
    let sanitized = config.sanitized();
    let text = serde_json::to_string_pretty(&sanitized).unwrap_or_else(|_| sanitized.to_string());
    let json = json!({"dry_run": true, "configuration": sanitized});
    Answer::new(format!("{text}\nconfiguration ok; nothing was run"), json)
}

/// The task of the command line; none for the first of the data set (CLI-4).
fn task_of(arguments: &Run) -> Result<Option<String>, Failure> {
    let text = match (&arguments.task, &arguments.task_file) {
        (Some(task), _) if task == "-" => read_bounded(std::io::stdin().lock(), "stdin")?,
        (Some(task), _) => task.clone(),
        (None, Some(path)) => {
            let file = std::fs::File::open(path)
                .map_err(|error| Failure::file("open the task file", &error))?;
            read_bounded(file, "the task file")?
        }
        (None, None) => return Ok(None),
    };
    if text.trim().is_empty() {
        return Err(Failure::usage("the task is empty", "say what to do"));
    }
    Ok(Some(text))
}

fn read_bounded(from: impl std::io::Read, what: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(MOST_TASK_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::file(&format!("read {what}"), &error))?;
    if bytes.len() as u64 > MOST_TASK_BYTES {
        return Err(Failure::usage(
            format!("{what} is larger than {MOST_TASK_BYTES} bytes"),
            "keep long material in files that the agent can read",
        ));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("{what} is not UTF-8"), "save it as UTF-8"))
}

/// What a run and its signals came to.
enum Ended {
    /// The run gave a result.
    Result(Box<EngineResult>),
    /// A second signal came first; the session stays as it is stored.
    Left,
}

/// Runs a session to its end, a pause or a signal; then closes everything and says what came of it.
async fn drive(
    path: &Path,
    composition: Composition,
    session: Session,
    taking: Taking,
    format: Format,
) -> Outcome {
    let watcher = Watcher::new(taking.progress, format);
    watcher.tell(
        "session",
        &json!({"session_id": session.id(), "run_id": session.run_id()}),
    );
    let options = RunOptions {
        steering: taking.steer,
        on_delta: Some(watcher.deltas()),
        // What is shown is for reading along; the result is printed at the end.
        restartable: true,
        progress: Some(Arc::new(watcher)),
    };
    let mut signal = None;
    let ended = run_with_signals(&session, options, &mut signal).await;
    watcher.end();
    let close = composition.close().await;
    let launch = composition.launch_receipt();
    let config = composition.config().clone();
    let generation = session.receipt().map(|receipt| receipt.generation);
    let id = session.id().clone();
    drop((session, composition));
    let result = match ended? {
        Ended::Result(result) => result,
        Ended::Left => {
            return Err(Failure::new(
                signal.unwrap_or(ExitCode::Interrupted),
                "run_interrupted",
                format!("the run was left before it could pause; session {id}"),
                "go on with `qit run --restore ID --force`",
            ));
        }
    };
    let exit = signal.unwrap_or_else(|| ExitCode::of_run(&result, close.status == "closed"));
    Ok(answer_of(
        path, &config, &launch, &close, &result, generation, exit,
    ))
}

/// CLI-8: the first signal asks for a pause, the second leaves the run, the third ends the process.
async fn run_with_signals(
    session: &Session,
    options: RunOptions,
    stopped_by: &mut Option<ExitCode>,
) -> Result<Ended, Failure> {
    let mut signals = Signals::listen();
    let mut run = Box::pin(session.run(options));
    loop {
        let code = tokio::select! {
            biased;
            result = &mut run => return match result {
                Ok(result) => Ok(Ended::Result(Box::new(result))),
                Err(RunError::Session(error)) => Err(error.into()),
                Err(RunError::Consumer(_)) => Err(Failure::new(
                    ExitCode::NoResult,
                    "output_failed",
                    "streamed text could not be shown",
                    "restore the session",
                )),
            },
            code = signals.next() => code,
        };
        if stopped_by.is_some() {
            std::mem::drop(tokio::spawn(async move {
                let code = signals.next().await;
                #[expect(
                    clippy::exit,
                    reason = "CLI-8: the third signal ends the process at once"
                )]
                std::process::exit(code.number().into());
            }));
            return Ok(Ended::Left);
        }
        *stopped_by = Some(code);
        note("pausing at the next safe boundary; once more leaves the run");
        // The run may have ended meanwhile; then its result says so.
        let _ = session.pause().await;
    }
}

/// The object of CLI-2 and the text for people.
fn answer_of(
    path: &Path,
    config: &AgentConfig,
    launch: &Value,
    close: &CloseReceipt,
    result: &EngineResult,
    generation: Option<u64>,
    exit: ExitCode,
) -> Answer {
    let budgets = config.budgets();
    let error = result.failure.as_ref().map(|failure| {
        json!({
            "code": failure.error_code,
            "category": failure.category,
            "message": failure.message,
            "phase": failure.phase,
            "step_id": failure.step_id,
            "recoverable": failure.recoverable,
            "remediation": failure.remediation,
        })
    });
    let json = json!({
        "config_digest": config.config_digest(),
        "session_id": result.session_id,
        "run_id": result.run_id,
        "outcome": result.outcome,
        "stop_reason": result.stop_reason,
        "lifecycle": result.lifecycle.as_str(),
        "generation": generation,
        "final_result": result.final_result,
        "step_count": result.step_count,
        "tool_calls": result.usage.tool_calls,
        "budget": {
            "used": result.usage,
            "max_steps": budgets.max_steps(),
            "max_requests": budgets.max_requests(),
            "max_runtime_seconds": budgets.max_runtime_seconds(),
            "max_tokens": budgets.max_tokens(),
            "max_tool_calls": budgets.max_tool_calls(),
        },
        "credential": launch.get("credential"),
        "journal": launch.get("journal"),
        "sandbox": close.sandbox,
        "close": close,
        "artifacts": [],
        "unresolved_attempts": result.unresolved_attempts,
        "trajectory_complete": result.trajectory_complete,
        "error": error,
        "exit_code": exit.number(),
    });
    Answer::new(text_of(path, result, generation, close), json).exiting(exit)
}

fn text_of(
    path: &Path,
    result: &EngineResult,
    generation: Option<u64>,
    close: &CloseReceipt,
) -> String {
    let mut lines = Vec::new();
    match &result.final_result {
        Some(answer) => lines.push(escaped(answer)),
        None => lines.push(format!("no final result: {}", result.stop_reason.as_str())),
    }
    if let Some(failure) = &result.failure {
        lines.push(format!(
            "error[{}]: {}",
            failure.error_code,
            escaped(&failure.message)
        ));
        if !failure.remediation.is_empty() {
            lines.push(format!("help: {}", failure.remediation));
        }
    }
    lines.push(String::new());
    lines.push(format!("session    {}", result.session_id));
    lines.push(format!(
        "lifecycle  {}{}",
        result.lifecycle.as_str(),
        generation.map_or_else(String::new, |generation| format!(
            ", generation {generation}"
        ))
    ));
    lines.push(format!(
        "used       {} steps, {} requests, {} tool calls",
        result.step_count, result.usage.requests, result.usage.tool_calls
    ));
    for failure in &close.failures {
        lines.push(format!(
            "warning    {} could not be closed: {}",
            failure.resource, failure.error_type
        ));
    }
    let config = quoted(path);
    let id = &result.session_id;
    let next = if result.lifecycle.is_terminal() {
        format!("qit session inspect --config {config} --session-id {id}")
    } else {
        format!("qit run --config {config} --restore {id}")
    };
    lines.push(format!("next       {next}"));
    lines.join("\n")
}
