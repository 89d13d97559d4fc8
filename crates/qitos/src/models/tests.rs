//! Names of providers and what they declare (PRV-3, PRV-8).

use qitos_config::{AgentConfig, Format};
use qitos_contracts::secret::SecretValue;

use crate::registry::{FactoryRegistry, ModelContext};

/// The built model's target, or the error.
fn target(provider: &str, api_mode: Option<&str>) -> Result<String, String> {
    let mode = api_mode.map_or(String::new(), |mode| format!(", api_mode: {mode}"));
    let text = format!(
        "schema: qitos.agent\nagent: {{name: a}}\n\
         model: {{provider: {provider}, model: m, credential: {{ref: key}}{mode}}}\n\
         runtime: {{environment: {{type: unsafe_host}}}}\n"
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
