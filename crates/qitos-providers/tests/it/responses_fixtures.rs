//! Every row of tables S and R: one fixture in every split and cut of the replay harness.

use qitos_contracts::model::{Model, Target};
use qitos_providers::openai_responses::ResponsesSettings;
use serde_json::{Map, Value};

use super::replay::Dialect;

const RESPONSES: Dialect = Dialect {
    folder: "openai-responses",
    target,
    model: |expected, transport| {
        let mut settings = ResponsesSettings::new(target(), "https://offline.invalid/v1");
        let options = expected.get("options").and_then(Value::as_object).cloned();
        settings.options.extra_body = options.unwrap_or_else(Map::new);
        let model: Box<dyn Model> = Box::new(settings.with_transport(transport).unwrap());
        model
    },
    is_terminal,
    // PRV-55: the terminal itself.
    is_end_marker: is_terminal,
};

fn target() -> Target {
    Target::new("openai-compatible", "offline", "openai", "responses").unwrap()
}

fn is_terminal(data: &str) -> bool {
    serde_json::from_str::<Value>(data).is_ok_and(|event| event["type"] == "response.completed")
}

#[test]
fn every_row_of_tables_s_and_r_has_a_fixture() {
    RESPONSES.has_every_row("R", 22);
    RESPONSES.has_every_row("S", 13);
}

#[test]
fn a_fixture_gives_its_verdict_however_it_is_cut_prv_51() {
    assert!(RESPONSES.replay_in_every_split() > 50_000);
}

#[test]
fn a_successful_stream_cut_anywhere_before_its_terminal_is_a_failure_prv_50_prv_53() {
    assert!(RESPONSES.cut_everywhere() > 40_000);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(600))]

    #[test]
    fn damaged_streams_fail_closed_in_any_cut_prv_50_prv_51(
        which in 0usize..1_000,
        damage in proptest::collection::vec((0usize..6_000, 0u8..4, proptest::prelude::any::<u8>()), 1..4),
        cut in 0usize..6_000,
    ) {
        RESPONSES.damage(which, &damage, cut);
    }
}
