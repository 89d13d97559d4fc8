//! Closure (STO-50, K60), forks (STO-53) and references.

use super::*;

/// A store with one snapshot that has every kind of chunk, and a second commit that changes all of them.
fn every_kind() -> (TestStore, SealedSnapshot) {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    for generation in 0..4u64 {
        append(&mut writer, [generation]);
        if generation < 3 {
            store.commit(&mut writer);
        }
    }
    let long = serde_json::json!({"long": "x".repeat(MAXIMUM_INLINE)});
    writer
        .replace(&ComponentSpec::SANDBOX, canonical(&long))
        .unwrap();
    writer
        .map_blob(
            &ComponentSpec::CONVERSATION,
            "/last_request_view",
            Arc::from(&b"[1]"[..]),
        )
        .unwrap();
    let mut header = store.header();
    header.artifact_refs = (0..17)
        .map(|index| NewArtifactRef {
            artifact_id: format!("sha256:{index}").into(),
            canonical: canonical(&serde_json::json!({"artifact_id": format!("sha256:{index}")}))
                .into(),
        })
        .collect();
    let sealed = writer.seal(&header).unwrap();
    for kind in ChunkKind::ALL {
        assert!(sealed.chunks.iter().any(|chunk| chunk.kind() == kind));
    }
    (store, sealed)
}

const MAXIMUM_INLINE: usize = limits::MAXIMUM_INLINE_BYTES;

#[test]
fn k60_a_commit_that_lacks_any_one_chunk_is_refused_and_names_it() {
    let (mut store, sealed) = every_kind();
    for index in 0..sealed.chunks.len() {
        let mut lacking = sealed.clone();
        let chunk = lacking.chunks.remove(index);
        assert_eq!(
            store.accept(&lacking),
            Err(SnapshotError::MissingChunk {
                digests: vec![chunk.digest()]
            }),
            "{chunk:?}"
        );
    }
    store.accept(&sealed).unwrap();
    store.deep_verify().unwrap();
}

#[test]
fn k60_chunks_that_are_held_but_not_referenced_by_the_parent_are_refused() {
    // The chunks of another session, and those of an older snapshot of the same, do not close a commit.
    let (mut store, sealed) = every_kind();
    store.known = KnownReferences::none();
    let refused = store.accept(&sealed).unwrap_err();
    let SnapshotError::MissingChunk { digests } = refused else {
        panic!("{refused}")
    };
    // Three old leaves, which the new node names.
    assert_eq!(digests.len(), 3);
    assert!(
        digests
            .iter()
            .all(|digest| store.chunks.contains_key(digest))
    );
}

#[test]
fn a_missing_chunk_error_names_at_most_1000_digests() {
    for commits in [999u64, 1_000, 1_001] {
        let mut store = TestStore::new();
        let mut writer = SnapshotWriter::new();
        for index in 0..commits {
            let pointer = format!("/log{index}");
            writer
                .append(&ComponentSpec::AGENT_STATE, &pointer, [item(index)])
                .unwrap();
        }
        let header = store.header();
        let mut sealed = writer.seal(&header).unwrap();
        sealed
            .chunks
            .retain(|chunk| chunk.kind() != ChunkKind::Leaf);
        let Err(SnapshotError::MissingChunk { digests }) = store.accept(&sealed) else {
            panic!("accepted")
        };
        assert_eq!(digests.len() as u64, commits.min(1_000));
    }
}

#[test]
fn what_references_say_must_be_what_chunks_hold() {
    // A leaf with two items under an entry that says one; every sum above agrees with the entry.
    let leaf = Chunk::new(ChunkKind::Leaf, Arc::from(&b"[1,2]"[..]));
    let log = Chunk::new(
        ChunkKind::Log,
        format!(
            "{{\"bytes\":5,\"count\":1,\"fanout\":4,\"levels\":[[[\"{}\",1,5]]]}}",
            leaf.digest()
        )
        .into_bytes()
        .into(),
    );
    let map = Chunk::new(
        ChunkKind::Map,
        format!(
            "{{\"parts\":{{\"/a\":[\"log\",\"{}\",5]}},\"rest\":{{}}}}",
            log.digest()
        )
        .into_bytes()
        .into(),
    );
    for (bytes, chunks, expected) in [
        (5, vec![&leaf, &log, &map], "corrupt_snapshot"),
        (6, vec![&leaf, &log, &map], "corrupt_snapshot"),
        (5, vec![&log, &map], "missing_chunk"),
    ] {
        let mut store = TestStore::new();
        let entry = root::write_entry(
            &ComponentSpec::AGENT_STATE,
            Layout::Map,
            &map.digest(),
            bytes + map.bytes().len() as u64,
            None,
        );
        let (root, root_digest) = root::write_root(&store.header(), &entry, b"[]");
        let sealed = SealedSnapshot {
            root: root.into(),
            root_digest,
            chunks: chunks.into_iter().cloned().collect(),
            log_rewritten: false,
        };
        assert_eq!(code(store.accept(&sealed)), expected);
    }
}

#[test]
fn a_sent_blob_must_be_a_canonical_value_and_a_payload_an_object() {
    for (bytes, expected) in [(&b"{\"a\": 1}"[..], true), (b"[1]", true), (b"{}", false)] {
        let blob = Chunk::new(ChunkKind::Blob, bytes.into());
        let spec = ComponentSpec::SANDBOX;
        let length = bytes.len() as u64;
        let entry = root::write_entry(&spec, Layout::Blob, &blob.digest(), length, None);
        let mut store = TestStore::new();
        let (root, root_digest) = root::write_root(&store.header(), &entry, b"[]");
        let sealed = SealedSnapshot {
            root: root.into(),
            root_digest,
            chunks: vec![blob],
            log_rewritten: false,
        };
        let root = Root::parse(Arc::clone(&sealed.root)).unwrap();
        let checked = check_closure(&root, &sealed.chunks, &KnownReferences::none());
        assert_eq!(checked.is_err(), expected);
        assert_eq!(store.accept(&sealed).is_err(), expected);
    }
}

#[test]
fn sto_53_a_fork_sends_at_most_four_chunks_and_its_cost_does_not_depend_on_history() {
    let mut costs = Vec::new();
    for commits in [5u64, 500] {
        let mut store = TestStore::new();
        let mut writer = SnapshotWriter::new();
        for index in 0..commits {
            append(&mut writer, [index]);
            writer
                .map_blob(
                    &ComponentSpec::ENGINE_PROGRESS,
                    "/task",
                    Arc::from(&b"\"do it\""[..]),
                )
                .unwrap();
            writer
                .map_rest(&ComponentSpec::ENGINE_PROGRESS, item(index))
                .unwrap();
            store.commit(&mut writer);
        }
        let source = store.roots.last().unwrap().clone();
        let mut child = store.writer();
        child
            .map_rest(&ComponentSpec::ENGINE_PROGRESS, item(1))
            .unwrap();
        for spec in [ComponentSpec::TRACE_LINEAGE, ComponentSpec::FORK_LINEAGE] {
            child.replace(&spec, item(2)).unwrap();
        }
        let header = EnvelopeHeader {
            session_id: SessionId::generate(&CountingIds::new(9)),
            head_generation: 0,
            lifecycle: Lifecycle::Paused,
            parent: None,
            ..store.header()
        };
        let sealed = child.seal(&header).unwrap();
        assert!(sealed.chunks.len() <= 4, "{:?}", sealed.chunks);
        store.accept(&sealed).unwrap();
        assert_eq!(
            store
                .roots
                .last()
                .unwrap()
                .component("qitos.conversation", "conversation"),
            source.component("qitos.conversation", "conversation")
        );
        store.deep_verify().unwrap();
        costs.push((sealed.chunks.len(), sealed.total_bytes()));
    }
    assert_eq!(costs[0].0, costs[1].0);
    assert!(costs[1].1 <= costs[0].1 * 3 / 2);
}

#[test]
fn references_lead_from_the_root_to_every_chunk() {
    let (mut store, sealed) = every_kind();
    store.accept(&sealed).unwrap();
    let root = store.roots.last().unwrap();
    let mut pending: Vec<ChunkReference> = root.references().collect();
    let mut seen = std::collections::HashSet::new();
    while let Some((kind, digest)) = pending.pop() {
        let chunk = &store.chunks[&digest];
        assert_eq!(chunk.kind(), kind);
        if seen.insert(digest) {
            pending.extend(references(kind, chunk.bytes()).unwrap());
        }
    }
    // Of the earlier commits only logs and maps were replaced.
    for chunk in store
        .chunks
        .values()
        .filter(|chunk| !seen.contains(&chunk.digest()))
    {
        assert!(matches!(chunk.kind(), ChunkKind::Log | ChunkKind::Map));
    }
}

#[test]
fn sto_47_unchanged_components_keep_their_descriptors_and_send_nothing() {
    let (mut store, sealed) = every_kind();
    store.accept(&sealed).unwrap();
    let before = store.roots.last().unwrap().clone();
    let mut writer = store.writer();
    let again = store.commit(&mut writer);
    assert!(again.chunks.is_empty(), "{:?}", again.chunks);
    let after = store.roots.last().unwrap();
    for (before, after) in before.components().iter().zip(after.components()) {
        assert_eq!((before.digest, before.bytes), (after.digest, after.bytes));
    }
    // Giving the same content again sends nothing either.
    let long = serde_json::json!({"long": "x".repeat(MAXIMUM_INLINE)});
    writer
        .replace(&ComponentSpec::SANDBOX, canonical(&long))
        .unwrap();
    writer
        .map_blob(
            &ComponentSpec::CONVERSATION,
            "/last_request_view",
            Arc::from(&b"[1]"[..]),
        )
        .unwrap();
    append(&mut writer, []);
    assert!(store.commit(&mut writer).chunks.is_empty());
}
