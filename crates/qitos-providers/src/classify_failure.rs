//! Rule: which failure an HTTP status or a provider's own word means (PRV-40, PRV-41).
//!
//! Classes follow from the status line and a closed list of words, never from the text of an error
//! or the name of a type. Words outside the list are reported as `other` and change nothing.

use serde_json::Value;

/// What a provider's report means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultClass {
    /// 400, 404, 422 and other statuses that refuse the request as it is.
    Rejected,
    /// 409, 425: refused now, may be accepted later.
    RejectedForNow,
    /// 413.
    TooLarge,
    /// 401, 403.
    Authentication,
    /// 402, and 429 that cannot succeed by waiting.
    QuotaExhausted,
    /// Other 429.
    RateLimited,
    /// 408.
    Timeout,
    /// 500, 502, 503, 504.
    ServerError,
    /// Other 5xx, and words nobody knows.
    ServerErrorFinal,
    /// 529 and its words.
    Overloaded,
}

/// A fault that the provider reported, by status line or inside a 200 answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProviderFault {
    pub(crate) class: FaultClass,
    /// The status line; never taken from a body.
    pub(crate) status: Option<u16>,
    /// The provider's word if it is in the closed list, `other` if it is not, none if it said none.
    pub(crate) word: Option<&'static str>,
}

/// The closed list: each word and the class it means.
const WORDS: &[(&str, FaultClass)] = &[
    ("api_error", FaultClass::ServerError),
    ("authentication_error", FaultClass::Authentication),
    ("billing_error", FaultClass::QuotaExhausted),
    ("billing_hard_limit_reached", FaultClass::QuotaExhausted),
    ("context_length_exceeded", FaultClass::Rejected),
    ("credit_balance_exhausted", FaultClass::QuotaExhausted),
    ("insufficient_quota", FaultClass::QuotaExhausted),
    ("insufficient_system_resource", FaultClass::Overloaded),
    ("invalid_api_key", FaultClass::Authentication),
    ("invalid_prompt", FaultClass::Rejected),
    ("invalid_request_error", FaultClass::Rejected),
    ("model_not_found", FaultClass::Rejected),
    ("not_found_error", FaultClass::Rejected),
    ("overloaded_error", FaultClass::Overloaded),
    ("permission_error", FaultClass::Authentication),
    ("rate_limit_error", FaultClass::RateLimited),
    ("rate_limit_exceeded", FaultClass::RateLimited),
    ("request_too_large", FaultClass::TooLarge),
    ("server_error", FaultClass::ServerError),
    ("server_is_overloaded", FaultClass::Overloaded),
    ("slow_down", FaultClass::Overloaded),
    ("timeout_error", FaultClass::Timeout),
    ("usage_limit_reached", FaultClass::QuotaExhausted),
];

/// Words that say more about a refusal than its general class, so they are looked for first.
const SPECIFIC: &[&str] = &["context_length_exceeded"];

fn known(word: &str) -> Option<(&'static str, FaultClass)> {
    WORDS.iter().copied().find(|(known, _)| *known == word)
}

/// What an error object says, reduced to the closed list.
#[derive(Clone, Copy, Debug, Default)]
struct Words {
    said_something: bool,
    first: Option<(&'static str, FaultClass)>,
}

impl Words {
    /// Reads `code`, then `type` of an error object: codes say more than types.
    fn of(error: &Value) -> Words {
        let mut words = Words::default();
        let nested = error
            .get("metadata")
            .and_then(|metadata| metadata.get("error_type"));
        for value in [error.get("code"), error.get("type"), nested]
            .into_iter()
            .flatten()
        {
            let Some(word) = value.as_str() else { continue };
            if word.is_empty() {
                continue;
            }
            words.said_something = true;
            if let Some(found) = known(word) {
                let better = match words.first {
                    None => true,
                    Some((earlier, _)) => {
                        SPECIFIC.contains(&found.0) && !SPECIFIC.contains(&earlier)
                    }
                };
                if better {
                    words.first = Some(found);
                }
            }
        }
        words
    }

    fn class(self) -> Option<FaultClass> {
        self.first.map(|(_, class)| class)
    }

    fn report(self) -> Option<&'static str> {
        match self.first {
            Some((word, _)) => Some(word),
            None => self.said_something.then_some("other"),
        }
    }
}

impl ProviderFault {
    /// A status line that is not a success; `body` is the answer's JSON if it was read and is JSON.
    pub(crate) fn of_status(status: u16, body: Option<&Value>) -> Self {
        let words = body.map(error_object).map(Words::of).unwrap_or_default();
        ProviderFault {
            class: class_of_status(status, words.class()),
            status: Some(status),
            word: words.report(),
        }
    }

    /// An error object inside a 200 answer: its status stays unknown (PRV-41).
    pub(crate) fn in_stream(error: &Value) -> Self {
        let words = Words::of(error);
        let class = match numeric_code(error) {
            Some(status) => class_of_status(status, words.class()),
            None => words.class().unwrap_or(FaultClass::ServerErrorFinal),
        };
        ProviderFault {
            class,
            status: None,
            word: words.report(),
        }
    }

    /// A finish reason that is no answer (PRV-C31).
    pub(crate) const fn of_finish(class: FaultClass, word: &'static str) -> Self {
        ProviderFault {
            class,
            status: None,
            word: Some(word),
        }
    }
}

/// `{"error": {…}}` or the object itself, as older servers send it.
fn error_object(body: &Value) -> &Value {
    match body.get("error") {
        Some(error) if error.is_object() => error,
        _ => body,
    }
}

/// A numeric `code` that is an HTTP error status, also when written as a string.
fn numeric_code(error: &Value) -> Option<u16> {
    let code = error.get("code")?;
    let number = match code {
        Value::String(text) => text.parse::<u64>().ok()?,
        other => other.as_u64()?,
    };
    u16::try_from(number)
        .ok()
        .filter(|status| (400..=599).contains(status))
}

fn class_of_status(status: u16, word: Option<FaultClass>) -> FaultClass {
    match (status, word) {
        (400..=499, Some(FaultClass::QuotaExhausted))
            if matches!(status, 400 | 402 | 403 | 429) =>
        {
            FaultClass::QuotaExhausted
        }
        (400..=499, Some(FaultClass::TooLarge)) => FaultClass::TooLarge,
        (429 | 500..=599, Some(FaultClass::Overloaded)) => FaultClass::Overloaded,
        (401 | 403, _) => FaultClass::Authentication,
        (402, _) => FaultClass::QuotaExhausted,
        (408, _) => FaultClass::Timeout,
        (409 | 425, _) => FaultClass::RejectedForNow,
        (413, _) => FaultClass::TooLarge,
        (429, _) => FaultClass::RateLimited,
        (500 | 502 | 503 | 504, _) => FaultClass::ServerError,
        (529, _) => FaultClass::Overloaded,
        (500..=599, _) => FaultClass::ServerErrorFinal,
        _ => FaultClass::Rejected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(status: u16, body: Value, expect: FaultClass, word: Option<&str>) {
        let fault = ProviderFault::of_status(status, Some(&body));
        assert_eq!((fault.class, fault.word), (expect, word), "{status} {body}");
        assert_eq!(fault.status, Some(status));
    }

    #[test]
    fn every_status_has_its_row_prv_40() {
        for (statuses, class) in [
            (
                &[400u16, 404, 405, 410, 422, 451, 499, 304, 100, 101, 600][..],
                FaultClass::Rejected,
            ),
            (&[401, 403], FaultClass::Authentication),
            (&[402], FaultClass::QuotaExhausted),
            (&[408], FaultClass::Timeout),
            (&[409, 425], FaultClass::RejectedForNow),
            (&[413], FaultClass::TooLarge),
            (&[429], FaultClass::RateLimited),
            (&[500, 502, 503, 504], FaultClass::ServerError),
            (&[529], FaultClass::Overloaded),
            (&[501, 505, 520, 599], FaultClass::ServerErrorFinal),
        ] {
            for status in statuses {
                check(*status, json!({}), class, None);
            }
        }
    }

    #[test]
    fn words_decide_quota_overload_and_size_prv_40() {
        for word in [
            "insufficient_quota",
            "credit_balance_exhausted",
            "usage_limit_reached",
            "billing_hard_limit_reached",
        ] {
            let body = json!({"error": {"type": "x", "code": word}});
            check(429, body, FaultClass::QuotaExhausted, Some(word));
        }
        let billing = json!({"type": "error", "error": {"type": "billing_error"}});
        check(
            400,
            billing,
            FaultClass::QuotaExhausted,
            Some("billing_error"),
        );
        for word in ["overloaded_error", "slow_down", "server_is_overloaded"] {
            let body = json!({"error": {"type": word}});
            check(503, body, FaultClass::Overloaded, Some(word));
        }
        let large = json!({"error": {"type": "request_too_large"}});
        check(400, large, FaultClass::TooLarge, Some("request_too_large"));
        let long =
            json!({"error": {"type": "invalid_request_error", "code": "context_length_exceeded"}});
        check(
            400,
            long,
            FaultClass::Rejected,
            Some("context_length_exceeded"),
        );
        let secret = json!({"error": {"type": "sk-canary", "message": "sk-canary"}});
        check(400, secret, FaultClass::Rejected, Some("other"));
        check(400, json!([1]), FaultClass::Rejected, None);
    }

    #[test]
    fn errors_inside_a_stream_have_no_status_prv_41() {
        for (error, class) in [
            (json!({"code": 502}), FaultClass::ServerError),
            (json!({"code": "429"}), FaultClass::RateLimited),
            (
                json!({"code": 429, "type": "insufficient_quota"}),
                FaultClass::QuotaExhausted,
            ),
            (json!({"code": 200}), FaultClass::ServerErrorFinal),
            (json!({"code": 600}), FaultClass::ServerErrorFinal),
            (json!({"type": "server_error"}), FaultClass::ServerError),
            (
                json!({"code": "rate_limit_exceeded"}),
                FaultClass::RateLimited,
            ),
            (json!({"code": "invalid_prompt"}), FaultClass::Rejected),
            (json!({"type": "overloaded_error"}), FaultClass::Overloaded),
            (
                json!({"type": "permission_error"}),
                FaultClass::Authentication,
            ),
            (json!({"type": "timeout_error"}), FaultClass::Timeout),
            (json!("text"), FaultClass::ServerErrorFinal),
            (json!({"type": "strange"}), FaultClass::ServerErrorFinal),
        ] {
            let fault = ProviderFault::in_stream(&error);
            assert_eq!((fault.class, fault.status), (class, None), "{error}");
        }
    }
}
