//! Rewriting the end of a log (STO-48, K61).

use super::*;

fn conversation_items(store: &mut TestStore) -> Vec<u64> {
    store.payload(&ComponentSpec::CONVERSATION).unwrap()["exchange_log"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["i"].as_u64().unwrap())
        .collect()
}

fn cut(store: &TestStore, writer: &mut SnapshotWriter, keep: u64) -> usize {
    let spec = ComponentSpec::CONVERSATION;
    let mut cut = writer.begin_cut(&spec, ITEMS, keep).unwrap();
    let mut reads = 0;
    while let Some((_, digest)) = cut.need() {
        reads += 1;
        cut.feed(&store.chunks[&digest]).unwrap();
    }
    writer.apply_cut(&spec, ITEMS, cut).unwrap();
    reads
}

/// A store whose log has `commits` leaves of `per_leaf` items.
fn filled(commits: u64, per_leaf: u64) -> (TestStore, SnapshotWriter) {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    for commit in 0..commits {
        append(&mut writer, commit * per_leaf..(commit + 1) * per_leaf);
        let sealed = store.commit(&mut writer);
        assert!(!sealed.log_rewritten && !store.known.log_rewritten());
    }
    (store, writer)
}

#[test]
fn k61_a_cut_anywhere_keeps_what_is_before_and_costs_what_is_after() {
    for (commits, per_leaf) in [(1, 3), (4, 1), (5, 2), (16, 1), (23, 1), (64, 1), (19, 3)] {
        let total = commits * per_leaf;
        for keep in 0..=total {
            let (mut store, mut writer) = filled(commits, per_leaf);
            let reads = cut(&store, &mut writer, keep);
            append(&mut writer, 1_000..1_003);
            let sealed = store.commit(&mut writer);
            let expected: Vec<u64> = (0..keep).chain(1_000..1_003).collect();
            assert_eq!(conversation_items(&mut store), expected);
            assert_eq!(
                store.known.log_rewritten(),
                keep < total,
                "{keep} of {total}"
            );
            // log₄ of the leaves, and the leaf itself.
            let levels = (commits as f64).log(4.0).floor() as usize + 1;
            assert!(reads <= levels, "{reads} reads for {commits} leaves");
            assert!(store.path_reads <= 4 * levels);
            // Leaves: one for the kept items of a cut leaf and the new ones; the nodes that they complete.
            assert!(sealed.chunks.len() <= 3 + levels, "{:?}", sealed.chunks);
            store.deep_verify().unwrap();
            // The log goes on as any other.
            append(&mut writer, [7]);
            store.commit(&mut writer);
            assert!(!store.known.log_rewritten());
        }
    }
}

#[test]
fn k61_reused_nodes_are_accepted_on_the_cut_path_only() {
    let (mut store, mut writer) = filled(64, 1);
    cut(&store, &mut writer, 22);
    append(&mut writer, [1_000]);
    let header = store.header();
    let sealed = writer.seal(&header).unwrap();
    let root = Root::parse(Arc::clone(&sealed.root)).unwrap();

    // Without reading the path nothing is accepted.
    assert_eq!(
        code(check_closure(&root, &sealed.chunks, &store.known)),
        "missing_chunk"
    );
    store.accept(&sealed).unwrap();
    assert!(store.known.log_rewritten());

    // A log that names a held leaf at another position than the parent has it is refused.
    let (mut store, _) = filled(64, 1);
    let leaf = ChunkKind::Leaf.digest(b"[{\"i\":40}]");
    assert!(store.chunks.contains_key(&leaf));
    let log = format!("{{\"bytes\":10,\"count\":1,\"fanout\":4,\"levels\":[[[\"{leaf}\",1,10]]]}}");
    let log = Chunk::new(ChunkKind::Log, log.into_bytes().into());
    let map = format!(
        "{{\"parts\":{{\"{ITEMS}\":[\"log\",\"{}\",10]}},\"rest\":{{}}}}",
        log.digest()
    );
    let map = Chunk::new(ChunkKind::Map, map.into_bytes().into());
    let entry = root::write_entry(
        &ComponentSpec::CONVERSATION,
        Layout::Map,
        &map.digest(),
        10 + map.bytes().len() as u64,
        None,
    );
    let (root, root_digest) = root::write_root(&store.header(), &entry, b"[]");
    let sealed = SealedSnapshot {
        root: root.into(),
        root_digest,
        chunks: vec![log, map],
        log_rewritten: true,
    };
    assert_eq!(
        store.accept(&sealed),
        Err(SnapshotError::MissingChunk {
            digests: vec![leaf]
        })
    );
}

#[test]
fn a_keyed_log_that_rewrites_itself_is_told_apart_from_one_that_grows() {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    let spec = ComponentSpec::CONVERSATION;
    let mut rewritten = Vec::new();
    for index in 0..200u64 {
        let record = item(index);
        writer
            .upsert(&spec, RECEIPTS, [("only", Some(record.as_slice()))])
            .unwrap();
        store.commit(&mut writer);
        if store.known.log_rewritten() {
            rewritten.push(index);
        }
    }
    // 68 items are kept for one live record; the 69th upsert starts again with one.
    assert_eq!(rewritten, [68, 136]);
    assert_eq!(
        store.payload(&spec),
        Some(serde_json::json!({"steering_receipts": [{"i": 199}]}))
    );
}

#[test]
fn a_cut_refuses_chunks_that_were_not_asked_for() {
    let (store, mut writer) = filled(16, 1);
    let spec = ComponentSpec::CONVERSATION;
    let mut cut = writer.begin_cut(&spec, ITEMS, 5).unwrap();
    let other = Chunk::new(ChunkKind::Leaf, Arc::from(&b"[1]"[..]));
    assert_eq!(code(cut.feed(&other)), "corrupt_snapshot");
    assert_eq!(
        code(writer.apply_cut(&spec, ITEMS, cut.clone())),
        "missing_chunk"
    );
    let (_, digest) = cut.need().unwrap();
    cut.feed(&store.chunks[&digest]).unwrap();
    // Items that are not sealed yet cannot be cut, nor can a log that is not there.
    append(&mut writer, [1]);
    assert_eq!(code(writer.begin_cut(&spec, ITEMS, 5)), "corrupt_snapshot");
    assert_eq!(
        code(writer.begin_cut(&spec, "/none", 5)),
        "corrupt_snapshot"
    );
}
