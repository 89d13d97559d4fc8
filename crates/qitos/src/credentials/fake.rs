//! Made-up credentials for endpoints that are no real service (CRD-7).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use qitos_contracts::secret::{
    CredentialError, CredentialReceipt, CredentialRequest, CredentialResolver, ResolvedCredential,
    SecretValue,
};

/// Resolves every reference to a value that is no secret: a given one, or `fake::<ref>`.
///
/// # Contract
/// It answers only for an endpoint on loopback or under a name that never resolves (`.invalid`, `.test`), so that a
/// made-up key never reaches a real service (CRD-7).
#[derive(Clone, Debug, Default)]
pub struct FakeCredentialResolver {
    values: BTreeMap<String, String>,
}

impl FakeCredentialResolver {
    /// A resolver that answers `fake::<ref>`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers `value` for `reference`.
    #[must_use]
    pub fn with_value(mut self, reference: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.insert(reference.into(), value.into());
        self
    }
}

/// Whether an endpoint cannot be a real service.
fn never_leaves(base_url: &str) -> bool {
    let Some(rest) = base_url
        .strip_prefix("http://")
        .or_else(|| base_url.strip_prefix("https://"))
    else {
        return false;
    };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    if authority.contains('@') {
        return false;
    }
    if let Some(rest) = authority.strip_prefix('[') {
        return rest
            .split_once(']')
            .and_then(|(host, _)| host.parse::<Ipv6Addr>().ok())
            .is_some_and(|address| address.is_loopback());
    }
    let host = authority.split(':').next().unwrap_or_default();
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return address.is_loopback();
    }
    host == "localhost" || host.ends_with(".invalid") || host.ends_with(".test")
}

#[async_trait::async_trait]
impl CredentialResolver for FakeCredentialResolver {
    async fn resolve(
        &self,
        request: CredentialRequest<'_>,
    ) -> Result<ResolvedCredential, CredentialError> {
        if !request.base_url.is_some_and(never_leaves) {
            return Err(CredentialError::ResolutionFailed {
                reason: "made-up credentials are for loopback and for names under .invalid and .test",
            });
        }
        let reference = request.reference.as_str();
        let value = self
            .values
            .get(reference)
            .cloned()
            .unwrap_or_else(|| format!("fake::{reference}"));
        Ok(ResolvedCredential {
            value: SecretValue::new(value),
            receipt: CredentialReceipt {
                reference: reference.to_owned(),
                resolver: "fake".to_owned(),
                compatibility: false,
                warnings: Vec::new(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use qitos_contracts::error::ContractError as _;
    use qitos_contracts::secret::CredentialRef;

    use super::*;

    fn resolve(
        reference: &str,
        base_url: Option<&str>,
    ) -> Result<ResolvedCredential, CredentialError> {
        let resolver = FakeCredentialResolver::new().with_value("given", "value");
        let reference: CredentialRef = reference.parse().unwrap();
        let mut request = CredentialRequest::new(&reference);
        request.base_url = base_url;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(resolver.resolve(request))
    }

    #[test]
    fn given_and_made_up_values_are_answered() {
        // CRD-7
        let resolved = resolve("given", Some("http://127.0.0.1:8080/v1")).unwrap();
        assert_eq!(resolved.value.expose_for_authentication(), "value");
        assert_eq!(resolved.receipt.resolver, "fake");
        let resolved = resolve("other", Some("http://127.0.0.1:8080/v1")).unwrap();
        assert_eq!(resolved.value.expose_for_authentication(), "fake::other");
    }

    #[test]
    fn only_endpoints_that_are_no_service_are_answered_for() {
        // CRD-7
        for accepted in [
            "http://localhost/v1",
            "http://LOCALHOST:1",
            "http://[::1]:8080",
            "https://api.invalid/v1",
            "https://api.test.:443",
            "http://127.9.9.9",
        ] {
            assert!(resolve("a", Some(accepted)).is_ok(), "{accepted}");
        }
        for refused in [
            None,
            Some(""),
            Some("https://api.example.com"),
            Some("https://localhost.example.com"),
            Some("https://localhost@api.example.com"),
            Some("https://localhost:80@api.example.com"),
            Some("https://api.example.com/.test"),
            Some("https://api.example.com#.test"),
            Some("https://api.example.com\\.test"),
            Some("https://[2001:db8::1]"),
            Some("https://127.0.0.1.example.com"),
            Some("ftp://localhost"),
            Some("https://mytest"),
        ] {
            let error = resolve("a", refused).unwrap_err();
            assert_eq!(error.code(), "credential_resolution_failed", "{refused:?}");
        }
    }
}
