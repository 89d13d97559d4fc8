//! Every row of tables S and C: one fixture in every split and cut of the replay harness.

use qitos_contracts::model::Model;
use qitos_providers::openai_chat::{ChatProfile, ChatSettings, MappedFinish};
use serde_json::Value;

use super::replay::Dialect;
use super::setup::target;

const CHAT: Dialect = Dialect {
    folder: "openai-chat",
    target,
    model: |expected, transport| {
        let mut settings = ChatSettings::new(target(), "https://offline.invalid/v1");
        settings.profile = profile(expected);
        let model: Box<dyn Model> = Box::new(settings.with_transport(transport).unwrap());
        model
    },
    is_terminal: |data| {
        serde_json::from_str::<Value>(data).is_ok_and(|value| {
            value["choices"][0]["finish_reason"]
                .as_str()
                .is_some_and(|finish| !finish.is_empty())
        })
    },
    is_end_marker: |data| data == "[DONE]",
};

fn profile(expected: &Value) -> ChatProfile {
    let mut profile = ChatProfile::default();
    if let Some(wanted) = expected.get("profile") {
        profile.stop_may_carry_tool_calls = wanted
            .get("stop_may_carry_tool_calls")
            .is_some_and(|value| value == true);
        if wanted.get("finish_reasons").is_some() {
            profile
                .finish_reasons
                .insert("strange".into(), MappedFinish::Stop);
        }
    }
    profile
}

#[test]
fn every_row_of_tables_s_and_c_has_a_fixture() {
    CHAT.has_every_row("C", 31);
    CHAT.has_every_row("S", 13);
}

#[test]
fn a_fixture_gives_its_verdict_however_it_is_cut_prv_51() {
    assert!(CHAT.replay_in_every_split() > 20_000);
}

#[test]
fn a_successful_stream_cut_anywhere_before_its_terminal_is_a_failure_prv_50_prv_53() {
    assert!(CHAT.cut_everywhere() > 20_000);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_streams_fail_closed_in_any_cut_prv_50_prv_51(
        which in 0usize..1_000,
        damage in proptest::collection::vec((0usize..4_000, 0u8..4, proptest::prelude::any::<u8>()), 1..4),
        cut in 0usize..4_000,
    ) {
        CHAT.damage(which, &damage, cut);
    }
}
