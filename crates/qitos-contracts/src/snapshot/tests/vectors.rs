//! The published vectors of section 18 (K35).

use super::*;

#[test]
fn k35_the_first_leaf_has_its_published_digest() {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    append(&mut writer, [0]);
    let sealed = store.commit(&mut writer);
    let leaf = &sealed.chunks[0];
    assert_eq!(leaf.kind(), ChunkKind::Leaf);
    assert_eq!(leaf.bytes().as_ref(), b"[{\"i\":0}]");
    assert_eq!(
        leaf.digest().to_hex(),
        "e7556b844d895d2fa6c66b3d15abe7d63d21d382146d38552f1c8cbfab721c37"
    );
}

#[test]
fn k35_five_one_item_commits_give_the_published_node_and_log() {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    let mut nodes = Vec::new();
    let mut log = None;
    for index in 0..5 {
        append(&mut writer, [index]);
        for chunk in store.commit(&mut writer).chunks {
            match chunk.kind() {
                ChunkKind::Node => nodes.push(chunk.digest().to_hex()),
                ChunkKind::Log => log = Some(chunk.digest().to_hex()),
                _ => {}
            }
        }
    }
    assert_eq!(
        nodes,
        ["98cd8ccaf225c96c334b4b748f75797dcceaa3f55bfd86b3a12d1aeef06e1b9d"]
    );
    assert_eq!(
        log.as_deref(),
        Some("f696469da6ab7a5922e953f922fed4b584f9983a0a8408d52a480297cd15bc37")
    );
}

#[test]
fn k35_the_empty_log_has_its_published_digest() {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    append(&mut writer, []);
    let sealed = store.commit(&mut writer);
    assert_eq!(
        sealed.chunks[0].digest().to_hex(),
        "a48bacb605025dcd234d10b42dfa284f08b1165bdcffdfc5fedc68a607b515fa"
    );
    assert_eq!(
        store.payload(&ComponentSpec::CONVERSATION),
        Some(serde_json::json!({"exchange_log": {"items": []}}))
    );
}

#[test]
fn the_counter_of_a_log_is_base_four_whatever_a_commit_appends() {
    for commits in [1u64, 3, 4, 5, 16, 21, 64, 100] {
        let mut store = TestStore::new();
        let mut writer = SnapshotWriter::new();
        let mut next = 0;
        for commit in 0..commits {
            let count = commit % 3 + 1;
            append(&mut writer, next..next + count);
            next += count;
            store.commit(&mut writer);
        }
        let log = store
            .chunks
            .values()
            .filter(|chunk| chunk.kind() == ChunkKind::Log)
            .map(|chunk| serde_json::from_slice::<Value>(chunk.bytes()).unwrap())
            .find(|log| log["count"] == next)
            .unwrap();
        let (mut digits, mut rest) = (Vec::new(), commits);
        while rest > 0 {
            digits.push((rest % 4) as usize);
            rest /= 4;
        }
        let levels: Vec<usize> = log["levels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|level| level.as_array().unwrap().len())
            .collect();
        assert_eq!(levels, digits);
        assert_eq!(
            store.payload(&ComponentSpec::CONVERSATION).unwrap()["exchange_log"]["items"],
            Value::Array(
                (0..next)
                    .map(|index| serde_json::json!({"i": index}))
                    .collect()
            )
        );
        assert_eq!(store.deep_verify().unwrap().items, next);
    }
}
