//! Damage anywhere is found and never skipped (section 14, SES-20, STO-22); no input panics.

use proptest::prelude::*;

use super::*;

fn committed() -> TestStore {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    for index in 0..5 {
        append(&mut writer, [index]);
        writer
            .upsert(
                &ComponentSpec::CONVERSATION,
                RECEIPTS,
                [("a", Some(item(index).as_slice()))],
            )
            .unwrap();
        writer
            .map_blob(
                &ComponentSpec::ENGINE_PROGRESS,
                "/task",
                Arc::from(&b"\"task\""[..]),
            )
            .unwrap();
        writer
            .replace(&ComponentSpec::SANDBOX, item(index))
            .unwrap();
        store.commit(&mut writer);
    }
    store
}

#[test]
fn k45_any_flipped_bit_of_a_root_is_corrupt_snapshot() {
    let store = committed();
    let root = store.roots.last().unwrap();
    for at in 0..root.bytes().len() {
        for bit in [0, 1, 5, 7] {
            let mut bytes = root.bytes().to_vec();
            bytes[at] ^= 1 << bit;
            let error = Root::parse(bytes.into()).unwrap_err();
            assert!(
                matches!(
                    error.code(),
                    "corrupt_snapshot"
                        | "invalid_identity_relationship"
                        | "unsupported_snapshot_schema"
                ),
                "byte {at}, bit {bit}: {error}"
            );
        }
    }
}

#[test]
fn a_root_that_is_cut_or_zeroed_anywhere_is_refused() {
    let store = committed();
    let bytes = store.roots.last().unwrap().bytes().clone();
    for at in 0..bytes.len() {
        assert!(Root::parse(bytes[..at].into()).is_err());
        let mut zeroed = bytes.to_vec();
        let end = zeroed.len().min(at + 16);
        zeroed[at..end].fill(0);
        assert!(Root::parse(zeroed.into()).is_err());
    }
    assert_eq!(
        code(Root::parse_expecting(bytes, &Digest::ZERO)),
        "corrupt_snapshot"
    );
}

#[test]
fn k45_any_flipped_bit_of_a_chunk_changes_its_digest() {
    let store = committed();
    for chunk in store.chunks.values() {
        for at in 0..chunk.bytes().len() {
            let mut bytes = chunk.bytes().to_vec();
            bytes[at] ^= 1;
            let read = Chunk::verified(chunk.kind(), bytes.into(), &chunk.digest());
            assert_eq!(
                read,
                Err(SnapshotError::chunk("its bytes do not have its digest").at(chunk.digest()))
            );
        }
        for kind in ChunkKind::ALL {
            let read = Chunk::verified(kind, Arc::clone(chunk.bytes()), &chunk.digest());
            assert_eq!(read.is_ok(), kind == chunk.kind());
        }
    }
}

#[test]
fn k46_each_missing_chunk_is_corrupt_snapshot_and_named() {
    let mut store = committed();
    let chunks = store.chunks.clone();
    let digests: Vec<Digest> = chunks.keys().copied().collect();
    for digest in digests {
        store.chunks.remove(&digest);
        match store.deep_verify() {
            // An older log or map that the newest root does not reach.
            Ok(_) => assert!(matches!(
                chunks[&digest].kind(),
                ChunkKind::Log | ChunkKind::Map
            )),
            Err(error) => {
                assert_eq!(error, SnapshotError::chunk("it is missing").at(digest));
                let mut reader = store.reader();
                assert_eq!(
                    store.resolve(&mut reader, SnapshotReader::materialise),
                    Err(error)
                );
            }
        }
        store.chunks.insert(digest, chunks[&digest].clone());
    }
}

#[test]
fn ses_20_chunks_that_parse_without_being_canonical_are_refused() {
    let digest = Digest::ZERO;
    for (kind, text) in [
        (ChunkKind::Leaf, "[1, 2]".to_owned()),
        (ChunkKind::Leaf, "[1]\n".to_owned()),
        (ChunkKind::Leaf, "[{\"b\":1,\"a\":2}]".to_owned()),
        (ChunkKind::Blob, "{\"a\":1,\"a\":2}".to_owned()),
        (ChunkKind::Blob, "1.50".to_owned()),
        (ChunkKind::Blob, "\"\\u00e9\"".to_owned()),
        (
            ChunkKind::Log,
            "{\"count\":0,\"bytes\":0,\"fanout\":4,\"levels\":[]}".to_owned(),
        ),
        (
            ChunkKind::Log,
            "{\"bytes\":0,\"count\":0,\"fanout\":5,\"levels\":[]}".to_owned(),
        ),
        (
            ChunkKind::Log,
            "{\"bytes\":0,\"count\":0,\"fanout\":4,\"levels\":[[]]}".to_owned(),
        ),
        (
            ChunkKind::Log,
            "{\"bytes\":1,\"count\":0,\"fanout\":4,\"levels\":[]}".to_owned(),
        ),
        (
            ChunkKind::Log,
            format!(
                "{{\"bytes\":12,\"count\":4,\"fanout\":4,\"levels\":[[{}]]}}",
                vec![format!("[\"{digest}\",1,3]"); 4].join(",")
            ),
        ),
        (
            ChunkKind::Node,
            format!(
                "{{\"children\":[{}],\"level\":1}}",
                vec![format!("[\"{digest}\",1,3]"); 3].join(",")
            ),
        ),
        (
            ChunkKind::Node,
            format!(
                "{{\"children\":[{}],\"level\":0}}",
                vec![format!("[\"{digest}\",1,3]"); 4].join(",")
            ),
        ),
        (
            ChunkKind::Map,
            format!("{{\"parts\":{{\"/a\":[\"leaf\",\"{digest}\",1]}},\"rest\":{{}}}}"),
        ),
        (ChunkKind::Map, "{\"parts\":{},\"rest\":1}".to_owned()),
    ] {
        let chunk = Chunk::new(kind, text.clone().into_bytes().into());
        assert_eq!(code(chunk.check()), "corrupt_snapshot", "{text}");
        if !matches!(kind, ChunkKind::Leaf | ChunkKind::Blob) {
            assert!(references(kind, text.as_bytes()).is_err());
        }
    }
}

#[test]
fn sums_that_overflow_are_refused() {
    let entry = format!("[\"{}\",{},1]", Digest::ZERO, u64::MAX);
    let log = format!("{{\"bytes\":2,\"count\":1,\"fanout\":4,\"levels\":[[{entry},{entry}]]}}");
    assert!(references(ChunkKind::Log, log.as_bytes()).is_err());
    let node = format!(
        "{{\"children\":[{}],\"level\":1}}",
        vec![entry; 4].join(",")
    );
    // It has the form of a node, but no entry can say what it holds.
    let node = Chunk::new(ChunkKind::Node, node.into_bytes().into());
    assert_eq!(node.check(), Ok(()));
    let log = format!(
        "{{\"bytes\":4,\"count\":3,\"fanout\":4,\"levels\":[[],[[\"{}\",3,4]]]}}",
        node.digest()
    );
    let log = Chunk::new(ChunkKind::Log, log.into_bytes().into());
    let map = format!(
        "{{\"parts\":{{\"/a\":[\"log\",\"{}\",4]}},\"rest\":{{}}}}",
        log.digest()
    );
    let map = Chunk::new(ChunkKind::Map, map.into_bytes().into());
    let mut store = TestStore::new();
    let bytes = map.bytes().len() as u64 + 4;
    let spec = ComponentSpec::AGENT_STATE;
    let entry = root::write_entry(&spec, Layout::Map, &map.digest(), bytes, None);
    let (root, root_digest) = root::write_root(&store.header(), &entry, b"[]");
    let sealed = SealedSnapshot {
        root: root.into(),
        root_digest,
        chunks: vec![node, log, map],
        log_rewritten: false,
    };
    assert_eq!(code(store.accept(&sealed)), "corrupt_snapshot");
}

#[test]
fn a_reader_takes_no_chunk_of_another_digest_or_kind() {
    let store = committed();
    let mut reader = store.reader();
    let Read::Need(need) = reader.component(&ComponentSpec::CONVERSATION).unwrap() else {
        panic!("no chunk was needed")
    };
    assert_eq!(need, reader.need());
    let wrong = Chunk::new(
        ChunkKind::Map,
        Arc::from(&b"{\"parts\":{},\"rest\":{}}"[..]),
    );
    assert_eq!(
        reader.feed([wrong]),
        Err(SnapshotError::chunk("it is missing").at(need[0]))
    );
    reader.feed([store.chunks[&need[0]].clone()]).unwrap();
}

/// Bytes that are nearly right: a real record with a few changes.
fn nearly(bytes: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let length = bytes.len();
    prop::collection::vec((0..length, any::<u8>(), 0..3u8), 1..4).prop_map(move |changes| {
        let mut bytes = bytes.clone();
        for (at, byte, how) in changes {
            let at = at.min(bytes.len().saturating_sub(1));
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => {
                    bytes.remove(at);
                }
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Root::parse(bytes.as_slice().into());
        let _ = FlatSnapshot::parse(&bytes);
        for kind in ChunkKind::ALL {
            let _ = references(kind, &bytes);
            let _ = Chunk::new(kind, bytes.as_slice().into()).check();
        }
    }

    #[test]
    fn no_nearly_right_bytes_make_a_reader_panic(
        (pick, root, flat, chunks) in {
            let mut store = committed();
            let root = store.roots.last().unwrap().bytes().to_vec();
            let flat = store.flat().to_bytes();
            let mut chunks: Vec<Chunk> = store.chunks.values().cloned().collect();
            chunks.sort_by_key(Chunk::digest);
            let strategies: Vec<_> = chunks
                .iter()
                .map(|chunk| (Just(chunk.kind()), nearly(chunk.bytes().to_vec())))
                .collect();
            (0..strategies.len(), nearly(root), nearly(flat), strategies)
        }
    ) {
        let _ = Root::parse(root.into());
        let _ = FlatSnapshot::parse(&flat);
        let (kind, bytes) = &chunks[pick];
        let _ = references(*kind, bytes);
        let _ = Chunk::new(*kind, bytes.as_slice().into()).check();
    }
}
