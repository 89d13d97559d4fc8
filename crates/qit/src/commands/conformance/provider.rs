//! The built-in providers under test: the real clients, their transport replaced by the suite's peer.

use std::sync::Arc;

use qitos::registry::FactoryRegistry;
use qitos_conformance::provider::ProviderSubject;

use crate::failure::Failure;

mod chat;
mod peer_transport;
mod scripted;

/// Names of built-in providers, as `--builtin` takes them.
const NAMES: [&str; 2] = ["scripted", "openai-chat"];

/// The subject of that name.
///
/// # Errors
/// The name is unknown, or its client is not compiled into this program.
pub(super) fn subject(name: &str) -> Result<Arc<dyn ProviderSubject>, Failure> {
    match name {
        "scripted" => Ok(Arc::new(scripted::Subject)),
        "openai-chat" => compiled_in(name, "openai-compatible", Arc::new(chat::Subject)),
        _ => Err(super::unknown(name, &NAMES)),
    }
}

/// The subject, if the registered provider's client is in this program (PRV-3).
fn compiled_in(
    name: &str,
    provider: &str,
    subject: Arc<dyn ProviderSubject>,
) -> Result<Arc<dyn ProviderSubject>, Failure> {
    if FactoryRegistry::builtin().providers().get(provider) == Some(&true) {
        return Ok(subject);
    }
    Err(Failure::usage(
        format!("the provider `{name}` is not compiled in"),
        format!("build the program with the feature `{name}`"),
    ))
}

#[cfg(test)]
mod tests;
