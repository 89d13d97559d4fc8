//! Which endpoints a model may be asked at, and how they are written.

/// Endings that name one operation of an endpoint and are removed.
const OPERATIONS: [&str; 2] = ["/chat/completions", "/responses"];

/// The JSON Schema's form of what [`check`] accepts.
pub(crate) const PATTERN: &str = "^$|^https://[^\\s/?#@\\\\]+(/[^\\s?#\\\\]*)?$|^http://(localhost|127\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}|\\[::1\\])(:[0-9]{1,5})?(/[^\\s?#\\\\]*)?$";

/// What is wrong with an endpoint, if anything.
///
/// Accepted are the empty text and absolute http or https addresses without user, query and fragment; plain http
/// for loopback alone.
pub(crate) fn check(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Ok(());
    }
    let (secure, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Err("expected an absolute address that starts with https://"),
    };
    if text
        .chars()
        .any(|character| character.is_whitespace() || matches!(character, '?' | '#' | '\\'))
    {
        return Err("expected an address without query, fragment, backslash and white space");
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.is_empty() {
        return Err("expected an address with a host");
    }
    if authority.contains('@') {
        return Err("expected an address without user information");
    }
    if !secure && !is_loopback(authority) {
        return Err("plain http is for loopback alone");
    }
    Ok(())
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let port_is_number =
                (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
            if !port_is_number {
                return false;
            }
            host
        }
        _ => authority,
    };
    if matches!(host, "localhost" | "[::1]") {
        return true;
    }
    let parts: Vec<&str> = host.split('.').collect();
    parts.len() == 4
        && parts.first() == Some(&"127")
        && parts.iter().all(|part| {
            (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// The endpoint without a trailing operation.
pub(crate) fn without_operation(text: &str) -> &str {
    let trimmed = text.trim_end_matches('/');
    OPERATIONS
        .iter()
        .find_map(|operation| trimmed.strip_suffix(operation))
        .unwrap_or(text)
}

/// What is wrong with the address of a PostgreSQL store, if anything: `postgres://user@host:port/database`.
pub(crate) fn check_postgres(text: &str) -> Result<(), &'static str> {
    const FORM: &str = "expected postgres://user@host:port/database";
    let rest = text.strip_prefix("postgres://").ok_or(FORM)?;
    let (user, rest) = rest.split_once('@').ok_or(FORM)?;
    if user.contains(':') {
        return Err("expected an address without a password");
    }
    let (authority, database) = rest.split_once('/').ok_or(FORM)?;
    let (host, port) = authority.rsplit_once(':').ok_or(FORM)?;
    let plain = |part: &str| {
        !part.is_empty()
            && !part.chars().any(|character| {
                character.is_whitespace() || matches!(character, '/' | '?' | '#' | '@' | '\\')
            })
    };
    let port_is_number = port.parse::<u16>().is_ok_and(|port| port > 0);
    if plain(user) && plain(host) && plain(database) && port_is_number {
        Ok(())
    } else {
        Err(FORM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback_alone() {
        for accepted in [
            "",
            "https://api.example.com/v1",
            "http://localhost:8080",
            "http://127.0.0.1/v1",
            "http://[::1]:9",
        ] {
            assert_eq!(check(accepted), Ok(()), "{accepted}");
        }
        for refused in [
            "api.example.com",
            "ftp://a",
            "https://",
            "https://user@host",
            "https://host?x=1",
            "https://host#x",
            "http://example.com",
            "http://127.0.0.1.example.com",
            "http://localhost.example.com",
            "http://localhost:80@example.com",
            "https://ho st",
            "http://localhost:x",
        ] {
            assert!(check(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_trailing_operation_is_removed_once() {
        for (text, expected) in [
            ("https://h/v1/chat/completions", "https://h/v1"),
            ("https://h/v1/responses/", "https://h/v1"),
            ("https://h/v1/", "https://h/v1/"),
            ("https://h/v1", "https://h/v1"),
        ] {
            assert_eq!(without_operation(text), expected);
        }
    }

    #[test]
    fn a_postgres_address_has_no_password() {
        assert_eq!(
            check_postgres("postgres://me@db.example:5432/qitos"),
            Ok(())
        );
        for refused in [
            "postgres://me:pw@db:5432/qitos",
            "postgres://db:5432/qitos",
            "postgres://me@db/qitos",
            "postgres://me@db:5432/",
            "postgres://me@db:0/q",
            "sessions.sqlite3",
        ] {
            assert!(check_postgres(refused).is_err(), "{refused}");
        }
    }
}
