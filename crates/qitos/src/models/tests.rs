//! Names of providers and what they declare (PRV-3, PRV-8).

use crate::registry::FactoryRegistry;

/// The built model's target, or the error.
#[cfg(any(feature = "openai-chat", feature = "gemini", feature = "local"))]
fn target(provider: &str, api_mode: Option<&str>) -> Result<String, String> {
    use qitos_config::{AgentConfig, Format};
    use qitos_contracts::secret::SecretValue;

    use crate::registry::ModelContext;

    let mode = api_mode.map_or(String::new(), |mode| format!(", api_mode: {mode}"));
    let text = format!(
        "schema: qitos.agent\nagent: {{name: a}}\n\
         model: {{provider: {provider}, model: m, credential: {{ref: key}}{mode}}}\n\
         tools: {{preset: none}}\n\
         runtime: {{environment: {{type: unsafe_host, workspace: .}}}}\n\
         budgets: {{max_steps: 1, max_requests: 1}}\n"
    );
    let config = AgentConfig::from_str(&text, Format::Yaml, std::path::Path::new("/")).unwrap();
    let registry = FactoryRegistry::builtin();
    let factory = registry.models.get(provider).unwrap();
    assert!(factory.is_available(), "{provider}");
    let model = factory.build(ModelContext {
        section: config.model(),
        credential: Some(SecretValue::new("canary".into())),
    })?;
    assert!(!format!("{model:?}").contains("canary"));
    assert_eq!(**model.target(), model.capabilities().target);
    model.capabilities().check().unwrap();
    Ok(format!("{:?}", model.target()))
}

#[cfg(feature = "gemini")]
#[test]
fn gemini_declares_its_target_and_one_mode_prv_8() {
    let declared = Ok("google/m/gemini/generate_content".to_owned());
    assert_eq!(target("gemini", None), declared);
    assert_eq!(target("gemini", Some("generate_content")), declared);
    let error = target("gemini", Some("responses")).unwrap_err();
    assert_eq!(
        error,
        "api_mode `responses` is not one of: generate_content"
    );
}

#[cfg(feature = "local")]
#[test]
fn local_servers_declare_their_targets_and_list_their_modes_prv_8() {
    for (provider, mode, declared) in [
        ("ollama", None, "ollama/m/ollama/chat"),
        ("ollama", Some("chat"), "ollama/m/ollama/chat"),
        ("ollama", Some("generate"), "ollama/m/ollama/generate"),
        ("lm_studio", None, "lm_studio/m/lm_studio/chat_completions"),
        ("vllm", None, "vllm/m/vllm/chat_completions"),
        ("litellm", None, "litellm/m/litellm/chat_completions"),
    ] {
        assert_eq!(target(provider, mode).as_deref(), Ok(declared));
    }
    for (provider, allowed) in [
        ("ollama", "chat, generate"),
        ("lm_studio", "chat_completions"),
        ("vllm", "chat_completions"),
        ("litellm", "chat_completions"),
    ] {
        let error = target(provider, Some("messages")).unwrap_err();
        assert_eq!(
            error,
            format!("api_mode `messages` is not one of: {allowed}")
        );
    }
}

#[cfg(feature = "openai-chat")]
#[test]
fn known_chat_servers_are_registered_by_the_names_of_their_rows_prv_2_prv_8() {
    for server in qitos_providers::openai_chat::KNOWN_SERVERS {
        let declared = "openai-compatible/m/openai/chat_completions";
        assert_eq!(target(server.name, None).as_deref(), Ok(declared));
        let error = target(server.name, Some("responses")).unwrap_err();
        assert_eq!(
            error,
            "api_mode `responses` is not one of: chat_completions"
        );
    }
}

#[test]
fn a_name_whose_client_is_not_compiled_in_is_known_and_says_so_prv_3() {
    let providers = FactoryRegistry::builtin().providers();
    for (name, available) in [
        ("deepseek", cfg!(feature = "openai-chat")),
        ("gemini", cfg!(feature = "gemini")),
        ("lm_studio", cfg!(feature = "local")),
        ("litellm", cfg!(feature = "local")),
        ("ollama", cfg!(feature = "local")),
        ("vllm", cfg!(feature = "local")),
    ] {
        assert_eq!(providers.get(name), Some(&available), "{name}");
    }
}
