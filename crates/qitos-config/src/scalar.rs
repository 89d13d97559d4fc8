//! What a plain scalar means: JSON's literals and decimal numbers, everything else is a string (CFG-5).

/// A plain scalar, read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    /// An integer within −2^63 … 2^64−1.
    Integer(i128),
    /// A finite number written with a fraction or an exponent.
    Number(f64),
    /// Number syntax outside of what is representable.
    OutOfRange,
    Text(&'a str),
}

impl Scalar<'_> {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Scalar::Null => "null",
            Scalar::Bool(_) => "a boolean",
            Scalar::Integer(_) => "an integer",
            Scalar::Number(_) => "a number with a fraction or exponent",
            Scalar::OutOfRange => "a number out of range",
            Scalar::Text(_) => "a string",
        }
    }
}

/// Reads a plain scalar.
pub(crate) fn read(text: &str) -> Scalar<'_> {
    match text {
        "null" => return Scalar::Null,
        "true" => return Scalar::Bool(true),
        "false" => return Scalar::Bool(false),
        _ => {}
    }
    let Some(integral) = number_syntax(text.as_bytes()) else {
        return Scalar::Text(text);
    };
    // `-0` is a float in JSON readers that keep the sign, and an integer here: it names the value zero.
    if integral {
        return match text.parse::<i128>() {
            Ok(value) if (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value) => {
                Scalar::Integer(value)
            }
            _ => Scalar::OutOfRange,
        };
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Scalar::Number(value),
        _ => Scalar::OutOfRange,
    }
}

/// Whether `text` follows JSON's number grammar, and if so whether it has neither fraction nor exponent.
pub(crate) fn number_syntax(text: &[u8]) -> Option<bool> {
    fn digits(text: &[u8]) -> (usize, &[u8]) {
        let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count, text.get(count..).unwrap_or_default())
    }
    let rest = text.strip_prefix(b"-").unwrap_or(text);
    let leading_zero = rest.first() == Some(&b'0');
    let (count, mut rest) = digits(rest);
    if count == 0 || (leading_zero && count > 1) {
        return None;
    }
    let mut integral = true;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let (count, after) = digits(fraction);
        if count == 0 {
            return None;
        }
        (integral, rest) = (false, after);
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = exponent
            .strip_prefix(b"+")
            .or_else(|| exponent.strip_prefix(b"-"))
            .unwrap_or(exponent);
        let (count, after) = digits(exponent);
        if count == 0 {
            return None;
        }
        (integral, rest) = (false, after);
    }
    rest.is_empty().then_some(integral)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_literals_and_numbers_are_more_than_strings() {
        // CFG-5
        for text in [
            "yes", "no", "on", "off", "~", "1_000", "0o17", "0x1f", "012", ".5", "12:30", "True",
            "NULL", "+1", "1.", "1e", "-", ".nan", ".inf", "-.inf", "NaN", "Infinity", "0b1",
            "--1", "1.0.0", "-012",
        ] {
            assert_eq!(read(text), Scalar::Text(text));
        }
        assert_eq!(read("null"), Scalar::Null);
        assert_eq!(read("true"), Scalar::Bool(true));
        assert_eq!(read("0"), Scalar::Integer(0));
        assert_eq!(read("-12"), Scalar::Integer(-12));
        assert_eq!(read("1.0"), Scalar::Number(1.0));
        assert_eq!(read("1e3"), Scalar::Number(1000.0));
        assert_eq!(read("1E-2"), Scalar::Number(0.01));
    }

    #[test]
    fn integers_are_bounded_at_64_bits_and_numbers_are_finite() {
        // SES-17, bounds at the limit and one beyond
        assert_eq!(
            read("18446744073709551615"),
            Scalar::Integer(u64::MAX.into())
        );
        assert_eq!(read("18446744073709551616"), Scalar::OutOfRange);
        assert_eq!(
            read("-9223372036854775808"),
            Scalar::Integer(i64::MIN.into())
        );
        assert_eq!(read("-9223372036854775809"), Scalar::OutOfRange);
        assert_eq!(read(&"9".repeat(400)), Scalar::OutOfRange);
        assert_eq!(read("1e308"), Scalar::Number(1e308));
        assert_eq!(read("1e309"), Scalar::OutOfRange);
    }
}
