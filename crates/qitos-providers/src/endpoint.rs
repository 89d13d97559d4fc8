//! Where a server is and how a request authenticates (PRV-84).

use std::fmt;
use std::sync::Arc;

use qitos_contracts::secret::SecretValue;

/// How the credential travels; always in a header (PRV-44).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// `Authorization: Bearer …`.
    #[default]
    Bearer,
    /// `api-key: …`, as Azure wants it.
    ApiKey,
    /// `x-api-key: …`, as Anthropic wants it.
    XApiKey,
    /// `x-goog-api-key: …`, as Gemini wants it; never in the URL (PRV-44).
    XGoogApiKey,
}

/// A URL or header that cannot be used; never its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// `base_url` is no absolute http or https URL.
    #[error(
        "base_url is not an absolute http or https URL without user-info and fragment, its query at most api-version"
    )]
    BaseUrl,
    /// A default header has no valid name or value.
    #[error("a default header is not valid")]
    Header,
    /// A default header would replace authentication, content-type or accept.
    #[error("a default header would replace one that the client sets itself")]
    ReservedHeader,
    /// The credential cannot stand in a header.
    #[error("the credential cannot stand in a header")]
    Credential,
}

/// One server's address, headers and credential. Debug shows none of them.
pub(crate) struct Endpoint {
    url: String,
    default_headers: Vec<(String, String)>,
    authentication: Authentication,
    credential: Option<Arc<SecretValue>>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Endpoint")
            .field("authentication", &self.authentication)
            .field("default_headers", &self.default_headers.len())
            .finish_non_exhaustive()
    }
}

/// Headers that the client sets itself.
const RESERVED: [&str; 11] = [
    "accept",
    "api-key",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "transfer-encoding",
    "x-api-key",
    "x-goog-api-key",
];

impl Endpoint {
    /// The address `base_url` + `path`; a base that ends with the path already is taken as it is.
    pub(crate) fn new(
        base_url: &str,
        path: &str,
        authentication: Authentication,
        credential: Option<Arc<SecretValue>>,
        default_headers: &[(String, String)],
    ) -> Result<Self, EndpointError> {
        let (base, api_version) = split_api_version(base_url).ok_or(EndpointError::BaseUrl)?;
        if !is_plain_base(base) {
            return Err(EndpointError::BaseUrl);
        }
        let base = base.trim_end_matches('/');
        let base = base.strip_suffix(path).unwrap_or(base);
        let printable = |text: &str| text.bytes().all(|byte| (0x20..0x7F).contains(&byte));
        if let Some(credential) = &credential {
            let secret = credential.expose_for_authentication();
            if secret.trim().is_empty() || !printable(secret) {
                return Err(EndpointError::Credential);
            }
        }
        let mut headers = Vec::with_capacity(default_headers.len());
        for (name, value) in default_headers {
            let name = name.to_ascii_lowercase();
            let is_token = !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            if !is_token || !printable(value) {
                return Err(EndpointError::Header);
            }
            if RESERVED.contains(&name.as_str()) {
                return Err(EndpointError::ReservedHeader);
            }
            headers.push((name, value.clone()));
        }
        let query = api_version.map(|version| format!("?{API_VERSION}={version}"));
        Ok(Endpoint {
            url: format!(
                "{}{path}{}",
                base.trim_end_matches('/'),
                query.unwrap_or_default()
            ),
            default_headers: headers,
            authentication,
            credential,
        })
    }

    /// A header of the dialect's own, such as a version; the caller's value for it wins.
    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        if !self.default_headers.iter().any(|(have, _)| have == name) {
            self.default_headers
                .push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn headers(&self, streaming: bool) -> Vec<(String, String)> {
        let accept = if streaming {
            "text/event-stream"
        } else {
            "application/json"
        };
        let mut headers = self.default_headers.clone();
        headers.push(("accept".to_owned(), accept.to_owned()));
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
        if let Some(credential) = &self.credential {
            let secret = credential.expose_for_authentication();
            headers.push(match self.authentication {
                Authentication::Bearer => ("authorization".to_owned(), format!("Bearer {secret}")),
                Authentication::ApiKey => ("api-key".to_owned(), secret.to_owned()),
                Authentication::XApiKey => ("x-api-key".to_owned(), secret.to_owned()),
                Authentication::XGoogApiKey => ("x-goog-api-key".to_owned(), secret.to_owned()),
            });
        }
        headers
    }
}

/// The one query that a base may have; Azure's servers ask for it.
const API_VERSION: &str = "api-version";

/// A base and its `api-version`, if it names one; nothing if it has another query.
fn split_api_version(base_url: &str) -> Option<(&str, Option<&str>)> {
    let Some((base, query)) = base_url.split_once('?') else {
        return Some((base_url, None));
    };
    let version = query.strip_prefix(API_VERSION)?.strip_prefix('=')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let valid = (1..=64).contains(&version.len()) && version.bytes().all(plain);
    valid.then_some((base, Some(version)))
}

fn is_plain_base(base_url: &str) -> bool {
    let lower = base_url.to_ascii_lowercase();
    let rest = lower
        .strip_prefix("https://")
        .or_else(|| lower.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let authority = rest.split('/').next().unwrap_or_default();
        !authority.is_empty()
            && !authority.contains('@')
            && !rest.contains(['?', '#'])
            && rest.bytes().all(|byte| (0x21..0x7F).contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(base_url: &str) -> Result<String, EndpointError> {
        Endpoint::new(base_url, "/responses", Authentication::ApiKey, None, &[])
            .map(|endpoint| endpoint.url().to_owned())
    }

    #[test]
    fn a_base_may_name_an_api_version_and_nothing_else() {
        for (base, expect) in [
            (
                "https://h.example/openai/v1",
                "https://h.example/openai/v1/responses",
            ),
            (
                "https://h.example/openai/v1?api-version=2025-04-01-preview",
                "https://h.example/openai/v1/responses?api-version=2025-04-01-preview",
            ),
            (
                "https://h.example/v1/responses/?api-version=preview",
                "https://h.example/v1/responses?api-version=preview",
            ),
        ] {
            assert_eq!(url(base).as_deref(), Ok(expect), "{base}");
        }
        let longest = format!("https://h.example/v1?api-version={}", "a".repeat(64));
        assert!(url(&longest).is_ok());
        for query in [
            "",
            "api-version",
            "api-version=",
            "api-version=a&key=b",
            "api-version=a?b",
            "api-version=a#b",
            "api-version=a%20b",
            "API-VERSION=a",
            "key=sk-canary",
            "key=sk-canary&api-version=a",
        ] {
            let base = format!("https://h.example/v1?{query}");
            assert_eq!(url(&base), Err(EndpointError::BaseUrl), "{base}");
        }
        assert_eq!(url(&format!("{longest}a")), Err(EndpointError::BaseUrl));
    }
}
