//! `qit demo`: a session begins in one process, pauses, and goes on in another. Needs nothing and asks nothing.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use qitos::checkpoint::Page;
use qitos::models::DeltaSink;
use qitos::{RunOptions, Session};
use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, note};
use crate::args::{Demo, Format, Progress, Taking};
use crate::commands::{new, run};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::project;

/// The folder that the demonstration makes where it is started.
const FOLDER: &str = "notes-run";

/// Plays both parts, or one of them.
pub(crate) async fn perform(arguments: &Demo, format: Format) -> Outcome {
    let config = PathBuf::from(FOLDER).join("agent.yaml");
    match arguments.continue_stage.as_deref() {
        None => play(&config, format).await,
        Some("begin") => begin(&config).await,
        Some(_) => Err(Failure::usage(
            "there is no such stage",
            "`qit demo` plays all of them",
        )),
    }
}

/// Makes the project, then lets one process begin and a second one finish.
async fn play(path: &Path, format: Format) -> Outcome {
    if Path::new(FOLDER).symlink_metadata().is_ok() {
        return Err(Failure::new(
            ExitCode::Usage,
            "project_exists",
            format!("`{FOLDER}` exists already and is left as it is"),
            format!(
                "look at it with `qit session list --config {FOLDER}/agent.yaml`, start the demo in another directory, or remove `{FOLDER}` yourself"
            ),
        ));
    }
    new::make_notes(Path::new(FOLDER), "notes_agent")?;
    let told = |text: &str| {
        if format == Format::Text {
            note(text);
        }
    };
    let begun = child(&["demo", "--continue-stage", "begin"])?;
    let id = begun.text("/session_id").unwrap_or_default().to_owned();
    let calls = begun.value("/tool_calls").as_u64().unwrap_or_default();
    told(&format!(
        "process {}: made session {id}, called {calls} tool, paused and ended",
        begun.process
    ));
    let config = format!("{FOLDER}/agent.yaml");
    let finished = child(&[
        "run",
        "--config",
        &config,
        "--restore",
        &id,
        "--progress",
        "none",
    ])?;
    told(&format!(
        "process {}: restored the session, finished it and ended",
        finished.process
    ));
    let (lineage, shown) = lineage_of(path, &id).await?;
    let result = finished.text("/final_result").unwrap_or_default();
    let next = [
        format!("qit session inspect --config {config} --session-id {id}"),
        format!("qit session list --config {config}"),
        format!("qit run --config {config}"),
    ];
    let text = format!(
        "{result}\n\nsession    {id}\nlineage    generation  lifecycle        owner\n{shown}\nlook further\n  {}",
        next.join("\n  ")
    );
    let json = json!({
        "final_result": result,
        "session_id": id,
        "processes": [
            {"pid": begun.process, "lifecycle": begun.value("/lifecycle"), "tool_calls": calls},
            {"pid": finished.process, "lifecycle": finished.value("/lifecycle"), "tool_calls": finished.value("/tool_calls")},
        ],
        "lineage": lineage,
        "next": next,
    });
    Ok(Answer::new(text, json))
}

/// The first process: runs until the first tool was called, pauses, ends.
async fn begin(path: &Path) -> Outcome {
    let config = project::load(path)?;
    let taking = Taking::silent();
    let composition = run::compose(path, &config, &taking).await?;
    let session = composition.session(None, None).await?;
    let options = RunOptions {
        on_delta: Some(Box::new(PauseAtFirstWords(Some(session.clone())))),
        ..RunOptions::default()
    };
    let ran = session.run(options).await;
    composition.close().await;
    let result =
        ran.map_err(|error| Failure::new(ExitCode::Session, "demo_failed", error.to_string(), ""))?;
    let json = json!({
        "session_id": result.session_id,
        "lifecycle": result.lifecycle.as_str(),
        "tool_calls": result.usage.tool_calls,
    });
    Ok(Answer::new(result.session_id.to_string(), json))
}

/// Asks its session to pause as soon as the model speaks; the next safe boundary is after the first tool.
#[derive(Debug)]
struct PauseAtFirstWords(Option<Session>);

impl DeltaSink for PauseAtFirstWords {
    fn delta(&mut self, _text: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        if let Some(session) = self.0.take() {
            let ask = session.pause();
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(ask))?;
        }
        Ok(())
    }
}

/// What a process of the demonstration did.
struct Played {
    process: u32,
    answer: Value,
}

impl Played {
    fn value(&self, pointer: &str) -> &Value {
        self.answer.pointer(pointer).unwrap_or(&Value::Null)
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.value(pointer).as_str()
    }
}

/// Starts this program again and reads the one object that it prints.
fn child(arguments: &[&str]) -> Result<Played, Failure> {
    let failed = |error: std::io::Error| Failure::file("start a process of this program", &error);
    let program = std::env::current_exe().map_err(failed)?;
    let process = Command::new(program)
        .args(["--format", "json"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let number = process.id();
    let output = process.wait_with_output().map_err(failed)?;
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let played = Played {
        process: number,
        answer,
    };
    if output.status.success() {
        return Ok(played);
    }
    let code = played.text("/error/code").unwrap_or("demo_failed");
    let message = played.text("/error/message");
    Err(Failure::new(
        ExitCode::NoResult,
        code,
        message.unwrap_or("a process of the demonstration failed"),
        format!("what was stored is in `{FOLDER}`"),
    ))
}

/// Generation, lifecycle and owner of every commit, oldest first.
async fn lineage_of(path: &Path, id: &str) -> Result<(Value, String), Failure> {
    let config = project::load(path)?;
    let session = project::session_id(id)?;
    let page = project::with_store(&config, async |store| {
        store
            .lineage(&session, Page::default())
            .await
            .map_err(|error| Failure::from(qitos::checkpoint::SessionError::from(error)))
    })
    .await?;
    let mut lines = Vec::new();
    let mut text = String::new();
    for entry in page.entries.iter().rev() {
        let _ = writeln!(
            text,
            "           {:<10}  {:<15}  {}",
            entry.generation,
            entry.lifecycle.as_str(),
            entry.owner_run_id
        );
        lines.push(json!({
            "generation": entry.generation,
            "lifecycle": entry.lifecycle.as_str(),
            "owner_run_id": entry.owner_run_id,
        }));
    }
    Ok((lines.into(), text))
}

impl Taking {
    /// Shows nothing and takes nothing over.
    fn silent() -> Self {
        Taking {
            force: false,
            steer: None,
            credentials: None,
            credentials_from_env: false,
            accept_config_change: false,
            progress: Progress::None,
            no_input: true,
        }
    }
}
