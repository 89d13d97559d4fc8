//! Every row of table A, and of table S where the dialect has a say: one fixture in every split and cut.

use qitos_contracts::model::{Model, Target};
use qitos_providers::anthropic::{AnthropicProfile, AnthropicSettings};
use serde_json::Value;

use super::replay::Dialect;

fn target() -> Target {
    Target::new("anthropic", "claude-offline", "messages", "messages").unwrap()
}

const ANTHROPIC: Dialect = Dialect {
    folder: "anthropic",
    target,
    model: |expected, transport| {
        let mut settings = AnthropicSettings::new(target(), "https://offline.invalid");
        settings.profile = profile(expected);
        let model: Box<dyn Model> = Box::new(settings.with_transport(transport).unwrap());
        model
    },
    is_terminal: is_message_stop,
    is_end_marker: is_message_stop,
};

/// By its type; an event without one goes by its name, and then holds nothing worth a second member.
fn is_message_stop(data: &str) -> bool {
    let Ok(Value::Object(event)) = serde_json::from_str(data) else {
        return false;
    };
    match event.get("type") {
        Some(kind) => kind == "message_stop",
        None => event.len() <= 1 && event.values().all(Value::is_string),
    }
}

fn profile(expected: &Value) -> AnthropicProfile {
    let stop_reasons = expected
        .get("profile")
        .map(|profile| &profile["stop_reasons"]);
    AnthropicProfile {
        stop_reasons: stop_reasons
            .map(|reasons| serde_json::from_value(reasons.clone()).unwrap())
            .unwrap_or_default(),
        ..AnthropicProfile::default()
    }
}

#[test]
fn every_row_of_table_a_has_a_fixture() {
    ANTHROPIC.has_every_row("A", 25);
}

#[test]
fn a_fixture_gives_its_verdict_however_it_is_cut_prv_51() {
    assert!(ANTHROPIC.replay_in_every_split() > 60_000);
}

#[test]
fn a_successful_stream_cut_anywhere_before_its_terminal_is_a_failure_prv_50_prv_53() {
    assert!(ANTHROPIC.cut_everywhere() > 60_000);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_streams_fail_closed_in_any_cut_prv_50_prv_51(
        which in 0usize..1_000,
        damage in proptest::collection::vec((0usize..4_000, 0u8..4, proptest::prelude::any::<u8>()), 1..4),
        cut in 0usize..4_000,
    ) {
        ANTHROPIC.damage(which, &damage, cut);
    }
}
