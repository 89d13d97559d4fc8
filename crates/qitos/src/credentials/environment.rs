//! Credentials from the process environment, for compatibility (CRD-6).

use std::fmt;

use qitos_contracts::secret::{
    CredentialError, CredentialReceipt, CredentialRequest, CredentialResolver, ResolvedCredential,
    SecretValue,
};

/// The prefix that every reference of this resolver has.
const PREFIX: &str = "env:";

/// How the value of a variable is had.
type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Resolves `env:NAME` from environment variables; used only when the caller passes it (CRD-6).
///
/// # Contract
/// Nothing else of QitOS reads a variable for a credential. Each receipt says that the way is one of compatibility:
/// the environment is inherited by child processes, a file is not.
pub struct EnvironmentCredentialResolver {
    lookup: Box<Lookup>,
}

impl EnvironmentCredentialResolver {
    /// A resolver that asks `lookup` for each name.
    #[must_use]
    pub fn new(lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        EnvironmentCredentialResolver {
            lookup: Box::new(lookup),
        }
    }

    /// A resolver over the variables of this process.
    #[must_use]
    pub fn from_process() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one place where a caller asked for the environment"
        )]
        Self::new(|name| std::env::var(name).ok())
    }
}

impl fmt::Debug for EnvironmentCredentialResolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("EnvironmentCredentialResolver")
    }
}

#[async_trait::async_trait]
impl CredentialResolver for EnvironmentCredentialResolver {
    async fn resolve(
        &self,
        request: CredentialRequest<'_>,
    ) -> Result<ResolvedCredential, CredentialError> {
        let reference = request.reference;
        let name = reference
            .as_str()
            .strip_prefix(PREFIX)
            .filter(|name| !name.is_empty() && !name.contains(['=', '\0']))
            .ok_or(CredentialError::ResolutionFailed {
                reason: "a reference into the environment is env: and the name of a variable",
            })?;
        let value = (self.lookup)(name)
            .map(SecretValue::new)
            .filter(|value| !value.expose_for_authentication().is_empty())
            .ok_or_else(|| CredentialError::ReferenceMissing {
                reference: reference.clone(),
            })?;
        Ok(ResolvedCredential {
            value,
            receipt: CredentialReceipt {
                reference: reference.as_str().to_owned(),
                resolver: "environment_compatibility".to_owned(),
                compatibility: true,
                warnings: vec!["ambient_environment_credential_compatibility".to_owned()],
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use qitos_contracts::error::ContractError as _;
    use qitos_contracts::secret::CredentialRef;

    use super::*;

    fn resolve(reference: &str) -> Result<ResolvedCredential, CredentialError> {
        let resolver = EnvironmentCredentialResolver::new(|name| match name {
            "KEY" => Some("sk-canary".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        });
        let reference: CredentialRef = reference.parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(resolver.resolve(CredentialRequest::new(&reference)))
    }

    #[test]
    fn a_variable_is_read_under_its_prefix_with_a_warning() {
        // CRD-6
        let resolved = resolve("env:KEY").unwrap();
        assert_eq!(resolved.value.expose_for_authentication(), "sk-canary");
        assert_eq!(
            serde_json::to_string(&resolved.receipt).unwrap(),
            r#"{"ref":"env:KEY","resolver":"environment_compatibility","compatibility":true,"warnings":["ambient_environment_credential_compatibility"]}"#
        );
    }

    #[test]
    fn unset_empty_and_unprefixed_are_refused() {
        // CRD-6
        for (reference, code) in [
            ("env:UNSET", "credential_reference_missing"),
            ("env:EMPTY", "credential_reference_missing"),
            ("KEY", "credential_resolution_failed"),
            ("env:", "credential_resolution_failed"),
            ("env:A=B", "credential_resolution_failed"),
            ("ENV:KEY", "credential_resolution_failed"),
        ] {
            assert_eq!(resolve(reference).unwrap_err().code(), code, "{reference}");
        }
    }
}
