//! The envelope, strict in both schemas (sections 4 and 5), and content of any kind (K34).

use serde_json::json;

use super::*;

fn sealed_with(change: impl FnOnce(&mut EnvelopeHeader)) -> Result<Root, SnapshotError> {
    let store = TestStore::new();
    let mut header = store.header();
    change(&mut header);
    let sealed = SnapshotWriter::new().seal(&header)?;
    Root::parse(sealed.root)
}

/// Replaces text in a root and gives it the digest that then belongs to it.
fn forged(from: &str, to: &str) -> Result<Root, SnapshotError> {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    writer
        .replace(&ComponentSpec::FORK_LINEAGE, item(1))
        .unwrap();
    append(&mut writer, [1]);
    store.commit(&mut writer);
    let text = String::from_utf8(store.roots[0].bytes().to_vec()).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    let text = text.replacen(from, to, 1);
    let (before, rest) = text.split_once(",\"integrity\":{").unwrap();
    let (_, after) = rest.split_once('}').unwrap();
    let digest = Digest::of_parts(&[b"qitos.snapshot/v3\0", before.as_bytes(), after.as_bytes()]);
    let text = format!(
        "{before},\"integrity\":{{\"algorithm\":\"sha256-tree/v1\",\"digest\":\"{digest}\"}}{after}"
    );
    Root::parse(text.into_bytes().into())
}

#[test]
fn a_root_gives_back_every_fact_of_its_header() {
    let ids = CountingIds::new(3);
    let parent = ParentRef {
        snapshot_id: SnapshotId::generate(&ids),
        checkpoint_id: CheckpointId::generate(&ids),
        root_digest: Digest::of(b"parent"),
    };
    let references = ResolverReferences::new(vec![
        ResolverReference::new(
            ResolverNamespace::CheckpointStore,
            DEFAULT_STORE_REFERENCE,
            capability::CHECKPOINT_SESSION,
            1,
        )
        .unwrap(),
    ])
    .unwrap();
    let time = Timestamp::from_micros(5);
    let mut expected = None;
    let root = sealed_with(|header| {
        header.head_generation = u64::MAX;
        header.lifecycle = Lifecycle::Paused;
        header.parent = Some(parent.clone());
        header.resolver_references = references.clone();
        header.timing.pause_requested_at = Some(time);
        header.timing.safe_boundary_at = Some(time);
        expected = Some(header.clone());
    })
    .unwrap();
    let header = expected.unwrap();
    assert_eq!(root.snapshot_id(), &header.snapshot_id);
    assert_eq!(root.session_id(), &header.session_id);
    assert_eq!(root.head_generation(), u64::MAX);
    assert_eq!(root.lifecycle(), Lifecycle::Paused);
    assert_eq!(root.created_at(), header.created_at);
    assert_eq!(root.timing(), &header.timing);
    assert_eq!(root.resolver_references(), &references);
    assert_eq!(root.parent(), Some(&parent));
}

#[test]
fn the_root_is_the_canonical_object_of_section_4() {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    writer
        .replace(&ComponentSpec::TRACE_LINEAGE, item(1))
        .unwrap();
    append(&mut writer, [1]);
    store.commit(&mut writer);
    let root = store.roots.last().unwrap();
    let value = canonical_json::read_canonical(root.bytes()).unwrap();
    let keys: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        [
            "artifact_refs",
            "components",
            "created_at",
            "head_generation",
            "integrity",
            "lifecycle",
            "parent",
            "resolver_references",
            "schema_version",
            "session_id",
            "snapshot_id",
            "timing"
        ]
    );
    assert_eq!(value["components"][0]["slot"], "conversation");
    assert_eq!(
        value["components"][1],
        json!({
            "bytes": 7,
            "digest": Digest::of(&item(1)).to_hex(),
            "layout": "inline",
            "owner": "qitos.session",
            "payload": {"i": 1},
            "required": true,
            "schema_version": "qitos.session.trace_lineage/v1",
            "slot": "trace_lineage",
        })
    );
    // The digest is that of the canonical root without `integrity`.
    let mut without = value.clone();
    without.as_object_mut().unwrap().remove("integrity");
    let digest = Digest::of_parts(&[b"qitos.snapshot/v3\0", &canonical(&without)]);
    assert_eq!(value["integrity"]["digest"], digest.to_hex());
    assert_eq!(root.digest(), digest);
}

#[test]
fn times_of_a_pause_stand_only_where_the_lifecycle_has_them() {
    let time = Some(Timestamp::from_micros(5));
    for lifecycle in Lifecycle::ALL {
        let root = sealed_with(|header| {
            header.lifecycle = lifecycle;
            header.timing.pause_requested_at = time;
            header.timing.safe_boundary_at = time;
        })
        .unwrap();
        let pausing = matches!(lifecycle, Lifecycle::Pausing | Lifecycle::Paused);
        assert_eq!(root.timing().pause_requested_at.is_some(), pausing);
        assert_eq!(
            root.timing().safe_boundary_at.is_some(),
            lifecycle == Lifecycle::Paused
        );
    }
    let refused = forged(
        "\"pause_requested_at\":null",
        "\"pause_requested_at\":\"2026-01-01T00:00:00+00:00\"",
    );
    assert_eq!(code(refused), "corrupt_snapshot");
}

#[test]
fn ses_16_decoding_of_a_root_is_strict() {
    assert!(forged("running", "paused").is_ok());
    for (from, to, expected) in [
        (
            "{\"artifact_refs\"",
            "{\"a\":1,\"artifact_refs\"",
            "corrupt_snapshot",
        ),
        ("\"artifact_refs\":[],", "", "corrupt_snapshot"),
        (
            "\"head_generation\":0",
            "\"head_generation\":true",
            "corrupt_snapshot",
        ),
        (
            "\"head_generation\":0",
            "\"head_generation\":-1",
            "corrupt_snapshot",
        ),
        (
            "\"head_generation\":0",
            "\"head_generation\":0.0",
            "corrupt_snapshot",
        ),
        (
            "\"head_generation\":0",
            "\"head_generation\":00",
            "corrupt_snapshot",
        ),
        ("running", "superseded", "corrupt_snapshot"),
        (
            "\"schema_version\":3",
            "\"schema_version\":2",
            "unsupported_snapshot_schema",
        ),
        (
            "\"schema_version\":3",
            "\"schema_version\":4",
            "unsupported_snapshot_schema",
        ),
        (
            "{\"kind\":\"session\"",
            "{\"kind\":\"run\"",
            "invalid_identity_relationship",
        ),
        (
            "{\"kind\":\"session\",",
            "{",
            "invalid_identity_relationship",
        ),
        (
            "\"value\":\"session_",
            "\"value\":\"Session_",
            "invalid_identity_relationship",
        ),
        (
            "{\"kind\":\"session\"",
            "{\"a\":1,\"kind\":\"session\"",
            "invalid_identity_relationship",
        ),
        (
            "\"value\":\"snapshot_",
            "\"value\":\"session_",
            "invalid_identity_relationship",
        ),
        (
            "\"required\":false",
            "\"required\":null",
            "corrupt_snapshot",
        ),
        ("\"required\":false,", "", "corrupt_snapshot"),
        (
            "\"slot\":\"fork_lineage\"",
            "\"slot\":\"Fork\"",
            "corrupt_snapshot",
        ),
        (
            "\"slot\":\"fork_lineage\"",
            "\"slot\":\"fork_lineage\",\"x\":1",
            "corrupt_snapshot",
        ),
        ("fork_lineage/v1", "fork_lineage/v0", "corrupt_snapshot"),
        (
            "\"layout\":\"inline\"",
            "\"layout\":\"map\"",
            "corrupt_snapshot",
        ),
        (
            "\"payload\":{\"i\":1}",
            "\"payload\":[{\"i\":1}]",
            "corrupt_snapshot",
        ),
        (
            "\"payload\":{\"i\":1}",
            "\"payload\":{\"i\":2}",
            "component_digest_mismatch",
        ),
        (
            "\"payload\":{\"i\":1}",
            "\"payload\":{\"i\":11}",
            "corrupt_snapshot",
        ),
        (
            "\"payload\":{\"i\":1}",
            "\"payload\":{ \"i\":1}",
            "corrupt_snapshot",
        ),
        (
            "2026-01-01T00:00:00+00:00",
            "2026-01-01",
            "corrupt_snapshot",
        ),
        ("\"parent\":null", "\"parent\":{}", "corrupt_snapshot"),
        (
            "\"resolver_references\":[]",
            "\"resolver_references\":{}",
            "corrupt_snapshot",
        ),
        (
            "\"artifact_refs\":[]",
            "\"artifact_refs\":[1]",
            "corrupt_snapshot",
        ),
        (
            "\"artifact_refs\":[]",
            "\"artifact_refs\":[{\"artifact_id\":\"a\"},{\"artifact_id\":\"a\"}]",
            "corrupt_snapshot",
        ),
    ] {
        assert_eq!(code(forged(from, to)), expected, "{from} → {to}");
    }
    let newer = SnapshotError::UnsupportedSnapshotSchema { schema_version: 9 };
    let root = Root::parse(Arc::from(&b"{\"schema_version\":9}"[..]));
    assert_eq!(root.unwrap_err(), newer);
    let flat = FlatSnapshot::parse(b"{\"schema_version\":9}");
    assert_eq!(flat, Err(newer));
}

#[test]
fn ses_16_components_are_checked_against_the_registry() {
    let registry = ComponentRegistry::standard();
    let root = forged("qitos.session.fork", "qitos.session.fork").unwrap();
    assert_eq!(
        code(SnapshotReader::open(root, &registry)),
        "missing_required_component"
    );
    for (from, to, expected) in [
        (
            "qitos.session\"",
            "other.owner\"",
            "unknown_component_owner",
        ),
        (
            "fork_lineage/v1",
            "fork_lineage/v2",
            "unsupported_component_schema",
        ),
        (
            "\"required\":false",
            "\"required\":true",
            "unsupported_component_schema",
        ),
    ] {
        // Nothing is known of a newer component, so nothing of the snapshot is dropped or guessed (SES-51).
        let root = forged(from, to);
        let Ok(root) = root else {
            // A new owner may break the order of components; the root says so.
            assert_eq!(code(root), "corrupt_snapshot");
            continue;
        };
        assert_eq!(code(SnapshotReader::open(root, &registry)), expected);
    }
    // A store without codecs still follows the references, but cannot decode.
    let root = forged("running", "paused").unwrap();
    let mut reader = SnapshotReader::without_codecs(root);
    assert!(reader.known_references().is_ok());
    assert_eq!(code(reader.materialise()), "corrupt_snapshot");
    assert_eq!(
        code(SnapshotWriter::from_root(&mut reader).map(|_| ())),
        "corrupt_snapshot"
    );
}

#[test]
fn flat_snapshots_round_trip_and_decode_strictly() {
    let mut store = TestStore::new();
    let header = store.header();
    let components = vec![
        FlatComponent::new(&ComponentSpec::FORK_LINEAGE, item(1)),
        FlatComponent::new(&ComponentSpec::CONVERSATION, item(2)),
    ];
    let artifact = canonical(&json!({"artifact_id": "sha256:1"})).into();
    let flat = FlatSnapshot::new(&header, vec![artifact], components);
    let bytes = flat.to_bytes();
    assert_eq!(FlatSnapshot::parse(&bytes), Ok(flat.clone()));
    assert_eq!(
        flat.payload(&ComponentSpec::FORK_LINEAGE),
        Some(&item(1)[..])
    );
    assert_eq!(
        code(flat.resolve_components(&ComponentRegistry::standard())),
        "missing_required_component"
    );
    let text = String::from_utf8(bytes.clone()).unwrap();
    let resigned = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        let text = text.replacen(from, to, 1);
        let (before, rest) = text.split_once(",\"integrity\":{").unwrap();
        let (_, after) = rest.split_once('}').unwrap();
        let digest = Digest::of_parts(&[before.as_bytes(), after.as_bytes()]);
        let integrity = format!("{{\"algorithm\":\"sha256\",\"digest\":\"{digest}\"}}");
        FlatSnapshot::parse(format!("{before},\"integrity\":{integrity}{after}").as_bytes())
    };
    assert!(resigned("running", "paused").is_ok());
    for (from, to, expected) in [
        (
            "\"schema_version\":2",
            "\"schema_version\":3",
            "unsupported_snapshot_schema",
        ),
        (
            "\"payload\":{\"i\":1}",
            "\"payload\":{\"i\":2}",
            "component_digest_mismatch",
        ),
        (
            "\"payload\":{\"i\":1}",
            "\"payload\":[]",
            "corrupt_snapshot",
        ),
        ("\"lifecycle\"", "\"x\":1,\"lifecycle\"", "corrupt_snapshot"),
        (
            "{\"kind\":\"session\"",
            "{\"kind\":\"agent\"",
            "invalid_identity_relationship",
        ),
        (
            "\"owner\":\"qitos.session\"",
            "\"owner\":\"\"",
            "corrupt_snapshot",
        ),
    ] {
        assert_eq!(code(resigned(from, to)), expected, "{from} → {to}");
    }
    for at in (0..bytes.len()).step_by(3) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        assert!(FlatSnapshot::parse(&flipped).is_err());
    }
    // The components of schema 2 may stand in any order, but once.
    let twice = FlatSnapshot {
        components: vec![flat.components[0].clone(), flat.components[0].clone()],
        ..flat.clone()
    };
    assert_eq!(
        code(FlatSnapshot::parse(&twice.to_bytes())),
        "corrupt_snapshot"
    );
    let mut turned = flat;
    turned.components.reverse();
    assert_eq!(FlatSnapshot::parse(&turned.to_bytes()), Ok(turned));
    store.roots.clear();
}

#[test]
fn k34_content_of_any_kind_round_trips_byte_for_byte() {
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let contents = [
        json!("\u{0}nul\u{0}"),
        json!("bearer abc /etc/passwd C:\\Users password=1"),
        json!({"\u{ffff}": 1, "\u{1f600}": 2, "é": 3, "Z": 4}),
        json!([1e16, -0.0, 0.0001, 1e-5, 1.0, 1, u64::MAX, i64::MIN, 5e-324]),
        json!("x".repeat(1 << 20)),
        serde_json::from_str(&deep).unwrap(),
    ];
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    let bytes: Vec<Vec<u8>> = contents.iter().map(canonical).collect();
    writer
        .append(&ComponentSpec::CONVERSATION, ITEMS, &bytes)
        .unwrap();
    for (index, content) in bytes.iter().enumerate() {
        let pointer = format!("/\u{0}part~1{index}");
        writer
            .map_blob(
                &ComponentSpec::AGENT_STATE,
                &pointer,
                content.as_slice().into(),
            )
            .unwrap();
        let key = format!("\u{0}bearer {index} \u{1f600}");
        writer
            .upsert(
                &ComponentSpec::CONVERSATION,
                RECEIPTS,
                [(key.as_str(), Some(content.as_slice()))],
            )
            .unwrap();
    }
    store.commit(&mut writer);
    let mut reader = store.reader();
    let items = store
        .resolve(&mut reader, |reader| {
            reader.log_tail(&ComponentSpec::CONVERSATION, ITEMS, 100)
        })
        .unwrap();
    assert_eq!(items.len(), contents.len());
    for (read, written) in items.iter().zip(&bytes) {
        assert_eq!(**read, **written);
    }
    let blob = store
        .resolve(&mut reader, |reader| {
            reader.map_blob(&ComponentSpec::AGENT_STATE, "/\u{0}part~12")
        })
        .unwrap();
    assert_eq!(blob.as_deref(), Some(&bytes[2][..]));
    let conversation = store.payload(&ComponentSpec::CONVERSATION).unwrap();
    assert_eq!(
        canonical(&conversation["steering_receipts"]),
        canonical(&Value::Array(contents.to_vec()))
    );
    let flat = store.flat();
    assert_eq!(FlatSnapshot::parse(&flat.to_bytes()), Ok(flat));
    store.deep_verify().unwrap();
}

#[test]
fn what_is_not_canonical_is_refused_before_it_is_taken() {
    let mut writer = SnapshotWriter::new();
    let spec = ComponentSpec::CONVERSATION;
    for bytes in [
        &b"1 "[..],
        b"{\"b\":1,\"a\":1}",
        b"1,2",
        b"\xff",
        b"",
        b"{} {}",
    ] {
        assert!(writer.append(&spec, ITEMS, [bytes]).is_err());
        assert!(
            writer
                .upsert(&spec, RECEIPTS, [("a", Some(bytes))])
                .is_err()
        );
        assert!(writer.map_blob(&spec, "/a", bytes.into()).is_err());
        assert!(writer.map_rest(&spec, bytes.to_vec()).is_err());
        assert!(
            writer
                .replace(&ComponentSpec::SANDBOX, bytes.to_vec())
                .is_err()
        );
    }
    assert!(
        writer
            .replace(&ComponentSpec::SANDBOX, b"[]".to_vec())
            .is_err()
    );
    assert!(writer.map_rest(&spec, b"1".to_vec()).is_err());
    for pointer in ["", "a", "/~2", "/exchange_log", "/exchange_log/items/x"] {
        let blob = writer.map_blob(&spec, pointer, Arc::from(&b"1"[..]));
        assert_eq!(code(blob), "corrupt_snapshot", "{pointer}");
    }
    // The kind of a part does not change.
    assert!(writer.map_blob(&spec, ITEMS, Arc::from(&b"1"[..])).is_err());
    writer
        .map_blob(&spec, "/blob", Arc::from(&b"1"[..]))
        .unwrap();
    assert!(writer.upsert(&spec, "/blob", []).is_err());
    assert_eq!(writer.log_count(&spec, ITEMS), Some(0));
    assert_eq!(writer.log_count(&spec, "/blob"), None);
}
