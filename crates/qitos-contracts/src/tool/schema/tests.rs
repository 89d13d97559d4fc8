use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Compiles any schema, for the tests that are about one keyword.
fn compiled(schema: Value) -> Schema {
    Schema::compile_any(&schema).unwrap()
}

fn refusal(schema: Value) -> (String, &'static str) {
    let error = Schema::compile_any(&schema).unwrap_err();
    (error.pointer, error.reason)
}

/// The issues as `path code` lines.
fn lines(schema: &Schema, value: Value) -> Vec<String> {
    let line = |issue: &Issue| format!("{} {}", issue.path, issue.code);
    schema.validate(&value).iter().map(line).collect()
}

#[test]
fn arg_1_keywords_outside_the_subset_are_refused_where_they_stand() {
    for (schema, pointer) in [
        (json!({"$id": "https://example.invalid/a"}), "/$id"),
        (json!({"$anchor": "a"}), "/$anchor"),
        (
            json!({"properties": {"a": {"unevaluatedProperties": false}}}),
            "/properties/a/unevaluatedProperties",
        ),
        (json!({"minContains": 1}), "/minContains"),
        (json!({"dependentSchemas": {}}), "/dependentSchemas"),
        (json!({"definitions": {}}), "/definitions"),
        (json!({"anyOf": [{"typo": 1}]}), "/anyOf/0/typo"),
        (
            json!({"properties": {"a/b~": {"x": 1}}}),
            "/properties/a~1b~0/x",
        ),
    ] {
        assert_eq!(
            refusal(schema),
            (pointer.to_owned(), "a keyword outside the supported subset")
        );
    }
}

#[test]
fn arg_1_keywords_of_the_wrong_form_are_refused() {
    for schema in [
        json!({"type": "text"}),
        json!({"type": []}),
        json!({"type": 1}),
        json!({"properties": []}),
        json!({"properties": {"a": 1}}),
        json!({"required": "a"}),
        json!({"required": [1]}),
        json!({"enum": []}),
        json!({"enum": "a"}),
        json!({"anyOf": []}),
        json!({"items": []}),
        json!({"minLength": -1}),
        json!({"minLength": 1.5}),
        json!({"maxItems": "1"}),
        json!({"minimum": "1"}),
        json!({"multipleOf": 0}),
        json!({"uniqueItems": 1}),
        json!({"nullable": "yes"}),
        json!({"pattern": "("}),
        json!({"pattern": "(?=a)"}),
        json!({"pattern": "(?<!a)"}),
        json!({"pattern": "(a)\\1"}),
        json!({"pattern": "(?:a{1000}){1000}"}),
        json!({"patternProperties": {"[": {}}}),
        json!({"dependentRequired": {"a": "b"}}),
        json!([]),
        json!("object"),
    ] {
        let error = Schema::compile_any(&schema).unwrap_err();
        assert!(!error.reason.is_empty(), "{schema}");
    }
}

#[test]
fn arg_1_references_are_local_found_and_not_circular() {
    for schema in [
        json!({"$ref": "https://example.invalid/a"}),
        json!({"$ref": "other.json#/a"}),
        json!({"$ref": "#name"}),
        json!({"$ref": "#/$defs/a"}),
        json!({"$ref": "#/$defs", "$defs": {"a": {}}}),
        json!({"$ref": "#"}),
        json!({"$ref": 1}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
        json!({"not": {"$ref": "#"}}),
    ] {
        assert!(Schema::compile_any(&schema).is_err(), "{schema}");
    }
    let chain = |length: usize| {
        let mut definitions = serde_json::Map::new();
        for index in 0..length {
            let target = format!("#/$defs/d{}", index + 1);
            definitions.insert(format!("d{index}"), json!({ "$ref": target }));
        }
        definitions.insert(format!("d{length}"), json!({"type": "null"}));
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    };
    // The root, the definitions that refer on, and the last one.
    assert!(Schema::compile_any(&chain(61)).is_ok());
    assert!(Schema::compile_any(&chain(62)).is_ok());
    assert!(Schema::compile_any(&chain(63)).is_err());
}

#[test]
fn arg_1_root_depth_and_size_are_bounded() {
    assert!(Schema::compile(&json!({"type": "object"})).is_ok());
    for root in [
        json!({"type": "string"}),
        json!({"type": ["object", "null"]}),
        json!({"properties": {}}),
        json!(true),
        json!({}),
    ] {
        assert_eq!(Schema::compile(&root).unwrap_err().pointer, "", "{root}");
    }
    let nested = |depth: usize| (1..depth).fold(json!({}), |inner, _| json!({"items": inner}));
    assert!(Schema::compile_any(&nested(31)).is_ok());
    assert!(Schema::compile_any(&nested(32)).is_ok());
    assert_eq!(refusal(nested(33)).1, "nested more than 32 deep");
    let sized = |bytes: usize| {
        let shell = r#"{"description":""}"#.len();
        json!({"description": "x".repeat(bytes - shell)})
    };
    assert!(Schema::compile_any(&sized(MAXIMUM_SCHEMA_BYTES - 1)).is_ok());
    assert!(Schema::compile_any(&sized(MAXIMUM_SCHEMA_BYTES)).is_ok());
    assert_eq!(
        refusal(sized(MAXIMUM_SCHEMA_BYTES + 1)).1,
        "larger than 64 KiB"
    );
}

#[test]
fn arg_3_values_are_not_coerced_but_one_point_nought_is_an_integer() {
    let accepts = |name: &str, value: Value| compiled(json!({"type": name})).accepts(&value);
    assert!(accepts("integer", json!(1.0)));
    assert!(accepts("integer", json!(u64::MAX)));
    assert!(accepts("integer", json!(1e300)));
    assert!(!accepts("integer", json!(1.5)));
    assert!(!accepts("integer", json!("5")));
    assert!(!accepts("number", json!(true)));
    assert!(accepts("number", json!(1)));
    assert!(!accepts("string", json!(5)));
    assert!(!accepts("boolean", json!(0)));
    assert!(!accepts("null", json!("")));
    assert!(!accepts("object", json!([])));
    assert!(compiled(json!({"type": ["string", "null"]})).accepts(&Value::Null));
}

#[test]
fn every_keyword_decides_as_json_schema_says() {
    let cases: Vec<(Value, Vec<Value>, Vec<Value>)> = vec![
        (
            json!({"enum": ["a", 1, null]}),
            vec![json!("a"), json!(1.0), Value::Null],
            vec![json!("b"), json!("1")],
        ),
        (
            json!({"const": {"a": [1]}}),
            vec![json!({"a": [1.0]})],
            vec![json!({"a": [2]}), json!({})],
        ),
        (
            json!({"minimum": 3}),
            vec![json!(3), json!(3.5), json!("x")],
            vec![json!(2), json!(2.999)],
        ),
        (
            json!({"maximum": 3}),
            vec![json!(3), json!(-1)],
            vec![json!(3.001), json!(4)],
        ),
        (
            json!({"exclusiveMinimum": 0}),
            vec![json!(1), json!(0.1)],
            vec![json!(0), json!(-0.0)],
        ),
        (
            json!({"exclusiveMaximum": 18446744073709551615u64}),
            vec![json!(18446744073709551614u64)],
            vec![json!(18446744073709551615u64)],
        ),
        (
            json!({"minimum": 9007199254740993u64}),
            vec![json!(9007199254740993u64)],
            vec![json!(9007199254740992u64), json!(9007199254740992.0)],
        ),
        (
            json!({"multipleOf": 0.1}),
            vec![json!(0.3), json!(7), json!(0), json!(1e22)],
            vec![json!(0.35), json!(1e-5)],
        ),
        (
            json!({"multipleOf": 3}),
            vec![json!(9), json!(-3), json!(3e20)],
            vec![json!(10), json!(0.5), json!(1e20)],
        ),
        (
            json!({"minLength": 2}),
            vec![json!("éé"), json!("ab")],
            vec![json!("é"), json!("")],
        ),
        (
            json!({"maxLength": 2}),
            vec![json!("\u{1F600}\u{1F600}")],
            vec![json!("abc")],
        ),
        (
            json!({"pattern": "^[a-z]+$"}),
            vec![json!("abc")],
            vec![json!("abc\n"), json!("aBc"), json!("")],
        ),
        (
            json!({"pattern": "b"}),
            vec![json!("abc")],
            vec![json!("ac")],
        ),
        (
            json!({"minItems": 1, "maxItems": 2}),
            vec![json!([1]), json!([1, 2])],
            vec![json!([]), json!([1, 2, 3])],
        ),
        (
            json!({"uniqueItems": true}),
            vec![json!([1, "1", [1]])],
            vec![json!([1, 1.0]), json!([{"a": 1, "b": 2}, {"b": 2, "a": 1}])],
        ),
        (json!({"uniqueItems": false}), vec![json!([1, 1])], vec![]),
        (
            json!({"items": {"type": "integer"}}),
            vec![json!([]), json!([1, 2])],
            vec![json!([1, "2"])],
        ),
        (json!({"items": false}), vec![json!([])], vec![json!([1])]),
        (
            json!({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}),
            vec![json!(["a", 1]), json!([])],
            vec![json!([1]), json!(["a", "b"])],
        ),
        (
            json!({"contains": {"const": 1}}),
            vec![json!([2, 1])],
            vec![json!([]), json!([2])],
        ),
        (
            json!({"minProperties": 1, "maxProperties": 1}),
            vec![json!({"a": 1})],
            vec![json!({}), json!({"a": 1, "b": 2})],
        ),
        (
            json!({"propertyNames": {"pattern": "^x-"}}),
            vec![json!({"x-a": 1}), json!({})],
            vec![json!({"a": 1})],
        ),
        (
            json!({"dependentRequired": {"a": ["b"]}}),
            vec![json!({"b": 1}), json!({"a": 1, "b": 2})],
            vec![json!({"a": 1})],
        ),
        (
            json!({"patternProperties": {"^n": {"type": "integer"}}, "additionalProperties": false}),
            vec![json!({"n1": 1})],
            vec![json!({"n1": "a"}), json!({"m": 1})],
        ),
        (
            json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}),
            vec![json!({"a": 1, "b": "x"})],
            vec![json!({"b": 1})],
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            vec![json!("a"), json!(1)],
            vec![json!(true)],
        ),
        (
            json!({"oneOf": [{"type": "integer"}, {"minimum": 2}]}),
            vec![json!(1), json!(2.5)],
            vec![json!(3), json!(1.5)],
        ),
        (
            json!({"allOf": [{"minimum": 1}, {"maximum": 2}]}),
            vec![json!(1)],
            vec![json!(3), json!(0)],
        ),
        (
            json!({"not": {"type": "string"}}),
            vec![json!(1)],
            vec![json!("a")],
        ),
        (
            json!({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}),
            vec![json!("ab"), json!(2)],
            vec![json!("a"), json!(1)],
        ),
        (
            json!({"then": false, "else": false}),
            vec![json!(1)],
            vec![],
        ),
        (
            json!({"type": "integer", "nullable": true}),
            vec![Value::Null, json!(1)],
            vec![json!("a")],
        ),
        (
            json!({"type": "integer", "nullable": false}),
            vec![json!(1)],
            vec![Value::Null],
        ),
        (
            json!({"enum": ["a"], "nullable": true}),
            vec![Value::Null],
            vec![json!("b")],
        ),
        (json!(true), vec![json!(1), Value::Null], vec![]),
        (json!(false), vec![], vec![json!(1), Value::Null]),
        (
            json!({"$ref": "#/$defs/a%20b~1c", "$defs": {"a b/c": {"type": "null"}}}),
            vec![Value::Null],
            vec![json!(1)],
        ),
        (
            json!({"$ref": "#/$defs/a", "minimum": 5, "$defs": {"a": {"type": "integer"}}}),
            vec![json!(5)],
            vec![json!(4), json!("a")],
        ),
        (
            json!({"format": "email", "title": "t", "default": 1, "examples": [], "deprecated": true, "readOnly": true, "writeOnly": false, "$comment": "c", "$schema": "s"}),
            vec![json!("anything")],
            vec![],
        ),
    ];
    for (schema, good, bad) in cases {
        let compiled = compiled(schema.clone());
        for value in good {
            assert!(compiled.accepts(&value), "{schema} takes {value}");
            assert_eq!(compiled.validate(&value), [], "{schema} takes {value}");
        }
        for value in bad {
            assert!(!compiled.accepts(&value), "{schema} refuses {value}");
            assert!(
                !compiled.validate(&value).is_empty(),
                "{schema} refuses {value}"
            );
        }
    }
}

#[test]
fn patterns_mean_what_ecmascript_means() {
    for (pattern, good, bad) in [
        ("^\\d+$", "123", "١٢٣"),
        ("^\\w+$", "a_1", "é"),
        ("^[\\w-]+$", "a-b", "a b"),
        ("^\\s$", "\u{feff}", "x"),
        ("^[^\\s]$", "x", "\u{a0}"),
        ("^.$", "x", "\u{2028}"),
        ("^a\\/b$", "a/b", "ab"),
        ("^[[a]$", "[", "b"),
        ("^[&&a]+$", "&a&", "b"),
        ("\\bcat\\b", "a cat.", "concat"),
        ("^\\u00e9\\x41$", "éA", "eA"),
        ("^(?<year>\\d{4})-(?:\\d{2})$", "2026-11", "2026/11"),
        ("^[a-z--]$", "-", "A"),
        ("^\\-$", "-", "a"),
    ] {
        let schema = compiled(json!({ "pattern": pattern }));
        assert!(schema.accepts(&json!(good)), "{pattern} takes {good}");
        assert!(!schema.accepts(&json!(bad)), "{pattern} refuses {bad}");
    }
}

#[test]
fn arg_7_issues_come_in_path_and_code_order_and_quote_no_value() {
    let schema = Schema::compile(&json!({
        "type": "object",
        "properties": {
            "a": {"type": "string", "minLength": 3},
            "b": {"type": "array", "items": {"type": "integer"}},
            "c": {"enum": ["x", "y"]},
        },
        "required": ["a", "z"],
        "additionalProperties": false,
    }))
    .unwrap();
    let value = json!({"a": "SECRET".repeat(0) + "s!", "b": [1, "SECRET", true], "c": "SECRET", "q": "SECRET"});
    assert_eq!(
        lines(&schema, value.clone()),
        [
            "/a invalid_argument_value",
            "/b/1 invalid_argument_type",
            "/b/2 invalid_argument_type",
            "/c invalid_argument_value",
            "/q unexpected_argument",
            "/z missing_required_argument",
        ]
    );
    for issue in schema.validate(&value) {
        assert!(!issue.message.contains("SECRET"));
        assert!(!issue.message.is_empty());
    }
}

#[test]
fn arg_7_of_a_million_issues_the_first_eight_are_kept() {
    let schema = compiled(json!({"type": "array", "items": {"type": "string"}}));
    let issues = lines(&schema, json!(vec![0; 100_000]));
    assert_eq!(issues.len(), MAXIMUM_ISSUES);
    assert_eq!(issues[0], "/0 invalid_argument_type");
    // Text order: /10 comes before /2.
    assert_eq!(issues[2], "/10 invalid_argument_type");
    assert_eq!(issues, {
        let mut sorted = issues.clone();
        sorted.sort();
        sorted
    });
}

#[test]
fn alternatives_name_the_fault_of_the_only_one_that_can_be_meant() {
    // Option<Inner>, as schema generators write it.
    let schema = compiled(json!({
        "properties": {"inner": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]}},
        "$defs": {"Inner": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
    }));
    assert_eq!(lines(&schema, json!({"inner": null})), Vec::<String>::new());
    assert_eq!(
        lines(&schema, json!({"inner": {}})),
        [
            "/inner invalid_argument_type",
            "/inner/x missing_required_argument"
        ]
    );
    assert_eq!(
        lines(&schema, json!({"inner": 5})),
        ["/inner invalid_argument_type"]
    );
    let both = compiled(json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}));
    assert_eq!(lines(&both, json!(1)), [" invalid_argument_type"]);
}

#[test]
fn work_is_bounded_however_schema_and_value_multiply() {
    // Each level tries two alternatives that both look at the next level.
    let doubling = compiled(json!({
        "anyOf": [{"$ref": "#/$defs/n"}, {"const": 0}],
        "$defs": {"n": {"type": "array", "items": {"anyOf": [
            {"allOf": [{"$ref": "#/$defs/n"}, {"maxItems": 0}]},
            {"$ref": "#/$defs/n"},
        ]}}},
    }));
    let nested = (0..60).fold(json!(1), |inner, _| json!([inner]));
    let issues = doubling.validate(&nested);
    assert_eq!(issues.len(), 1);
    assert_eq!(issues[0].path, "");
    assert!(!doubling.accepts(&nested));
    // A recursive schema meets a value deeper than the judge goes.
    let recursive = compiled(json!({"items": {"$ref": "#"}}));
    let deep = (0..300).fold(json!(1), |inner, _| json!([inner]));
    assert!(!recursive.accepts(&deep));
    let shallow = (0..100).fold(json!(1), |inner, _| json!([inner]));
    assert!(recursive.accepts(&shallow));
}

#[test]
fn a_path_stays_short_whatever_the_keys() {
    let schema =
        compiled(json!({"additionalProperties": {"additionalProperties": {"type": "null"}}}));
    let mut inner = serde_json::Map::new();
    inner.insert("k".repeat(100_000), json!(1));
    let issues = schema.validate(&json!({ "a": inner }));
    assert_eq!(issues[0].path, "/a");
}

#[test]
fn arg_6_the_strict_form_closes_requires_and_makes_nullable() {
    let schema = Schema::compile(&json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "where", "default": "."},
            "limit": {"type": "integer", "minimum": 1, "format": "uint32"},
            "mode": {"enum": ["a", "b"], "type": "string", "description": "how"},
            "inner": {"$ref": "#/$defs/Inner"},
            "maybe": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]},
            "choice": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "nothing": {"type": ["integer", "null"]},
            "old": {"type": "integer", "nullable": true},
        },
        "required": ["path"],
        "$defs": {"Inner": {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": false}},
    }))
    .unwrap();
    let strict = schema.strict_form().unwrap();
    assert_eq!(
        strict,
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "where"},
                "limit": {"type": ["integer", "null"], "minimum": 1},
                "mode": {"description": "how", "anyOf": [{"enum": ["a", "b"], "type": "string"}, {"type": "null"}]},
                "inner": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]},
                "maybe": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]},
                "choice": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
                "nothing": {"type": ["integer", "null"]},
                "old": {"type": ["integer", "null"]},
            },
            "required": ["choice", "inner", "limit", "maybe", "mode", "nothing", "old", "path"],
            "additionalProperties": false,
            "$defs": {"Inner": {
                "type": "object",
                "properties": {"x": {"type": ["integer", "null"]}},
                "required": ["x"],
                "additionalProperties": false,
            }},
        })
    );
    // What the strict form takes, the original takes once the forced nulls are gone.
    let strict = Schema::compile(&strict).unwrap();
    let mut value = json!({
        "path": ".", "limit": null, "mode": null, "inner": {"x": null}, "maybe": null,
        "choice": null, "nothing": null, "old": null,
    });
    assert!(strict.accepts(&value));
    assert!(!schema.accepts(&value));
    schema.remove_strict_nulls(&mut value);
    assert_eq!(
        value,
        json!({"path": ".", "inner": {}, "maybe": null, "nothing": null, "old": null})
    );
    assert!(schema.accepts(&value));
}

#[test]
fn arg_6_a_null_of_a_required_field_stays_and_is_refused() {
    let schema = Schema::compile(&json!({
        "type": "object",
        "properties": {"a": {"type": "string"}, "list": {"type": "array", "items": {"type": "object",
            "properties": {"b": {"type": "string"}}, "additionalProperties": false}}},
        "required": ["a"],
    }))
    .unwrap();
    let mut value = json!({"a": null, "list": [{"b": null}, {"b": "x"}], "other": null});
    schema.remove_strict_nulls(&mut value);
    assert_eq!(
        value,
        json!({"a": null, "list": [{}, {"b": "x"}], "other": null})
    );
    assert_eq!(lines(&schema, value), ["/a invalid_argument_type"]);
}

#[test]
fn arg_6_the_alternative_that_is_meant_loses_its_nulls() {
    let schema = Schema::compile(&json!({
        "type": "object",
        "properties": {"shape": {"anyOf": [
            {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind"], "additionalProperties": false},
            {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind"], "additionalProperties": false},
        ]}},
        "required": ["shape"],
    }))
    .unwrap();
    let mut value = json!({"shape": {"kind": "square", "side": null}});
    schema.remove_strict_nulls(&mut value);
    assert_eq!(value, json!({"shape": {"kind": "square"}}));
}

#[test]
fn arg_6_what_strict_mode_cannot_say_is_named_and_never_weakened() {
    for (properties, pointer) in [
        (json!({"a": {"type": "object"}}), "/properties/a"),
        (
            json!({"a": {"type": "object", "additionalProperties": {"type": "string"}}}),
            "/properties/a",
        ),
        (
            json!({"a": {"type": "object", "properties": {"b": {"type": "null"}}, "additionalProperties": true}}),
            "/properties/a",
        ),
        (json!({"a": {"type": "array"}}), "/properties/a"),
        (json!({"a": {}}), "/properties/a"),
        (json!({"a": true}), "/properties/a"),
        (
            json!({"a": {"type": "string", "not": {"const": "x"}}}),
            "/properties/a/not",
        ),
        (
            json!({"a": {"oneOf": [{"type": "string"}], "type": "string"}}),
            "/properties/a/oneOf",
        ),
        (
            json!({"a": {"type": "array", "items": {"type": "null"}, "uniqueItems": true}}),
            "/properties/a/uniqueItems",
        ),
    ] {
        let schema = json!({"type": "object", "properties": properties});
        let error = Schema::compile(&schema).unwrap().strict_form().unwrap_err();
        assert_eq!(error.pointer, pointer, "{schema}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_schema_and_no_value_make_it_panic(
        schema in schema_like(),
        value in crate::canonical_json::any_json_for_tests(),
    ) {
        if let Ok(compiled) = Schema::compile_any(&schema) {
            prop_assert_eq!(compiled.accepts(&value), compiled.validate(&value).is_empty());
            prop_assert!(compiled.validate(&value).len() <= MAXIMUM_ISSUES);
            let mut changed = value.clone();
            compiled.remove_strict_nulls(&mut changed);
            if compiled.accepts(&value) && value == changed {
                prop_assert!(compiled.accepts(&changed));
            }
            if let Ok(strict) = compiled.strict_form() {
                prop_assert!(Schema::compile_any(&strict).is_ok(), "{}", strict);
            }
        }
    }

    #[test]
    fn no_pattern_makes_it_panic(pattern in "[\\[\\](){}?*+.|^$\\\\a-z0-9&~<>=!:,-]{0,20}", text in any::<String>()) {
        if let Ok(schema) = Schema::compile_any(&json!({ "pattern": pattern })) {
            let _ = schema.accepts(&json!(text));
        }
    }
}

/// Schemas made of the right keywords in the right and in wrong places.
fn schema_like() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!({})),
        Just(json!({"type": "string", "minLength": 1})),
        Just(json!({"type": ["integer", "null"], "minimum": 0})),
        Just(json!({"enum": [1, "a", null]})),
        Just(json!({"$ref": "#"})),
        Just(json!({"$ref": "#/properties/a"})),
        Just(json!({"const": {}, "nullable": true})),
        Just(json!(1)),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let list = proptest::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(
                |(a, b)| json!({"type": "object", "properties": {"a": a, "": b}, "required": ["a"]})
            ),
            inner
                .clone()
                .prop_map(|items| json!({"type": "array", "items": items})),
            list.clone().prop_map(|any| json!({ "anyOf": any })),
            list.clone().prop_map(|one| json!({ "oneOf": one })),
            list.prop_map(|all| json!({ "allOf": all })),
            inner.clone().prop_map(|not| json!({ "not": not })),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| json!({"if": a, "then": b})),
            inner.prop_map(|other| json!({"additionalProperties": other})),
        ]
    })
}
