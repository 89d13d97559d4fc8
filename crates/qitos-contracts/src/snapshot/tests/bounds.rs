//! The limits of section 17, each at limit − 1, limit and limit + 1.

use super::limits::*;
use super::*;

/// A canonical object of exactly `bytes` bytes.
fn object_of(bytes: usize) -> Vec<u8> {
    let mut object = b"{\"a\":\"".to_vec();
    object.resize(bytes - 2, b'x');
    object.extend_from_slice(b"\"}");
    object
}

/// A canonical string of exactly `bytes` bytes.
fn string_of(bytes: usize) -> Vec<u8> {
    let mut string = vec![b'"'];
    string.resize(bytes - 1, b'x');
    string.push(b'"');
    string
}

fn nested(depth: usize) -> Vec<u8> {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth)).into_bytes()
}

/// Calls `check` with limit − 1, limit and limit + 1, and expects the third to be over it.
fn around(limit: usize, check: impl Fn(usize) -> Result<(), SnapshotError>) {
    for (size, allowed) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
        match check(size) {
            Ok(()) => assert!(allowed, "{size} was accepted"),
            Err(error) => {
                assert!(!allowed, "{size}: {error}");
                assert_eq!(error.code(), "size_limit_exceeded");
            }
        }
    }
}

const NAMES: [&str; 66] = {
    const TEXT: &str = "s00s01s02s03s04s05s06s07s08s09s10s11s12s13s14s15s16s17s18s19s20s21s22s23s24s25s26s27s28s29s30s31s32s33s34s35s36s37s38s39s40s41s42s43s44s45s46s47s48s49s50s51s52s53s54s55s56s57s58s59s60s61s62s63s64s65";
    let mut names = [""; 66];
    let mut index = 0;
    while index < 66 {
        let (_, from) = TEXT.split_at(index * 3);
        names[index] = from.split_at(3).0;
        index += 1;
    }
    names
};

fn numbered(index: usize) -> ComponentSpec {
    ComponentSpec {
        slot: NAMES[index],
        ..ComponentSpec::AGENT_STATE
    }
}

#[test]
fn a_snapshot_has_at_most_64_components() {
    around(MAXIMUM_COMPONENTS, |count| {
        let mut writer = SnapshotWriter::new();
        for index in 0..count {
            writer.replace(&numbered(index), b"{}".to_vec())?;
        }
        let mut store = TestStore::new();
        store.accept(&writer.seal(&store.header())?)
    });
    // A reader counts by itself.
    let store = TestStore::new();
    let entries: Vec<Vec<u8>> = (0..65)
        .map(|index| {
            let digest = Digest::of(b"{}");
            root::write_entry(&numbered(index), Layout::Inline, &digest, 2, Some(b"{}"))
        })
        .collect();
    let (bytes, _) = root::write_root(&store.header(), &entries.join(&b','), b"[]");
    assert_eq!(code(Root::parse(bytes.into())), "size_limit_exceeded");
}

#[test]
fn a_payload_up_to_4_kib_stands_in_the_root() {
    for (bytes, layout) in [
        (MAXIMUM_INLINE_BYTES - 1, Layout::Inline),
        (MAXIMUM_INLINE_BYTES, Layout::Inline),
        (MAXIMUM_INLINE_BYTES + 1, Layout::Blob),
    ] {
        let mut store = TestStore::new();
        let mut writer = SnapshotWriter::new();
        writer
            .replace(&ComponentSpec::SANDBOX, object_of(bytes))
            .unwrap();
        store.commit(&mut writer);
        let entry = &store.roots[0].components()[0];
        assert_eq!((entry.layout, entry.bytes), (layout, bytes as u64));
    }
}

#[test]
fn the_rest_of_a_map_has_at_most_16_kib() {
    around(MAXIMUM_REST_BYTES, |bytes| {
        let mut writer = SnapshotWriter::new();
        writer.map_rest(&ComponentSpec::AGENT_STATE, object_of(bytes))?;
        let mut store = TestStore::new();
        store.accept(&writer.seal(&store.header())?)
    });
    let over = map::write_map([].into_iter(), &object_of(MAXIMUM_REST_BYTES + 1));
    assert!(Chunk::new(ChunkKind::Map, over.into()).check().is_err());
}

#[test]
fn a_root_that_would_exceed_64_kib_moves_its_largest_payloads_into_blobs() {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    for index in 0..46 {
        writer
            .replace(&numbered(index), object_of(1_000 + index * 10))
            .unwrap();
    }
    store.commit(&mut writer);
    let root = store.roots[0].clone();
    assert!(root.bytes().len() <= MAXIMUM_ROOT_BYTES);
    let layouts: Vec<Layout> = root.components().iter().map(|entry| entry.layout).collect();
    let first_blob = layouts
        .iter()
        .position(|layout| *layout == Layout::Blob)
        .unwrap();
    assert!(
        first_blob > 35
            && layouts[first_blob..]
                .iter()
                .all(|layout| *layout == Layout::Blob)
    );
}

#[test]
fn a_root_record_has_at_most_64_kib() {
    // The reference ids fill the root byte by byte.
    let root_of = |filler: usize| {
        let mut references = Vec::new();
        for index in 0..64usize {
            let length = 10 + filler.saturating_sub(index * 118).min(118);
            let capability = format!("a{}", "b".repeat(95));
            references.push(
                ResolverReference::new(
                    ResolverNamespace::RuntimeEventSink,
                    format!("{index:02}{}", "x".repeat(length - 2)),
                    capability,
                    1,
                )
                .unwrap(),
            );
        }
        let store = TestStore::new();
        let mut header = store.header();
        header.resolver_references = ResolverReferences::new(references).unwrap();
        let entries: Vec<Vec<u8>> = (0..60)
            .map(|index| {
                let payload = object_of(600);
                let digest = Digest::of(&payload);
                root::write_entry(
                    &numbered(index),
                    Layout::Inline,
                    &digest,
                    600,
                    Some(&payload),
                )
            })
            .collect();
        root::write_root(&header, &entries.join(&b','), b"[]").0
    };
    let empty = root_of(0).len();
    assert!(
        empty < MAXIMUM_ROOT_BYTES && empty + 64 * 118 > MAXIMUM_ROOT_BYTES,
        "{empty}"
    );
    around(MAXIMUM_ROOT_BYTES, |bytes| {
        let root = root_of(bytes - empty);
        assert_eq!(root.len(), bytes);
        Root::parse(root.into()).map(|_| ())
    });
}

#[test]
fn a_root_that_cannot_be_made_small_enough_is_refused_and_spends_the_writer() {
    let mut writer = SnapshotWriter::new();
    for index in 0..64 {
        writer.append(&numbered(index), "/log", [item(0)]).unwrap();
    }
    let capability = format!("a{}", "b".repeat(95));
    let references = (0..64)
        .map(|index| {
            let id = format!("{index:02}{}", "x".repeat(126));
            ResolverReference::new(ResolverNamespace::Agent, id, capability.clone(), 1).unwrap()
        })
        .collect();
    let store = TestStore::new();
    let mut header = store.header();
    header.resolver_references = ResolverReferences::new(references).unwrap();
    header.artifact_refs = (0..15)
        .map(|index| {
            let id = format!("sha256:{index}{}", "x".repeat(1_000));
            NewArtifactRef {
                canonical: canonical(&serde_json::json!({"artifact_id": id})).into(),
                artifact_id: id.into(),
            }
        })
        .collect();
    let result = writer.seal(&header);
    if let Err(error) = result {
        assert_eq!(error.code(), "size_limit_exceeded");
        assert_eq!(code(writer.seal(&store.header())), "corrupt_snapshot");
        assert_eq!(
            code(writer.replace(&numbered(0), b"{}".to_vec())),
            "corrupt_snapshot"
        );
    }
}

#[test]
fn a_chunk_has_at_most_8_mib() {
    around(MAXIMUM_CHUNK_BYTES, |bytes| {
        SnapshotWriter::new().replace(&ComponentSpec::SANDBOX, object_of(bytes))
    });
    around(MAXIMUM_CHUNK_BYTES, |bytes| {
        let blob = string_of(bytes).into();
        SnapshotWriter::new().map_blob(&ComponentSpec::AGENT_STATE, "/blob", blob)
    });
    around(MAXIMUM_CHUNK_BYTES, |bytes| {
        Chunk::new(ChunkKind::Blob, string_of(bytes).into()).check()
    });
}

#[test]
fn a_log_item_fits_its_leaf() {
    around(MAXIMUM_ITEM_BYTES, |bytes| {
        let mut store = TestStore::new();
        let mut writer = SnapshotWriter::new();
        writer.append(&ComponentSpec::CONVERSATION, ITEMS, [string_of(bytes)])?;
        store.accept(&writer.seal(&store.header())?)
    });
}

#[test]
fn a_commit_has_at_most_64_mib() {
    around(MAXIMUM_COMMIT_BYTES, check_commit_bytes);
}

#[test]
fn a_writer_refuses_what_the_commit_could_not_hold_before_it_takes_it() {
    let mut writer = SnapshotWriter::new();
    let spec = ComponentSpec::CONVERSATION;
    let item = string_of(MAXIMUM_ITEM_BYTES);
    for _ in 0..8 {
        writer.append(&spec, ITEMS, [&item]).unwrap();
    }
    let refused = writer.append(&spec, ITEMS, [string_of(17)]);
    assert_eq!(code(refused), "size_limit_exceeded");
    assert_eq!(writer.log_count(&spec, ITEMS), Some(8));
    // Eight equal leaves are sent once.
    let sealed = writer.seal(&TestStore::new().header()).unwrap();
    assert!(sealed.total_bytes() < MAXIMUM_COMMIT_BYTES / 4);
    writer.append(&spec, ITEMS, [string_of(17)]).unwrap();
}

#[test]
fn nesting_is_bounded_in_the_flat_form_whatever_stores_it() {
    // Envelope, component array, component, payload.
    around(MAXIMUM_DEPTH, |depth| {
        let payload = [b"{\"a\":".to_vec(), nested(depth - 4), b"}".to_vec()].concat();
        SnapshotWriter::new().replace(&ComponentSpec::SANDBOX, payload)
    });
    // The same, then `exchange_log` and the array of items.
    around(MAXIMUM_DEPTH, |depth| {
        let mut store = TestStore::new();
        let mut writer = SnapshotWriter::new();
        writer.append(&ComponentSpec::CONVERSATION, ITEMS, [nested(depth - 6)])?;
        store.accept(&writer.seal(&store.header())?)?;
        let flat = store.flat().to_bytes();
        FlatSnapshot::parse(&flat).map(|_| ())
    });
    around(MAXIMUM_DEPTH, |depth| {
        let blob = nested(depth - 4).into();
        SnapshotWriter::new().map_blob(&ComponentSpec::AGENT_STATE, "/blob", blob)
    });
    // Far beyond the bound the stack holds.
    let refused =
        SnapshotWriter::new().append(&ComponentSpec::CONVERSATION, ITEMS, [nested(1_000_000)]);
    assert_eq!(code(refused), "size_limit_exceeded");
}

#[test]
fn a_leaf_is_split_at_256_items_and_at_256_kib() {
    let leaves_of = |items: Vec<Vec<u8>>| {
        let mut writer = SnapshotWriter::new();
        writer
            .append(&ComponentSpec::CONVERSATION, ITEMS, items)
            .unwrap();
        let sealed = writer.seal(&TestStore::new().header()).unwrap();
        let leaves = sealed.chunks.iter();
        leaves
            .filter(|chunk| chunk.kind() == ChunkKind::Leaf)
            .map(|leaf| {
                leaf.check().unwrap();
                leaf.bytes().len()
            })
            .collect::<Vec<_>>()
    };
    for (count, leaves) in [(255, 1), (256, 1), (257, 2), (512, 2), (513, 3)] {
        let items = (0..count).map(item).collect();
        assert_eq!(leaves_of(items).len(), leaves);
    }
    // Two items, two brackets and a comma.
    let half = MAXIMUM_LEAF_BYTES / 2;
    for (second, leaves) in [(half - 4, 1), (half - 3, 1), (half - 2, 2)] {
        let made = leaves_of(vec![string_of(half), string_of(second)]);
        assert_eq!(made.len(), leaves, "{made:?}");
    }
    assert_eq!(leaves_of(vec![string_of(half * 4)]), [half * 4 + 2]);
    // A reader refuses leaves that are split too late.
    let many = format!("[{}]", vec!["1"; 257].join(","));
    let large = [
        b"[1,".to_vec(),
        string_of(MAXIMUM_LEAF_BYTES),
        b"]".to_vec(),
    ]
    .concat();
    for bytes in [many.into_bytes(), large, b"[]".to_vec()] {
        let leaf = Chunk::new(ChunkKind::Leaf, bytes.into());
        assert_eq!(code(leaf.check()), "corrupt_snapshot");
    }
}

#[test]
fn up_to_16_artifact_references_stand_in_the_root() {
    for (count, inline) in [(15, true), (16, true), (17, false)] {
        let mut store = TestStore::new();
        let mut writer = SnapshotWriter::new();
        let mut header = store.header();
        header.artifact_refs = (0..count)
            .map(|index| {
                let id = format!("sha256:{index}");
                NewArtifactRef {
                    canonical: canonical(&serde_json::json!({"artifact_id": id})).into(),
                    artifact_id: id.into(),
                }
            })
            .collect();
        // Naming one twice changes nothing.
        header.artifact_refs.push(header.artifact_refs[0].clone());
        store.accept(&writer.seal(&header).unwrap()).unwrap();
        assert_eq!(
            matches!(store.roots[0].artifact_refs(), ArtifactRefs::Inline(_)),
            inline
        );
        // A process that does not know the log names one again; readers see it once.
        let mut again = store.writer();
        let mut second = store.header();
        second.artifact_refs = header.artifact_refs[..1].to_vec();
        store.accept(&again.seal(&second).unwrap()).unwrap();
        assert_eq!(store.flat().artifact_refs.len(), count);
        store.deep_verify().unwrap();
    }
    let seventeen: Vec<Value> = (0..17)
        .map(|index| serde_json::json!({"artifact_id": index.to_string()}))
        .collect();
    let refs = canonical(&Value::Array(seventeen));
    let (bytes, _) = root::write_root(&TestStore::new().header(), b"", &refs);
    assert_eq!(code(Root::parse(bytes.into())), "corrupt_snapshot");
}
