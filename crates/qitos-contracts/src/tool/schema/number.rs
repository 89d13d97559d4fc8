//! Exact comparison and divisibility of JSON numbers.

use std::cmp::Ordering;

use serde_json::Number;

/// A JSON number as an exact integer, if it is one: `1.0` is (ARG-3).
pub(super) fn as_integer(number: &Number) -> Option<i128> {
    if let Some(value) = number.as_u64() {
        return Some(value.into());
    }
    if let Some(value) = number.as_i64() {
        return Some(value.into());
    }
    let value = number.as_f64()?;
    // Above 2^100 the conversion would not be exact in i128 for long; no integer of JSON is there.
    (value.fract() == 0.0 && value.abs() < 1e30).then_some(value as i128)
}

/// Whether the number has no fraction.
pub(super) fn is_integer(number: &Number) -> bool {
    as_integer(number).is_some() || number.as_f64().is_some_and(|value| value.fract() == 0.0)
}

/// Compares by value, without rounding an integer to a double.
pub(super) fn compare(left: &Number, right: &Number) -> Ordering {
    match (as_integer(left), as_integer(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(left), None) => compare_with_float(left, right.as_f64().unwrap_or(f64::NAN)),
        (None, Some(right)) => {
            compare_with_float(right, left.as_f64().unwrap_or(f64::NAN)).reverse()
        }
        (None, None) => {
            let (left, right) = (left.as_f64(), right.as_f64());
            left.partial_cmp(&right).unwrap_or(Ordering::Equal)
        }
    }
}

fn compare_with_float(integer: i128, float: f64) -> Ordering {
    if float >= 1e30 {
        return Ordering::Less;
    }
    if float <= -1e30 {
        return Ordering::Greater;
    }
    let floor = float.floor();
    match integer.cmp(&(floor as i128)) {
        Ordering::Equal if float > floor => Ordering::Less,
        ordering => ordering,
    }
}

/// Whether `value` is an integer times `divisor`, both taken as the decimals they are written as.
///
/// `0.3` is a multiple of `0.1` although their doubles are not.
pub(super) fn is_multiple(value: &Number, divisor: &Number) -> bool {
    let (Some((value, value_exponent)), Some((divisor, divisor_exponent))) =
        (decimal(value), decimal(divisor))
    else {
        return false;
    };
    if value == 0 {
        return true;
    }
    if divisor == 0 {
        return false;
    }
    let shift = value_exponent - divisor_exponent;
    if shift >= 0 {
        // value * 10^shift mod divisor, without leaving u128: divisor is below 10^20.
        let mut rest = value % divisor;
        for _ in 0..shift {
            rest = rest * 10 % divisor;
        }
        return rest == 0;
    }
    // value must be a multiple of divisor * 10^-shift; beyond u128 that is more than value can be.
    u32::try_from(-shift)
        .ok()
        .and_then(|shift| 10u128.checked_pow(shift))
        .and_then(|factor| factor.checked_mul(divisor))
        .is_some_and(|divisor| value % divisor == 0)
}

/// Magnitude and decimal exponent: the number is ±magnitude · 10^exponent.
fn decimal(number: &Number) -> Option<(u128, i32)> {
    if let Some(value) = number.as_u64() {
        return Some((value.into(), 0));
    }
    if let Some(value) = number.as_i64() {
        return Some((value.unsigned_abs().into(), 0));
    }
    let text = format!("{:e}", number.as_f64()?.abs());
    let (digits, exponent) = text.split_once('e')?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let magnitude = format!("{whole}{fraction}").parse().ok()?;
    let exponent: i32 = exponent.parse().ok()?;
    let fraction_digits = i32::try_from(fraction.len()).ok()?;
    Some((magnitude, exponent - fraction_digits))
}
