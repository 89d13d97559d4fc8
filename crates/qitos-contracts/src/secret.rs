//! Values that never print (CRD-1, CRD-2), and how a reference becomes one (CRD-3 to CRD-10).
//!
//! A configuration, snapshot, receipt or log holds a [`CredentialRef`]; the [`SecretValue`] it stands for exists
//! in memory only, between a [`CredentialResolver`] and the model or store factory that asked for it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::{ContractError, Performed, Retry};

/// The longest reference, in characters.
pub const MAX_REFERENCE_CHARS: usize = 256;

/// The name under which a secret can be had: the only form of a credential that is ever written (CRD-1).
///
/// A non-empty token of at most 256 characters without whitespace; serialised as `{"ref": "..."}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "ReferenceObject", into = "ReferenceObject")]
pub struct CredentialRef(String);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReferenceObject {
    #[serde(rename = "ref")]
    reference: String,
}

impl CredentialRef {
    /// The token itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CredentialRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for CredentialRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CredentialRef({})", self.0)
    }
}

/// The text is no credential reference; it is not repeated here, for it may be a pasted secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a credential reference is a token of 1 to 256 characters without whitespace")]
pub struct InvalidCredentialRef;

impl FromStr for CredentialRef {
    type Err = InvalidCredentialRef;

    fn from_str(text: &str) -> Result<Self, InvalidCredentialRef> {
        let fits = (1..=MAX_REFERENCE_CHARS).contains(&text.chars().count());
        if fits && !text.chars().any(char::is_whitespace) {
            Ok(CredentialRef(text.to_owned()))
        } else {
            Err(InvalidCredentialRef)
        }
    }
}

impl TryFrom<ReferenceObject> for CredentialRef {
    type Error = InvalidCredentialRef;

    fn try_from(object: ReferenceObject) -> Result<Self, InvalidCredentialRef> {
        object.reference.parse()
    }
}

impl From<CredentialRef> for ReferenceObject {
    fn from(reference: CredentialRef) -> Self {
        ReferenceObject {
            reference: reference.0,
        }
    }
}

/// A secret: neither `Clone` nor `Serialize`, printed as `<redacted>`, wiped when dropped (CRD-2).
///
/// # Contract
/// It can be read through [`SecretValue::expose_for_authentication`] alone, which only model and store factories
/// call. A header built from it must be marked sensitive. Copies that an HTTP client makes of such a header are
/// beyond our reach and are not wiped.
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// Takes ownership of a secret; the buffer is wiped when the value is dropped.
    #[must_use]
    pub fn new(secret: String) -> Self {
        SecretValue(Zeroizing::new(secret))
    }

    /// Takes over a buffer that is already wiped on drop, without copying it.
    #[must_use]
    pub fn from_zeroizing(secret: Zeroizing<String>) -> Self {
        SecretValue(secret)
    }

    /// The secret, for authenticating against the service it belongs to and for nothing else.
    #[must_use]
    pub fn expose_for_authentication(&self) -> &str {
        &self.0
    }

    /// Whether both hold the same secret; the time taken depends on the lengths alone.
    #[must_use]
    pub fn constant_time_eq(&self, other: &SecretValue) -> bool {
        let (left, right) = (self.0.as_bytes(), other.0.as_bytes());
        let mut difference = u8::from(left.len() != right.len());
        for (left, right) in left.iter().zip(right) {
            difference = std::hint::black_box(difference | (left ^ right));
        }
        difference == 0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<redacted>")
    }
}

impl fmt::Display for SecretValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<redacted>")
    }
}

/// What a resolver is told besides its own construction.
#[derive(Clone, Copy, Debug)]
pub struct CredentialRequest<'a> {
    /// The reference to resolve.
    pub reference: &'a CredentialRef,
    /// The endpoint that will see the secret, when one is configured (CRD-7).
    pub base_url: Option<&'a str>,
    /// Directories in which no credential file may lie: the workspace and the data root (CRD-3).
    pub excluded_roots: &'a [&'a Path],
}

impl<'a> CredentialRequest<'a> {
    /// A request without endpoint and without excluded directories.
    #[must_use]
    pub fn new(reference: &'a CredentialRef) -> Self {
        CredentialRequest {
            reference,
            base_url: None,
            excluded_roots: &[],
        }
    }
}

/// Evidence of one resolution: everything but the value (CRD-10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialReceipt {
    /// The reference that was resolved.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Which resolver answered, such as `local_file`.
    pub resolver: String,
    /// Whether the way is kept for compatibility only (CRD-6).
    pub compatibility: bool,
    /// Stable warning codes.
    pub warnings: Vec<String>,
}

/// A secret and the receipt of its resolution.
#[derive(Debug)]
pub struct ResolvedCredential {
    /// The secret.
    pub value: SecretValue,
    /// What may be shown and stored.
    pub receipt: CredentialReceipt,
}

/// Which check of a credential file failed (CRD-3); never the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CredentialFileCheck {
    /// The file can be opened without following a symbolic link.
    Openable,
    /// It is a regular file.
    RegularFile,
    /// It belongs to the effective user.
    Owner,
    /// Its mode is exactly 0600.
    Mode,
    /// It has one link.
    LinkCount,
    /// It holds at most 64 KiB.
    Size,
    /// Its directory belongs to the user.
    ParentOwner,
    /// Its directory grants nothing to group and others.
    ParentMode,
    /// It lies outside the repository root, the workspace and the data root.
    Location,
}

impl CredentialFileCheck {
    /// The name as it appears in errors.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            CredentialFileCheck::Openable => "openable",
            CredentialFileCheck::RegularFile => "regular_file",
            CredentialFileCheck::Owner => "owner",
            CredentialFileCheck::Mode => "mode",
            CredentialFileCheck::LinkCount => "link_count",
            CredentialFileCheck::Size => "size",
            CredentialFileCheck::ParentOwner => "parent_owner",
            CredentialFileCheck::ParentMode => "parent_mode",
            CredentialFileCheck::Location => "location",
        }
    }
}

/// Why a reference gave no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// `credential_file_security_invalid`: the file cannot be trusted (CRD-3).
    #[error("credential file fails the check `{}`", check.as_str())]
    FileSecurityInvalid {
        /// The first check that failed.
        check: CredentialFileCheck,
    },
    /// `credential_reference_missing`: there is nothing under this reference (CRD-5, CRD-6).
    #[error("no credential is stored under the reference `{reference}`")]
    ReferenceMissing {
        /// The reference that was asked for.
        reference: CredentialRef,
    },
    /// `credential_resolution_failed`: there is something, and it cannot be used (CRD-5, CRD-7).
    #[error("credential cannot be resolved: {reason}")]
    ResolutionFailed {
        /// What is wrong, without any content of the source.
        reason: &'static str,
    },
}

impl ContractError for CredentialError {
    fn code(&self) -> &str {
        match self {
            CredentialError::FileSecurityInvalid { .. } => "credential_file_security_invalid",
            CredentialError::ReferenceMissing { .. } => "credential_reference_missing",
            CredentialError::ResolutionFailed { .. } => "credential_resolution_failed",
        }
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

/// Turns references into secrets; passed to a composition by its caller.
///
/// # Contract
/// Resolution happens at each composition (CRD-10). A resolver keeps no secret beyond the call, logs nothing,
/// and no error, receipt or `Debug` output of it holds any part or hash of a secret (CRD-9).
#[async_trait::async_trait]
pub trait CredentialResolver: fmt::Debug + Send + Sync + 'static {
    /// Resolves one reference.
    ///
    /// # Errors
    /// `credential_file_security_invalid`, `credential_reference_missing`, `credential_resolution_failed`.
    ///
    /// # Cancel safety
    /// Dropping the future means nothing happened.
    async fn resolve(
        &self,
        request: CredentialRequest<'_>,
    ) -> Result<ResolvedCredential, CredentialError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_a_short_token_and_serialises_as_an_object() {
        // CRD-1
        let reference: CredentialRef = "openai-main".parse().unwrap();
        assert_eq!(
            serde_json::to_string(&reference).unwrap(),
            r#"{"ref":"openai-main"}"#
        );
        assert_eq!(
            serde_json::from_str::<CredentialRef>(r#"{"ref":"openai-main"}"#).unwrap(),
            reference
        );
        for text in ["", " ", "a b", "a\n", "a\u{a0}b"] {
            assert_eq!(text.parse::<CredentialRef>(), Err(InvalidCredentialRef));
        }
        for (length, fits) in [(255, true), (256, true), (257, false)] {
            assert_eq!("é".repeat(length).parse::<CredentialRef>().is_ok(), fits);
        }
        assert!(serde_json::from_str::<CredentialRef>(r#"{"ref":"a","x":1}"#).is_err());
        assert!(serde_json::from_str::<CredentialRef>(r#"{"ref":""}"#).is_err());
    }

    #[test]
    fn a_secret_prints_as_redacted_in_every_form_and_in_a_panic() {
        // CRD-2, check crd.debug_and_panic
        let secret = SecretValue::new("sk-canary-0123".into());
        assert_eq!(format!("{secret}"), "<redacted>");
        assert_eq!(format!("{secret:?}"), "<redacted>");
        assert_eq!(format!("{secret:#?}"), "<redacted>");
        let receipt = CredentialReceipt {
            reference: "main".into(),
            resolver: "fake".into(),
            compatibility: false,
            warnings: Vec::new(),
        };
        let resolved = ResolvedCredential {
            value: secret,
            receipt,
        };
        let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            panic!("state was {resolved:?}")
        }))
        .unwrap_err();
        let message = payload.downcast_ref::<String>().unwrap();
        assert!(message.contains("<redacted>") && !message.contains("canary"));
        assert_eq!(resolved.value.expose_for_authentication(), "sk-canary-0123");
    }

    #[test]
    fn secrets_compare_in_constant_time_and_only_there() {
        // CRD-2
        let secret = |text: &str| SecretValue::new(text.to_owned());
        assert!(secret("abc").constant_time_eq(&secret("abc")));
        assert!(secret("").constant_time_eq(&secret("")));
        for other in ["abd", "ab", "abcd", ""] {
            assert!(!secret("abc").constant_time_eq(&secret(other)), "{other}");
        }
    }

    #[test]
    fn errors_name_code_and_check_and_nothing_else() {
        // CRD-3, CRD-5
        let error = CredentialError::FileSecurityInvalid {
            check: CredentialFileCheck::Mode,
        };
        assert_eq!(error.code(), "credential_file_security_invalid");
        assert_eq!(error.to_string(), "credential file fails the check `mode`");
        assert_eq!(error.retry(), Retry::Never);
        assert_eq!(error.performed(), Performed::No);
    }
}
