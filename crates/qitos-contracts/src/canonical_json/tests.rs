use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::*;
use crate::digest::Digest;

fn float(value: f64) -> String {
    let mut buffer = Vec::new();
    write_f64(value, &mut buffer).unwrap();
    String::from_utf8(buffer).unwrap()
}

fn text(value: &Value) -> String {
    String::from_utf8(to_bytes(value).unwrap()).unwrap()
}

fn refusal(text: &str) -> (ReadReason, usize) {
    let error = read(text.as_bytes(), ReadLimits::DEFAULT).unwrap_err();
    (error.reason, error.offset)
}

#[test]
fn ses_18_vector_has_its_bytes_and_its_digest() {
    // Built in an order that no writer wants.
    let mut members = Map::new();
    for (key, value) in [
        ("\u{1F600}", json!(1)),
        ("\u{FFFF}", json!(-2)),
        ("é", Value::Null),
        (
            "c",
            json!([
                1e16,
                -0.0,
                0.0001,
                1e-05,
                123_456_789_012_345_680.0,
                5e-324,
                1e15
            ]),
        ),
        ("b", json!(1.0)),
        ("a", json!("é\u{0}\n\"/\u{7f}")),
        ("Z", json!(true)),
    ] {
        members.insert(key.to_owned(), value);
    }
    let bytes = to_bytes(&Value::Object(members)).unwrap();
    let expected = "{\"Z\":true,\"a\":\"é\\u0000\\n\\\"/\u{7f}\",\"b\":1.0,\
        \"c\":[1e+16,-0.0,0.0001,1e-05,1.2345678901234568e+17,5e-324,1000000000000000.0],\
        \"é\":null,\"\u{FFFF}\":-2,\"\u{1F600}\":1}";
    assert_eq!(String::from_utf8(bytes.clone()).unwrap(), expected);
    assert_eq!(
        Digest::of(&bytes).to_hex(),
        "25dbf78c2eccb2b47758561c0f1c0a5325ec1d0244e05428382e5d6e1fb66a72"
    );
    assert_eq!(to_bytes(&read_canonical(&bytes).unwrap()).unwrap(), bytes);
}

#[test]
fn trj_11_golden_vector_a_has_its_bytes_and_its_digest() {
    let input = r#"{"é":[1,2.0,1e-7,true,null],"a":"\u2028\u0001/"}"#;
    let value = read(input.as_bytes(), ReadLimits::DEFAULT).unwrap();
    assert_eq!(
        text(&value),
        "{\"a\":\"\u{2028}\\u0001/\",\"é\":[1,2.0,1e-07,true,null]}"
    );
    assert_eq!(
        digest(&value).unwrap().to_hex(),
        "f97802603eb3b5e893833f81944fbc96b5d65fd7311fc588dbabc759433585ce"
    );
}

#[test]
fn trj_12_floats_print_as_cpython_prints_them() {
    for (value, expected) in [
        (1e-5, "1e-05"),
        (1e-7, "1e-07"),
        (1e16, "1e+16"),
        (1e22, "1e+22"),
        (5e-324, "5e-324"),
        (1.5e300, "1.5e+300"),
        (100_000.0, "100000.0"),
        (-0.0, "-0.0"),
        (0.0, "0.0"),
        (1.234_567_890_123_456_8e17, "1.2345678901234568e+17"),
        (0.000_1, "0.0001"),
        (0.000_123_4, "0.0001234"),
        (0.000_099_99, "9.999e-05"),
        (0.1, "0.1"),
        (-1.5, "-1.5"),
        (123.456, "123.456"),
        (9_007_199_254_740_993.0, "9007199254740992.0"),
        (9_999_999_999_999_998.0, "9999999999999998.0"),
        (1e15, "1000000000000000.0"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
        (-2.225_073_858_507_201e-308, "-2.225073858507201e-308"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e100, "1e+100"),
        (1e-100, "1e-100"),
    ] {
        assert_eq!(float(value), expected);
        assert_eq!(expected.parse::<f64>().unwrap().to_bits(), value.to_bits());
    }
}

#[test]
fn ses_17_nan_and_the_infinities_are_refused_and_leave_the_buffer_alone() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut buffer = b"x".to_vec();
        assert_eq!(
            write_f64(value, &mut buffer),
            Err(CanonicalError::NotFinite)
        );
        assert_eq!(buffer, b"x");
        assert_eq!(to_canonical(&[value]), Err(CanonicalError::NotFinite));
    }
    assert_eq!(refusal("NaN"), (ReadReason::NotFinite, 0));
    assert_eq!(refusal("[1,-Infinity]"), (ReadReason::NotFinite, 3));
    assert_eq!(refusal("Infinity"), (ReadReason::NotFinite, 0));
    assert_eq!(refusal("1e400"), (ReadReason::NotFinite, 0));
    assert_eq!(refusal("Nan"), (ReadReason::UnexpectedByte, 2));
}

#[test]
fn ses_17_integers_are_kept_or_refused_and_never_rounded() {
    for value in ["0", "-1", "18446744073709551615", "-9223372036854775808"] {
        let read = read(value.as_bytes(), ReadLimits::DEFAULT).unwrap();
        assert_eq!(text(&read), value);
    }
    assert_eq!(
        refusal("18446744073709551616"),
        (ReadReason::IntegerRange, 0)
    );
    assert_eq!(
        refusal("[-9223372036854775809]"),
        (ReadReason::IntegerRange, 1)
    );
    assert_eq!(
        to_canonical(&(u128::from(u64::MAX))).unwrap(),
        b"18446744073709551615"
    );
    assert_eq!(
        to_canonical(&(u128::from(u64::MAX) + 1)),
        Err(CanonicalError::IntegerRange)
    );
    assert_eq!(
        to_canonical(&i128::from(i64::MIN)).unwrap(),
        b"-9223372036854775808"
    );
    assert_eq!(
        to_canonical(&(i128::from(i64::MIN) - 1)),
        Err(CanonicalError::IntegerRange)
    );
    // One and one point nought are two values; minus nought is one number with two spellings.
    assert_ne!(
        read(b"1", ReadLimits::DEFAULT),
        read(b"1.0", ReadLimits::DEFAULT)
    );
    assert_eq!(text(&read(b"-0", ReadLimits::DEFAULT).unwrap()), "0");
    assert_eq!(text(&read(b"-0.0", ReadLimits::DEFAULT).unwrap()), "-0.0");
}

#[test]
fn an_escape_is_found_wherever_it_stands_in_a_long_text() {
    for length in 0..100 {
        for place in 0..=length {
            let text = format!("{}\n{}", "é".repeat(place), "x".repeat(length - place));
            let bytes = to_bytes(&json!(text)).unwrap();
            assert_eq!(bytes, serde_json::to_vec(&text).unwrap());
            assert_eq!(read_canonical(&bytes), Ok(json!(text)));
        }
    }
}

#[test]
fn ses_17_only_quote_backslash_and_controls_are_escaped() {
    for code in 0..0x20u32 {
        let character = char::from_u32(code).unwrap();
        let expected = match character {
            '\u{8}' => "\\b".to_owned(),
            '\u{c}' => "\\f".to_owned(),
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            '\t' => "\\t".to_owned(),
            _ => format!("\\u{code:04x}"),
        };
        let value = json!(character.to_string());
        assert_eq!(text(&value), format!("\"{expected}\""));
        assert_eq!(read_canonical(&to_bytes(&value).unwrap()), Ok(value));
    }
    for raw in ["\u{7f}", "\u{85}", "\u{2028}", "\u{1F600}", "/", "'"] {
        assert_eq!(text(&json!(raw)), format!("\"{raw}\""));
    }
    assert_eq!(text(&json!("a\"b\\")), r#""a\"b\\""#);
}

#[test]
fn the_reader_names_each_fault_and_its_place() {
    for (input, reason, offset) in [
        ("", ReadReason::UnexpectedEnd, 0),
        ("  ", ReadReason::UnexpectedEnd, 2),
        ("[1", ReadReason::UnexpectedEnd, 2),
        ("{\"a\"", ReadReason::UnexpectedEnd, 4),
        ("{", ReadReason::UnexpectedEnd, 1),
        ("\"abc", ReadReason::UnexpectedEnd, 4),
        ("\"ab\\", ReadReason::UnexpectedEnd, 4),
        ("\"\\u00", ReadReason::UnexpectedEnd, 5),
        ("tru", ReadReason::UnexpectedEnd, 3),
        ("-", ReadReason::UnexpectedEnd, 1),
        ("1.", ReadReason::UnexpectedEnd, 2),
        ("1e+", ReadReason::UnexpectedEnd, 3),
        ("[1,]", ReadReason::UnexpectedByte, 3),
        ("{\"a\":1,}", ReadReason::UnexpectedByte, 7),
        ("{a:1}", ReadReason::UnexpectedByte, 1),
        ("{\"a\" 1}", ReadReason::UnexpectedByte, 5),
        ("[1 2]", ReadReason::UnexpectedByte, 3),
        ("'a'", ReadReason::UnexpectedByte, 0),
        ("\u{feff}1", ReadReason::UnexpectedByte, 0),
        ("// c\n1", ReadReason::UnexpectedByte, 0),
        ("True", ReadReason::UnexpectedByte, 0),
        ("01", ReadReason::InvalidNumber, 0),
        ("-01", ReadReason::InvalidNumber, 0),
        ("[1.]", ReadReason::InvalidNumber, 1),
        ("[.5]", ReadReason::InvalidNumber, 1),
        ("+1", ReadReason::InvalidNumber, 0),
        ("[1e]", ReadReason::InvalidNumber, 1),
        ("[-]", ReadReason::InvalidNumber, 1),
        ("\"\\x\"", ReadReason::InvalidEscape, 1),
        ("\"a\\u00g0\"", ReadReason::InvalidEscape, 2),
        ("\"\\ud800\"", ReadReason::LoneSurrogate, 1),
        ("\"\\ud800\\n\"", ReadReason::LoneSurrogate, 1),
        ("\"\\ud800\\ud800\"", ReadReason::LoneSurrogate, 1),
        ("\"\\udc00\"", ReadReason::LoneSurrogate, 1),
        ("\"a\nb\"", ReadReason::ControlCharacter, 2),
        ("{\"a\":1,\"a\":2}", ReadReason::DuplicateKey, 7),
        ("{\"a\":1,\"\\u0061\":2}", ReadReason::DuplicateKey, 7),
        ("{\"b\":1,\"a\":2,\"b\":3}", ReadReason::DuplicateKey, 13),
        (
            "{\"b\":1,\"a\":2,\"c\":3,\"a\":4}",
            ReadReason::DuplicateKey,
            19,
        ),
        ("1 2", ReadReason::TrailingData, 2),
        ("{}}", ReadReason::TrailingData, 2),
    ] {
        assert_eq!(refusal(input), (reason, offset), "{input:?}");
    }
    let invalid = read(b"\"ab\xff\"", ReadLimits::DEFAULT).unwrap_err();
    assert_eq!(
        (invalid.reason, invalid.offset),
        (ReadReason::InvalidUtf8, 3)
    );
    // A lone surrogate written as UTF-8 is no UTF-8.
    let invalid = read(b"\"\xed\xa0\x80\"", ReadLimits::DEFAULT).unwrap_err();
    assert_eq!(
        (invalid.reason, invalid.offset),
        (ReadReason::InvalidUtf8, 1)
    );
    assert_eq!(invalid.to_string(), "invalid_utf8 at byte 1");
}

#[test]
fn limits_hold_at_the_bound_and_break_one_above_it() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let limits = |depth, nodes, bytes| ReadLimits {
        depth,
        nodes,
        bytes,
    };
    for depth in [2, 3] {
        assert!(read(nested(depth).as_bytes(), limits(3, 9, 99)).is_ok());
    }
    let error = read(nested(4).as_bytes(), limits(3, 9, 99)).unwrap_err();
    assert_eq!((error.reason, error.offset), (ReadReason::TooDeep, 3));
    for text in ["[1]", "[1,2]"] {
        assert!(read(text.as_bytes(), limits(9, 3, 99)).is_ok());
    }
    let error = read(b"[1,2,3]", limits(9, 3, 99)).unwrap_err();
    assert_eq!((error.reason, error.offset), (ReadReason::TooManyNodes, 5));
    for text in ["123", "1234"] {
        assert!(read(text.as_bytes(), limits(9, 9, 4)).is_ok());
    }
    let error = read(b"12345", limits(9, 9, 4)).unwrap_err();
    assert_eq!((error.reason, error.offset), (ReadReason::TooLarge, 4));
}

#[test]
fn writer_and_reader_share_one_bound_on_depth() {
    let nested = |depth: usize| {
        let mut value = json!(1);
        for _ in 0..depth {
            value = json!([value]);
        }
        value
    };
    for depth in [MAXIMUM_DEPTH - 1, MAXIMUM_DEPTH] {
        let bytes = to_bytes(&nested(depth)).unwrap();
        assert_eq!(read_canonical(&bytes).unwrap(), nested(depth));
        assert_eq!(to_canonical(&nested(depth)).unwrap(), bytes);
    }
    let deep = nested(MAXIMUM_DEPTH + 1);
    assert_eq!(to_bytes(&deep), Err(CanonicalError::TooDeep));
    assert_eq!(to_canonical(&deep), Err(CanonicalError::TooDeep));
    let unbounded = ReadLimits {
        depth: usize::MAX,
        ..ReadLimits::DEFAULT
    };
    let text = "[".repeat(1_000_000);
    let error = read(text.as_bytes(), unbounded).unwrap_err();
    assert_eq!(
        (error.reason, error.offset),
        (ReadReason::TooDeep, MAXIMUM_DEPTH)
    );
}

#[test]
fn ses_20_other_spellings_of_a_value_are_not_canonical() {
    for (input, offset) in [
        (" 1", 0),
        ("1\n", 1),
        ("[1, 2]", 3),
        ("{\"a\" :1}", 4),
        ("{\"b\":1,\"a\":2}", 7),
        // UTF-16 order puts the astral key first.
        ("{\"\u{1F600}\":1,\"\u{FFFF}\":2}", 10),
        ("1e16", 0),
        ("1.50", 0),
        ("[10E2]", 1),
        ("0.00001", 0),
        ("-0", 0),
        ("\"\\/\"", 1),
        ("\"\\u0041\"", 1),
        ("\"\\u000a\"", 1),
        ("\"\\u001F\"", 1),
        ("\"\\u007f\"", 1),
        ("\"\\ud83d\\ude00\"", 1),
    ] {
        assert!(read(input.as_bytes(), ReadLimits::DEFAULT).is_ok());
        let error = read_canonical(input.as_bytes()).unwrap_err();
        assert_eq!(
            (error.reason, error.offset),
            (ReadReason::NotCanonical, offset),
            "{input:?}"
        );
        assert!(!is_canonical(input.as_bytes()));
    }
    assert!(is_canonical(b"{\"a\":[1.5,\"\\u001f\"],\"b\":{}}"));
}

#[test]
fn an_object_writer_gives_the_bytes_of_the_tree() {
    let value = json!({
        "array": [1, "two", null, [], {}],
        "bool": true,
        "float": 1.0,
        "negative": i64::MIN,
        "object": {"inner": "é\n", "other": u64::MAX},
        "raw": {"x": 1},
    });
    let mut buffer = Vec::new();
    let mut object = ObjectWriter::new(&mut buffer);
    let mut array = object.key("array").array();
    array.item().u64(1);
    array.item().str("two");
    array.item().null();
    array.item().array().end();
    array.item().object().end();
    array.end();
    object.key("bool").bool(true);
    object.key("float").f64(1.0).unwrap();
    object.key("negative").i64(i64::MIN);
    {
        let mut inner = object.key("object").object();
        inner.key("inner").str("é\n");
        inner.key("other").u64(u64::MAX);
    }
    object.key("raw").raw(b"{\"x\":1}");
    object.end();
    assert_eq!(buffer, to_bytes(&value).unwrap());
}

#[test]
#[should_panic(expected = "code-point order")]
#[cfg(debug_assertions)]
fn an_object_writer_asserts_the_order_of_its_keys() {
    let mut buffer = Vec::new();
    let mut object = ObjectWriter::new(&mut buffer);
    object.key("b").null();
    object.key("a").null();
}

#[derive(Serialize)]
struct Newtype(u8);

#[derive(Serialize)]
struct Unit;

#[derive(Serialize)]
enum Shape {
    Empty,
    One(u8),
    Two(u8, char),
    Named { zebra: u8, apple: Option<u8> },
}

#[derive(Serialize)]
struct Outer<'a> {
    zebra: &'a str,
    apple: Newtype,
    shapes: Vec<Shape>,
    unit: Unit,
    numbers: BTreeMap<i8, f32>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[test]
fn to_canonical_equals_the_tree_for_every_kind_of_type() {
    let mut rest = Map::new();
    rest.insert("mango".to_owned(), json!({"b": 1, "a": [1.0]}));
    let outer = Outer {
        zebra: "z",
        apple: Newtype(3),
        shapes: vec![
            Shape::Empty,
            Shape::One(1),
            Shape::Two(2, 'é'),
            Shape::Named {
                zebra: 1,
                apple: None,
            },
        ],
        unit: Unit,
        numbers: BTreeMap::from([(-1, 0.5), (10, 1.0), (9, 2.0)]),
        rest,
    };
    let direct = to_canonical(&outer).unwrap();
    assert_eq!(
        direct,
        to_bytes(&serde_json::to_value(&outer).unwrap()).unwrap()
    );
    assert!(is_canonical(&direct));
}

#[test]
fn to_canonical_refuses_a_key_given_twice_and_keys_that_are_no_text() {
    #[derive(Serialize)]
    struct Twice {
        name: u8,
        #[serde(flatten)]
        rest: BTreeMap<String, u8>,
    }
    let twice = Twice {
        name: 1,
        rest: BTreeMap::from([("name".to_owned(), 2)]),
    };
    assert_eq!(to_canonical(&twice), Err(CanonicalError::DuplicateKey));
    let keyed = HashMap::from([(vec![1u8], 1u8)]);
    assert_eq!(to_canonical(&keyed), Err(CanonicalError::KeyNotString));
}

#[test]
fn ses_18_numbers_dressed_as_structs_by_other_features_are_numbers() {
    // What serde_json hands to other serialisers under `arbitrary_precision`.
    #[derive(Serialize)]
    #[serde(rename = "$serde_json::private::Number")]
    struct Number<'a> {
        #[serde(rename = "$serde_json::private::Number")]
        text: &'a str,
    }
    let write = |text| to_canonical(&[Number { text }]);
    assert_eq!(write("1e16").unwrap(), b"[1e+16]");
    assert_eq!(write("12").unwrap(), b"[12]");
    assert_eq!(write("1.0").unwrap(), b"[1.0]");
    assert_eq!(
        write("18446744073709551616"),
        Err(CanonicalError::IntegerRange)
    );
    assert_eq!(write("1e999"), Err(CanonicalError::NotFinite));
}

/// Any JSON value, floats of all bit patterns included.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<u64>().prop_map(|bits| {
            let float = f64::from_bits(bits);
            if float.is_finite() {
                Value::from(float)
            } else {
                Value::Null
            }
        }),
        (-1_000_000i32..1_000_000).prop_map(|number| Value::from(f64::from(number) / 1000.0)),
        any::<String>().prop_map(Value::from),
        "[\\x00-\\x22\\\\/é\u{2028}\u{FFFF}\u{1F600}]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            proptest::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_reads_back_as_the_same_value(value in any_json()) {
        let bytes = to_bytes(&value).unwrap();
        prop_assert_eq!(&read_canonical(&bytes).unwrap(), &value);
        prop_assert_eq!(&to_canonical(&value).unwrap(), &bytes);
    }

    #[test]
    fn what_reads_is_written_back_as_itself_only_when_canonical(value in any_json()) {
        let pretty = serde_json::to_vec_pretty(&value).unwrap();
        let read_back = read(&pretty, ReadLimits::DEFAULT).unwrap();
        let written = to_bytes(&read_back).unwrap();
        prop_assert_eq!(is_canonical(&pretty), written == pretty);
        prop_assert_eq!(to_bytes(&read_canonical(&written).unwrap()).unwrap(), written);
    }

    #[test]
    fn floats_round_trip_bit_by_bit(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        if value.is_finite() {
            prop_assert_eq!(float(value).parse::<f64>().unwrap().to_bits(), bits);
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Err(error) = read(&bytes, ReadLimits::DEFAULT) {
            prop_assert!(error.offset <= bytes.len());
        }
    }

    #[test]
    fn no_json_like_text_makes_the_reader_panic(
        text in "[\\[\\]{}:,\"\\\\u0-9a-fA-F.eE+\\- tnrulsNI]{0,40}",
    ) {
        let limits = ReadLimits { depth: 8, nodes: 30, bytes: 1000 };
        match read(text.as_bytes(), limits) {
            Ok(value) => {
                let bytes = to_bytes(&value).unwrap();
                prop_assert_eq!(read_canonical(&bytes).unwrap(), value);
            }
            Err(error) => prop_assert!(error.offset <= text.len()),
        }
        if let Ok(value) = read_canonical(text.as_bytes()) {
            prop_assert_eq!(to_bytes(&value).unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn one_changed_byte_is_refused_or_still_canonical(
        value in any_json(),
        position in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = to_bytes(&value).unwrap();
        let position = position.index(bytes.len());
        bytes[position] = byte;
        if let Ok(value) = read_canonical(&bytes) {
            prop_assert_eq!(to_bytes(&value).unwrap(), bytes);
        }
    }
}
