//! Golden vectors and the strict reader.

use serde_json::{Value, json};

use super::*;
use crate::error::ContractError as _;

fn golden(kind: RecordKind, id: &str, sequence: u64, payload: &str) -> Arc<SealedRecord> {
    let occurred: RecordTime = "2026-01-01T00:00:00+00:00".parse().unwrap();
    let mut record = Record::new(kind, id, occurred);
    record.run_id = Some("run-1".into());
    record.session_id = Some("session-1".into());
    if kind == RecordKind::ModelResponse {
        record.step_id = Some(0);
    }
    record.payload = serde_json::from_str(payload).unwrap();
    record
        .seal_history(sequence, "2026-01-01T00:00:01+00:00".parse().unwrap())
        .unwrap()
}

fn vector_b() -> Arc<SealedRecord> {
    golden(
        RecordKind::Run,
        "rec-1",
        0,
        r#"{"status":"running","ratio":1e-7}"#,
    )
}

#[test]
fn vector_a_canonical_json() {
    // TRJ-11, TRJ-12
    let value: Value =
        serde_json::from_str("{\"é\":[1,2.0,1e-7,true,null],\"a\":\"\u{2028}\\u0001/\"}").unwrap();
    let bytes = crate::canonical_json::to_bytes(&value).unwrap();
    assert_eq!(
        String::from_utf8(bytes.clone()).unwrap(),
        "{\"a\":\"\u{2028}\\u0001/\",\"é\":[1,2.0,1e-07,true,null]}"
    );
    assert_eq!(
        Digest::of(&bytes).to_hex(),
        "f97802603eb3b5e893833f81944fbc96b5d65fd7311fc588dbabc759433585ce"
    );
}

#[test]
fn vector_b_record_bytes_and_digest() {
    // TRJ-2, TRJ-10
    let sealed = vector_b();
    // The 954 bytes that are hashed are those without `"digest":"…",`.
    assert_eq!(sealed.canonical_bytes().len(), 954 + 76);
    assert_eq!(
        sealed.digest().to_hex(),
        "e729a8625dda4e29821e9035ce5eb64ed340fc19ee09504533d1ec2bd21640c8"
    );
    assert!(crate::canonical_json::is_canonical(
        sealed.canonical_bytes()
    ));
    let value: Value = serde_json::from_slice(sealed.canonical_bytes()).unwrap();
    assert_eq!(value.as_object().unwrap().len(), 40);
    // Sealing the same facts as a new record gives the same bytes.
    let again = sealed
        .record()
        .clone()
        .seal(0, "2026-01-01T00:00:01Z".parse().unwrap())
        .unwrap();
    assert_eq!(again.canonical_bytes(), sealed.canonical_bytes());
}

#[test]
fn vector_d_projection() {
    // TRJ-20, TRJ-26
    let raw = golden(
        RecordKind::ModelResponse,
        "response-1",
        1,
        r#"{"text":"answer","authorization":"Bearer private-export-value","host_path":"/Users/example/private.json"}"#,
    );
    assert_eq!(
        raw.digest().to_hex(),
        "6567e2e9079f34a4042cb0a447e74462e28d267388266fbc7495d60963348296"
    );
    let before = raw.canonical_bytes().to_vec();
    let public = privacy::project_record(&raw, PrivacyView::RedactedPublic).unwrap();
    assert_eq!(
        public.digest().to_hex(),
        "923ce381d84b06dade8c16a3a5add79aeb8edfa169914893f37362488921b43f"
    );
    assert_eq!(raw.canonical_bytes(), before);
    let shown = SealedRecord::read(public.canonical_bytes()).unwrap();
    assert_eq!(shown.record(), public.record());
}

#[test]
fn reading_gives_back_what_was_written() {
    let sealed = vector_b();
    let read = SealedRecord::read(sealed.canonical_bytes()).unwrap();
    assert_eq!(*read, *sealed);

    let mut full = Record::new(RecordKind::ToolResult, "r:1", Timestamp::from_micros(5));
    full.tool_call_id = Some("call-1".into());
    full.attempt = Some(1);
    full.phase = Some("act one".into());
    full.monotonic_ns = Some(u64::MAX);
    full.artifact_refs = vec![ArtifactRef::of_body(
        "tool-result-output",
        "text/plain",
        b"body",
    )];
    full.loss.add("a", "payload", "c", 2);
    full.payload
        .insert("nested".into(), json!({"a": [1.5, {"b": null}]}));
    let sealed = full.seal(7, Timestamp::from_micros(6)).unwrap();
    assert_eq!(
        *SealedRecord::read(sealed.canonical_bytes()).unwrap(),
        *sealed
    );
}

/// Replaces text in vector (b) and gives it a fitting digest again.
fn altered(from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(vector_b().canonical_bytes().to_vec()).unwrap();
    assert!(text.contains(from), "{from}");
    let text = text.replacen(from, to, 1);
    let members = span::object_members(text.as_bytes()).unwrap();
    let digest = span::digest_without(text.as_bytes(), &members, &[b"digest"]);
    text.replace(&vector_b().digest().to_hex(), &digest.to_hex())
        .into_bytes()
}

#[track_caller]
fn refused(bytes: &[u8], code: &str) {
    assert_eq!(SealedRecord::read(bytes).unwrap_err().code(), code);
}

#[test]
fn the_reader_is_strict() {
    // TRJ-1
    refused(
        &altered(
            "qitos.trajectory/candidate-1",
            "qitos.trajectory/candidate-2",
        ),
        "unsupported_trajectory_schema",
    );
    // TRJ-3
    refused(
        &altered(
            r#","work_item_id":null"#,
            r#","work_item_id":null,"x":null"#,
        ),
        "unknown_record_field",
    );
    let fewer = altered(r#","work_item_id":null"#, "");
    let read = SealedRecord::read(&fewer).unwrap();
    assert_eq!(
        (read.record(), read.canonical_bytes()),
        (vector_b().record(), fewer.as_slice())
    );
    // TRJ-4
    for (from, to) in [
        (r#""sequence":0"#, r#""sequence":-1"#),
        (r#""sequence":0"#, r#""sequence":0.0"#),
        (r#""sequence":0"#, r#""sequence":null"#),
        (r#""attempt":null"#, r#""attempt":"1""#),
        (r#""record_id":"rec-1""#, r#""record_id":" ""#),
        (r#""record_provenance":{}"#, r#""record_provenance":[]"#),
        (r#""kind":"run""#, r#""kind":"Run""#),
        (r#""occurred_at":"2026"#, r#""occurred_at":"x026"#),
        (r#""artifact_refs":[]"#, r#""artifact_refs":[{}]"#),
        (r#""policy_id":"qitos.loss/none""#, r#""policy_id":null"#),
    ] {
        refused(&altered(from, to), "invalid_record_field");
    }
    let blank = SealedRecord::read(&altered(r#""phase":null"#, r#""phase":"  ""#)).unwrap();
    assert_eq!(blank.record().phase, None);
    // TRJ-9
    let unknown = altered(
        r#""occurred_at":"2026-01-01T00:00:00+00:00""#,
        r#""occurred_at":"unknown""#,
    );
    assert_eq!(
        SealedRecord::read(&unknown).unwrap().record().occurred_at,
        RecordTime::UNKNOWN
    );
    // TRJ-10
    let text = String::from_utf8(vector_b().canonical_bytes().to_vec()).unwrap();
    refused(
        text.replace("running", "stopped").as_bytes(),
        "record_integrity_mismatch",
    );
    // TRJ-12
    refused(
        &altered(r#""phase":null"#, r#""phase":null,"phase":null"#),
        "payload_not_json",
    );
    refused(&altered("1e-07", "1e-7"), "payload_not_json");
    // TRJ-13
    refused(
        &altered(r#""is_lossless":true"#, r#""is_lossless":false"#),
        "loss_inconsistent",
    );
    // TRJ-5 is not enforced on history.
    assert!(SealedRecord::read(&altered(r#""run_id":"run-1""#, r#""run_id":"/home/x""#)).is_ok());
}

#[test]
fn no_changed_byte_is_read_as_another_record() {
    let bytes = vector_b().canonical_bytes().to_vec();
    for position in 0..bytes.len() {
        for mask in [1u8, 0x20, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[position] ^= mask;
            assert!(
                SealedRecord::read(&changed).is_err(),
                "byte {position} mask {mask}"
            );
        }
        assert!(SealedRecord::read(&bytes[..position]).is_err());
    }
}

#[test]
fn numbers_that_are_no_json_are_refused_when_written() {
    // TRJ-11
    let mut record = Record::new(RecordKind::Session, "r", Timestamp::from_micros(0));
    let mut deep = Value::Null;
    for _ in 0..200 {
        deep = json!([deep]);
    }
    record.payload.insert("deep".into(), deep);
    assert_eq!(
        record
            .seal(0, Timestamp::from_micros(0))
            .unwrap_err()
            .code(),
        "payload_not_json"
    );
}

#[test]
fn the_same_fact_is_recognised_whatever_its_place() {
    // TRJ-42
    let first = vector_b();
    let elsewhere = first
        .record()
        .clone()
        .seal_history(9, RecordTime::from(Timestamp::from_micros(1)))
        .unwrap();
    assert!(first.same_fact(elsewhere.canonical_bytes()));
    let mut other = first.record().clone();
    other.payload.insert("more".into(), Value::Null);
    let other = other.seal_history(0, RecordTime::UNKNOWN).unwrap();
    assert!(!first.same_fact(other.canonical_bytes()));
    assert!(!first.same_fact(b"{"));
}

#[test]
fn a_gap_record_names_what_is_missing() {
    // SNK-12, decision 68
    let gap = Record::sink_gap("g", Timestamp::from_micros(0), "qitos.journal", 3, 5);
    assert_eq!(gap.announced_gap(), Some((3, 5)));
    assert_eq!(gap.payload.get("count"), Some(&json!(3)));
    assert_eq!(vector_b().record().announced_gap(), None);
}
