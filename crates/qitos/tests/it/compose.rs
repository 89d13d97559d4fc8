//! A configuration becomes a running system.

use std::sync::Arc;

use qitos::compose::{Composition, CompositionOptions};
use qitos::config::{AgentConfig, Format};
use qitos::contracts::error::ContractError;
use qitos::models::{Model, ModelContext, ModelFactory};
use qitos::registry::FactoryRegistry;
use qitos::{RunOptions, RunOutcome};

fn notes(directory: &std::path::Path, changes: &[(&str, &str)]) -> AgentConfig {
    let mut text = r#"
schema: qitos.agent
agent: {name: notes_agent, protocol: react_text_v1}
model:
  provider: fake
  model: notes-fake
  request:
    extra_body:
      script:
        - {tool: summarize_note, args: {index: 0}}
        - {tool: summarize_note, args: {index: 1}}
        - {final: "Indexed 2 notes: Session, Artifact."}
tools: {preset: demo_notes}
runtime:
  environment:
    type: unsafe_host
    workspace: .
  session: {mode: durable, store: sqlite}
  trajectory: {enabled: true, privacy: private}
budgets: {max_steps: 6, max_requests: 6, max_runtime_seconds: 30}
failure_policy: {tool: fail_closed}
dataset:
  - task: Index both notes
"#
    .to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    AgentConfig::from_str(&text, Format::Yaml, directory).unwrap()
}

#[tokio::test]
async fn the_notes_agent_runs_from_its_configuration() {
    // CLI-11, PRV-106
    let directory = tempfile::tempdir().unwrap();
    let config = notes(directory.path(), &[]);
    let composition = Composition::build(
        &config,
        &FactoryRegistry::builtin(),
        CompositionOptions::default(),
    )
    .await
    .unwrap();
    let session = composition.session(None, None).await.unwrap();
    let result = session.run(RunOptions::default()).await.unwrap();
    assert_eq!(result.outcome, RunOutcome::Completed, "{result:?}");
    assert_eq!(
        result.final_result.as_deref(),
        Some("Indexed 2 notes: Session, Artifact.")
    );
    assert_eq!((result.usage.requests, result.usage.tool_calls), (3, 2));
    assert!(result.trajectory_complete);
    let receipt = composition.close().await;
    assert_eq!(
        (receipt.status.as_str(), &receipt),
        ("closed", &composition.close().await)
    );
    assert_eq!(
        composition.session(None, None).await.unwrap_err().code(),
        "composition_closed"
    );
    // CFG-27: the receipt says it, and the database has nothing beside it any more.
    assert!(receipt.closed.contains(&"checkpoint store".to_owned()));
    assert!(directory.path().join(".qitos/sessions.sqlite3").exists());
    assert!(
        !directory
            .path()
            .join(".qitos/sessions.sqlite3-wal")
            .exists()
    );
    let head = composition.store().unwrap().head(session.id()).await;
    assert_eq!(head.unwrap_err().code(), "persistence_failed");
}

/// A provider that this program has no client for.
struct NotCompiledIn;

impl ModelFactory for NotCompiledIn {
    fn needs_credential(&self) -> bool {
        false
    }

    fn is_available(&self) -> bool {
        false
    }

    fn build(&self, _: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
        panic!("nothing is built")
    }
}

#[tokio::test]
async fn unknown_names_are_found_before_anything_is_built() {
    // CFG-18, CFG-19, PRV-2, PRV-3
    let directory = tempfile::tempdir().unwrap();
    for (change, field, reason) in [
        (
            ("provider: fake", "provider: nobody"),
            "model.provider",
            Some("model_provider_unknown"),
        ),
        (
            ("provider: fake", "provider: elsewhere"),
            "model.provider",
            Some("model_provider_unavailable"),
        ),
        (
            ("preset: demo_notes", "preset: os.path"),
            "tools.preset",
            None,
        ),
        (
            ("store: sqlite", "store: redis"),
            "runtime.session.store",
            None,
        ),
        (
            (
                "budgets: {max_steps",
                "context: {selector: other}\nbudgets: {max_steps",
            ),
            "context.selector",
            None,
        ),
        (
            (
                "budgets: {max_steps",
                "context: {budget_policy: other}\nbudgets: {max_steps",
            ),
            "context.budget_policy",
            None,
        ),
        (
            (
                "budgets: {max_steps",
                "context: {artifact_resolver: other}\nbudgets: {max_steps",
            ),
            "context.artifact_resolver",
            None,
        ),
        (
            (
                "budgets: {max_steps",
                "context: {continuation_resolver: other}\nbudgets: {max_steps",
            ),
            "context.continuation_resolver",
            None,
        ),
    ] {
        let config = notes(directory.path(), &[change]);
        let registry =
            FactoryRegistry::builtin().model_factory("elsewhere", Arc::new(NotCompiledIn));
        let error = Composition::build(&config, &registry, CompositionOptions::default())
            .await
            .unwrap_err();
        assert_eq!(
            (error.code(), error.field.as_deref()),
            ("agent_composition_failed", Some(field))
        );
        assert_eq!(error.reason.as_deref(), reason);
    }
    assert!(!directory.path().join(".qitos").exists());
}
