use qitos_config::{AgentConfig, Format};
use qitos_contracts::digest::Digest;

use crate::{document, json, yaml};

#[test]
fn the_digest_is_that_of_the_project_not_of_its_place_or_spelling() {
    // CFG-13, check cfg.digest_stable_when_moved
    let text = document("{name: a, seed: 1}", "");
    let config = yaml(&text).unwrap();
    let moved = AgentConfig::from_str(&text, Format::Yaml, "/").unwrap();
    assert_eq!(config.config_digest(), moved.config_digest());
    let canonical = std::str::from_utf8(config.to_canonical_json()).unwrap();
    assert_eq!(
        json(canonical).unwrap().config_digest(),
        config.config_digest()
    );
    for same in [
        text.replace("{name: a, seed: 1}", "{seed: 1, name: \"a\"} # comment"),
        text.replace("max_steps: 3", "max_runtime_seconds: 600, max_steps: 3"),
        text.replace("workspace: .", "workspace: /"),
        format!("{text}metadata: {{a: 1}}\ndataset: [x]\n"),
        text.replace("runtime:\n", "runtime:\n  data_root: elsewhere\n  session: {session_id: s, restore: true, path: x}\n  trajectory: {output: y}\n"),
    ] {
        let same = yaml(&same).unwrap();
        assert_eq!(same.config_digest(), config.config_digest());
        assert_ne!(same.source_digest(), config.source_digest());
        assert!(config.differing_fields(&same).is_empty());
    }
    assert_eq!(config.source_digest(), Some(Digest::of(text.as_bytes())));
}

#[test]
fn every_other_change_alters_the_digest_and_is_named() {
    // CFG-13, CFG-14: fields, not values
    let text = document("{name: a}", "");
    let config = yaml(&text).unwrap();
    for (changed, field) in [
        (document("{name: b}", ""), "agent.name"),
        (
            text.replace("max_steps: 3", "max_steps: 4"),
            "budgets.max_steps",
        ),
        (
            text.replace("tools: {}", "tools: {include: [x]}"),
            "tools.include",
        ),
        (
            format!("{text}compaction: {{provider: c}}\n"),
            "compaction.provider",
        ),
        (
            text.replace("workspace: .", "workspace: ., memory_mb: 64"),
            "runtime.environment.memory_mb",
        ),
    ] {
        let changed = yaml(&changed).unwrap();
        assert_ne!(changed.config_digest(), config.config_digest(), "{field}");
        assert_eq!(config.differing_fields(&changed), [field]);
    }
}

#[test]
fn old_revisions_are_converted_with_receipts_and_never_written() {
    // CFG-9, check cfg.v1_receipts
    let text = document("{name: a}", "")
        .replace("qitos.agent", "qitos.agent/v1")
        .replace("type: local", "type: host, network: none, memory_mb: 512");
    let config = yaml(&text).unwrap();
    let codes: Vec<&str> = config
        .compatibility()
        .iter()
        .map(|receipt| receipt.code)
        .collect();
    assert_eq!(
        codes,
        [
            "agent_schema_revision_compatibility",
            "host_environment_renamed_unsafe_host"
        ]
    );
    assert_eq!(config.runtime().environment().kind(), "unsafe_host");
    let canonical = std::str::from_utf8(config.to_canonical_json()).unwrap();
    assert!(canonical.contains("\"schema\":\"qitos.agent\"") && !canonical.contains("/v1"));
    assert!(
        !canonical.contains("compatibility"),
        "no receipts in the canonical form (CFG-12)"
    );
    let session =
        document("{name: a}", "").replace("runtime:\n", "runtime:\n  session: {enabled: false}\n");
    let config = yaml(&session).unwrap();
    assert_eq!(
        config.compatibility()[0].code,
        "session_enabled_compatibility"
    );
    assert_eq!(
        config.runtime().session().mode(),
        qitos_config::section::SessionMode::Ephemeral
    );
}

#[test]
fn every_environment_type_round_trips() {
    // CFG-12, check cfg.roundtrip_all_env_types
    for kind in ["local", "docker", "unsafe_host", "my_env"] {
        let config =
            yaml(&document("{name: a}", "").replace("type: local", &format!("type: {kind}")))
                .unwrap();
        let text = std::str::from_utf8(config.to_canonical_json()).unwrap();
        assert_eq!(json(text).unwrap(), config, "{kind}");
    }
}

#[test]
fn the_sanitized_form_holds_digests_where_values_could_tell_something() {
    // CFG-15
    let text = document("{name: secret_name}", "metadata: {a: secret_data}\ndataset: [secret_task]\n")
        .replace("model: m}", "model: m, base_url: \"https://secret.example\", credential: {ref: secret_ref}, request: {extra_body: {user: secret_user}}}");
    let config = yaml(&text).unwrap();
    let sanitized = config.sanitized();
    let shown = sanitized.to_string();
    assert!(!shown.contains("secret"), "{shown}");
    assert_eq!(sanitized["config_digest"], config.config_digest().to_hex());
    assert_eq!(sanitized["model"]["provider"], "fake");
    assert!(sanitized["model"]["endpoint_digest"].is_string());
    assert!(sanitized["model"]["credential_ref_digest"].is_string());
    assert_eq!(sanitized["budgets"]["max_steps"], 3);
    assert!(
        sanitized["omitted"]
            .as_array()
            .unwrap()
            .iter()
            .any(|field| field == "dataset")
    );
}

#[test]
fn defaults_are_those_of_the_table() {
    // composition.md section 1
    let config = yaml(&document("{name: a}", "")).unwrap();
    assert_eq!(config.agent().protocol(), "auto");
    assert_eq!(config.model().request().max_tokens(), 2048);
    assert_eq!(config.model().request().temperature(), None);
    assert_eq!(config.model().api_mode(), None);
    assert!(!config.tools().options().auto_approve());
    assert_eq!(config.tools().options().max_concurrency(), 4);
    assert_eq!(config.runtime().environment().wall_seconds(), 3600);
    assert_eq!(config.runtime().environment().image(), None);
    assert_eq!(config.budgets().max_requests(), 12);
    assert_eq!(config.budgets().max_tokens(), None);
    assert_eq!(config.context().max_handoffs(), None);
    let openai = document("{name: a}", "").replace("provider: fake", "provider: openai-compatible");
    let openai = yaml(&openai).unwrap();
    assert_eq!(openai.model().provider(), "openai_compatible");
    assert_eq!(openai.model().api_mode(), Some("chat_completions"));
}
