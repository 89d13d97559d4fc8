use qitos_config::section::{DatasetItem, SessionMode, ToolPolicy};
use qitos_config::{AgentConfig, ConfigErrorCode};
use serde_json::json;

use crate::yaml;

fn is_shared<T: Send + Sync + Clone>(_: &T) {}

#[test]
fn code_and_file_give_the_same_configuration() {
    // CFG-17, check cfg.builder_equals_reader
    let built = AgentConfig::builder(std::env::temp_dir())
        .edit(|root| {
            root.agent(|agent| {
                agent.name("a").seed(7);
            });
            root.model(|model| {
                model
                    .provider("openai")
                    .model("m")
                    .base_url("https://h.example/v1/responses");
                model.credential(|credential| {
                    credential.reference("main");
                });
                model.request(|request| {
                    request
                        .temperature(0.5)
                        .extra_body(json!({"top_k": 3}).as_object().unwrap().clone());
                });
            });
            root.tools(|tools| {
                tools.include(["x", "y"]).policy(ToolPolicy::Disabled);
            });
            root.runtime(|runtime| {
                runtime.environment(|environment| {
                    environment.kind("local").workspace(".").cpus(1.0);
                });
                runtime.session(|session| {
                    session.mode(SessionMode::Ephemeral);
                });
            });
            root.dataset([DatasetItem::new("t").with_expected(json!(4))]);
        })
        .build()
        .unwrap();
    is_shared(&built);
    let read = yaml(
        "schema: qitos.agent\nagent: {name: a, seed: 7}\nmodel: {provider: openai, model: m, base_url: https://h.example/v1, credential: {ref: main}, request: {temperature: 0.5, extra_body: {top_k: 3}}}\ntools: {include: [x, y], policy: disabled}\nruntime:\n  environment: {type: local, workspace: ., cpus: 1}\n  session: {mode: ephemeral}\nbudgets: {max_steps: 10}\ndataset: [{task: t, expected: 4}]\n",
    )
    .unwrap();
    assert_eq!(built, read);
    assert_eq!(built.config_digest(), read.config_digest());
    assert_eq!(built.source_digest(), None);
}

#[test]
fn code_is_checked_like_a_file_and_errors_have_no_position() {
    // CFG-17
    let errors = AgentConfig::builder(std::env::temp_dir())
        .edit(|root| {
            root.agent(|agent| {
                agent.name(" ").protocol("${P}");
            });
            root.model(|model| {
                model.provider("fake").model("m").request(|request| {
                    request.temperature(f64::NAN).timeout_seconds(f64::INFINITY);
                });
            });
            let mut deep = json!(1);
            for _ in 0..40 {
                deep = json!([deep]);
            }
            root.metadata(json!({"deep": deep}).as_object().unwrap().clone());
        })
        .build()
        .unwrap_err();
    let found: Vec<(&str, ConfigErrorCode)> = errors
        .errors()
        .iter()
        .map(|error| (error.field.split('[').next().unwrap(), error.code))
        .collect();
    assert_eq!(
        found,
        [
            ("agent.name", ConfigErrorCode::ConfigSchemaInvalid),
            ("agent.protocol", ConfigErrorCode::ConfigSchemaInvalid),
            ("metadata.deep", ConfigErrorCode::ConfigSyntaxInvalid),
            (
                "model.request.temperature",
                ConfigErrorCode::ConfigSchemaInvalid
            ),
            (
                "model.request.timeout_seconds",
                ConfigErrorCode::ConfigSchemaInvalid
            ),
            ("runtime", ConfigErrorCode::ConfigSchemaInvalid),
        ]
    );
    assert!(
        errors
            .errors()
            .iter()
            .all(|error| error.line.is_none() && error.source.is_none())
    );
}

#[test]
fn a_modified_copy_leaves_the_original_and_lets_defaults_follow() {
    // CFG-16, CFG-17
    let original = yaml(
        "schema: qitos.agent\nagent: {name: a}\nmodel: {provider: openai, model: m}\ntools: {}\nruntime:\n  environment: {type: docker, workspace: .}\nbudgets: {max_steps: 10}\n",
    )
    .unwrap();
    let copy = original
        .with(|root| {
            root.model(|model| {
                model.provider("anthropic");
            });
            root.runtime(|runtime| {
                runtime.data_root("other").environment(|environment| {
                    environment.kind("local");
                });
            });
        })
        .unwrap();
    assert_eq!(original.model().api_mode(), Some("chat_completions"));
    assert_eq!(
        original.runtime().environment().image(),
        Some("python:3.12-slim")
    );
    assert_eq!(copy.model().api_mode(), Some("messages"));
    assert_eq!(copy.runtime().environment().image(), None);
    assert_eq!(
        copy.runtime().session().path(),
        Some("other/sessions.sqlite3")
    );
    assert!(
        original
            .with(|root| {
                root.budgets(|budgets| {
                    budgets.max_steps(0);
                });
            })
            .is_err()
    );
}
