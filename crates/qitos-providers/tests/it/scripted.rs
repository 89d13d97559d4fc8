//! The scripted model (PRV-105 to PRV-108).

use std::time::Duration;

use qitos_contracts::log::*;
use qitos_contracts::model::*;
use qitos_providers::TimeLimits;
use qitos_providers::openai_chat::ChatOptions;
use qitos_providers::scripted::{
    Answer, BodyEnd, Gate, Recording, ScriptError, ScriptedModel, Step,
};
use serde_json::{Map, Value, json};

use super::setup::{Deltas, items, run, view_of};

fn view(model: &dyn Model, items: ItemList) -> RequestView {
    view_of(items, &["add"], (**model.target()).clone())
}

fn payload(model: &dyn Model, items: ItemList) -> WirePayload {
    let view = view(model, items);
    model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap()
        .0
}

/// One request, streamed or not, decoded.
fn ask(model: &dyn Model, streaming: bool) -> Result<DecodedResponse, Box<ProviderFailure>> {
    let empty = ItemList::new;
    let mut deltas = Deltas::default();
    let sink = streaming.then_some(&mut deltas as &mut dyn DeltaSink);
    match run(model.send(payload(model, empty()), sink)) {
        Ok(raw) => {
            assert_eq!(raw.streamed, streaming);
            let decoded = model.codec().decode(raw, &view(model, empty()))?;
            if streaming {
                assert_eq!(deltas.0.concat(), decoded.text());
            }
            Ok(decoded)
        }
        Err(ProviderError::Failure(failure)) => Err(failure),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_goes_through_codec_and_stream_rules_either_way_prv_108() {
    let answer = || {
        Answer::call("one", "add", "{\"a\":2}")
            .and_call("two", "add", "{\"a\":3}")
            .with_text("let me add")
            .with_reasoning("hm")
            .with_usage(7, 3)
    };
    let model =
        ScriptedModel::new("m", vec![Step::answer(answer()), Step::answer(answer())]).unwrap();
    let whole = ask(&model, false).unwrap();
    let streamed = ask(&model, true).unwrap();
    assert_eq!(whole, streamed);
    assert_eq!(whole.text(), "let me add");
    assert_eq!(whole.call_count(), 2);
    assert_eq!(whole.usage.unwrap().total_tokens, Some(10));
    assert_eq!(whole.finish.reason, FinishReason::ToolCalls);
    assert_eq!(model.connections(), (2, 2));
}

#[test]
fn a_script_cannot_lie_past_the_parser_prv_108() {
    let bad = Answer::call("one", "add", "{\"a\":");
    let model = ScriptedModel::new(
        "m",
        vec![
            Step::answer(bad.clone()),
            Step::answer(bad),
            Step::answer(Answer::text("x").with_finish("strange")),
            Step::events(["{\"choices\":[{\"delta\":{\"content\":\"x\"}}]}"]),
        ],
    )
    .unwrap();
    let violation = |streaming| {
        let failure = ask(&model, streaming).unwrap_err();
        failure.redacted_details.violation.unwrap()
    };
    assert_eq!(violation(true), Violation::IncompleteToolInput);
    let whole = ask(&model, false).unwrap();
    assert!(matches!(
        &whole.parts[0],
        ResponsePart::ToolCall {
            parse_status: ParseStatus::MalformedRaw,
            ..
        }
    ));
    assert_eq!(violation(true), Violation::UnknownTerminal);
    assert_eq!(violation(true), Violation::MissingTerminal);
}

#[test]
fn every_kind_of_step_gives_what_it_says_prv_107() {
    let failure = ProviderFailure::new(
        &Target::new("fake", "m", "scripted", "chat_completions").unwrap(),
        FailureCategory::RateLimit,
        "provider_rate_limited",
        FailureStage::RateLimit,
        RequestSent::Yes,
        "scripted",
    );
    let body =
        b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n";
    let (left, right) = body.split_at(20);
    let cut = || vec![left.to_vec(), right.to_vec()];
    let model = ScriptedModel::new(
        "m",
        vec![
            Step::failure(failure.clone()),
            Step::status(429, vec![("retry-after".into(), "2".into())], "{}"),
            Step::bytes(cut(), BodyEnd::Clean),
            Step::bytes(cut(), BodyEnd::Reset),
            Step::bytes(vec![left.to_vec()], BodyEnd::Hang),
            Step::hang(),
        ],
    )
    .unwrap()
    .with_time_limits(TimeLimits {
        total: Duration::from_secs(20),
        ..TimeLimits::default()
    });
    assert_eq!(model.undelivered_steps(), Some(6));
    assert_eq!(*ask(&model, true).unwrap_err(), failure);
    let limited = ask(&model, true).unwrap_err();
    assert_eq!(limited.retry_after(), Some(Duration::from_secs(2)));
    assert_eq!(ask(&model, true).unwrap().text(), "Hi");
    assert_eq!(
        ask(&model, true).unwrap_err().error_code,
        "provider_connection_failed"
    );
    for sent in [RequestSent::Yes, RequestSent::Maybe] {
        let timeout = ask(&model, true).unwrap_err();
        assert_eq!(timeout.error_code, "provider_timeout");
        assert_eq!(timeout.request_sent, sent);
    }
    let exhausted = ask(&model, true).unwrap_err();
    assert_eq!(exhausted.error_code, "x.fake.script_exhausted");
    assert_eq!(exhausted.request_sent, RequestSent::No);
    assert_eq!(model.undelivered_steps(), Some(0));
    assert_eq!(model.request_count(), 6);
    assert_eq!(model.connections(), (5, 5));
}

#[test]
fn requests_are_recorded_whole_or_only_the_newest_prv_107() {
    let steps = || (0..4).map(|_| Step::answer(Answer::text("x"))).collect();
    for (recording, expected) in [
        (Recording::All, 4),
        (Recording::Last(2), 2),
        (Recording::Last(0), 0),
    ] {
        let model = ScriptedModel::new("m", steps())
            .unwrap()
            .with_recording(recording);
        for _ in 0..4 {
            ask(&model, true).unwrap();
        }
        assert_eq!(
            (model.requests().len(), model.request_count()),
            (expected, 4)
        );
        for body in model.requests() {
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["stream"], true);
            assert_eq!(body["tools"][0]["function"]["name"], "add");
        }
    }
}

#[test]
fn a_gate_orders_events_across_requests_prv_107() {
    let gate = Gate::new();
    let model = ScriptedModel::new(
        "m",
        vec![
            Step::answer(Answer::text("first asked")).after(&gate),
            Step::answer(Answer::text("second asked")),
        ],
    )
    .unwrap();
    let order = run(async {
        let order = std::sync::Mutex::new(Vec::new());
        let first = async {
            let raw = model
                .send(payload(&model, ItemList::new()), None)
                .await
                .unwrap();
            order
                .lock()
                .unwrap()
                .push(raw.body["choices"][0]["message"]["content"].clone());
        };
        let second = async {
            let raw = model
                .send(payload(&model, ItemList::new()), None)
                .await
                .unwrap();
            order
                .lock()
                .unwrap()
                .push(raw.body["choices"][0]["message"]["content"].clone());
            gate.open();
        };
        tokio::join!(first, second);
        order.into_inner().unwrap()
    });
    assert_eq!(order, ["second asked", "first asked"]);
}

fn conversation(answers: usize) -> ItemList {
    let mut bodies = Vec::new();
    for index in 0..=answers {
        let content = vec![ContentBlock::text(format!(
            "\"role\":\"assistant\" {index}"
        ))];
        bodies.push(ItemBody::User(UserItem {
            content,
            metadata: Map::new(),
        }));
        if index < answers {
            bodies.push(ItemBody::Assistant(AssistantItem {
                parts: vec![AssistantPart::Content(ContentBlock::text("said"))],
                ..AssistantItem::default()
            }));
        }
    }
    items(bodies)
}

#[test]
fn a_configured_script_answers_by_the_conversation_so_a_resumed_session_goes_on_prv_106() {
    let script = json!([
        {"tool": "summarize_note", "args": {"index": 0, "style": "a, (b)"}},
        {"tool": "summarize_note", "args": {}, "thought": "once more"},
        {"final": "Indexed 2 notes: Session, Artifact."},
    ]);
    let options = ChatOptions {
        extra_body: json!({"script": script, "seed": 1})
            .as_object()
            .unwrap()
            .clone(),
        ..ChatOptions::default()
    };
    let text = |answers: usize| {
        // A new process each time: nothing but the conversation tells where the script stands.
        let model = ScriptedModel::from_script("notes-fake", &script, options.clone()).unwrap();
        let raw = run(model.send(payload(&model, conversation(answers)), None)).unwrap();
        let sent = String::from_utf8(model.requests()[0].clone()).unwrap();
        assert!(!sent.contains("summarize_note") && sent.contains("\"seed\":1"));
        raw.body["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let first = "Thought: the script says so.\nAction: summarize_note(index=0, style=\"a, (b)\")";
    assert_eq!(text(0), first);
    assert_eq!(text(1), "Thought: once more\nAction: summarize_note()");
    assert_eq!(text(2), "Final Answer: Indexed 2 notes: Session, Artifact.");
    assert_eq!(text(3), first, "the next task begins the script again");
}

#[test]
fn a_script_without_an_end_is_exhausted_and_a_wrong_one_names_its_item_prv_107() {
    let script = json!([{"tool": "add", "args": {"a": 1}}]);
    let model = ScriptedModel::from_script("m", &script, ChatOptions::default()).unwrap();
    let outcome = run(model.send(payload(&model, conversation(1)), None));
    assert!(matches!(outcome, Err(ProviderError::Failure(failure))
        if failure.error_code == "x.fake.script_exhausted"));
    for (wrong, expected) in [
        (json!(null), ScriptError::NotAList),
        (json!([]), ScriptError::NotAList),
        (json!([{"final": "x"}, "y"]), ScriptError::Item { index: 1 }),
        (json!([{"tool": "a b"}]), ScriptError::Item { index: 0 }),
        (
            json!([{"tool": "a", "args": [1]}]),
            ScriptError::Item { index: 0 },
        ),
        (
            json!([{"tool": "a", "args": {"b c": 1}}]),
            ScriptError::Item { index: 0 },
        ),
        (
            json!([{"tool": "a", "more": 1}]),
            ScriptError::Item { index: 0 },
        ),
        (json!([{"final": 1}]), ScriptError::Item { index: 0 }),
    ] {
        let error = ScriptedModel::from_script("m", &wrong, ChatOptions::default()).unwrap_err();
        assert_eq!(error, expected, "{wrong}");
    }
    assert!(ScriptedModel::new(" ", Vec::new()).is_err());
}

#[test]
fn steps_can_be_made_on_demand() {
    let model = ScriptedModel::from_fn("m", |index| {
        (index < 2).then(|| Step::answer(Answer::text(format!("answer {index}"))))
    })
    .unwrap();
    assert_eq!(ask(&model, false).unwrap().text(), "answer 0");
    assert_eq!(ask(&model, true).unwrap().text(), "answer 1");
    assert_eq!(
        ask(&model, true).unwrap_err().error_code,
        "x.fake.script_exhausted"
    );
}
