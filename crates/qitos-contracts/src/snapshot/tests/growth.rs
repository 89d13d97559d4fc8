//! A commit costs what changed, a tail costs what is read (K57, SES-55, STO-51).

use super::*;

/// The chunks and root of each commit of a session that appends 1 KiB per step.
fn bytes_per_commit(commits: u64) -> Vec<usize> {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    (0..commits)
        .map(|index| {
            let item = serde_json::json!({"i": index, "text": "x".repeat(1_000)});
            let items = [canonical(&item)];
            writer
                .append(&ComponentSpec::CONVERSATION, ITEMS, &items)
                .unwrap();
            let sealed = store.commit(&mut writer);
            sealed.total_bytes() - items[0].len()
        })
        .collect()
}

#[test]
fn k57_the_mean_commit_does_not_grow_with_the_session() {
    let costs = bytes_per_commit(2_560);
    let mean = |window: &[usize]| window.iter().sum::<usize>() as f64 / window.len() as f64;
    let (early, late) = (mean(&costs[512..1_024]), mean(&costs[2_048..]));
    // The step is 1 KiB; with it the ratio is smaller still.
    assert!(late / early <= 1.25, "{early} then {late}");
    assert!(late <= 8_192.0 && costs.iter().all(|cost| *cost <= 32_768));
}

#[test]
fn ses_55_a_tail_is_read_with_few_chunks_whatever_is_before_it() {
    let mut reads = Vec::new();
    for commits in [1_000u64, 3_000] {
        let mut store = TestStore::new();
        let mut writer = SnapshotWriter::new();
        for index in 0..commits {
            append(&mut writer, [index]);
            store.commit(&mut writer);
        }
        let mut reader = store.reader();
        store.reads = 0;
        let tail = store
            .resolve(&mut reader, |reader| {
                reader.log_tail(&ComponentSpec::CONVERSATION, ITEMS, 200)
            })
            .unwrap();
        assert_eq!(tail.len(), 200);
        assert_eq!(*tail[199], *item(commits - 1));
        assert_eq!(*tail[0], *item(commits - 200));
        assert!(store.reads <= 400, "{} reads", store.reads);
        reads.push(store.reads);
        // Any range, in the middle too.
        let middle = store
            .resolve(&mut reader, |reader| {
                reader.log_items(&ComponentSpec::CONVERSATION, ITEMS, 437..441)
            })
            .unwrap();
        let expected: Vec<Vec<u8>> = (437..441).map(item).collect();
        assert!(
            middle
                .iter()
                .zip(&expected)
                .all(|(read, item)| **read == **item)
        );
        assert_eq!(middle.len(), 4);
        let count = store
            .resolve(&mut reader, |reader| {
                reader.log_count(&ComponentSpec::CONVERSATION, ITEMS)
            })
            .unwrap();
        assert_eq!(count, Some(commits));
    }
    assert!(reads[1] <= reads[0] + 8, "{reads:?}");
}

#[test]
fn sto_51_a_deep_verification_keeps_its_frontier_only() {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    for index in 0..2_000 {
        append(&mut writer, [index]);
        store.commit(&mut writer);
    }
    let root = store.roots.last().unwrap().clone();
    let mut verification = DeepVerification::with_codecs(&root, &registry()).unwrap();
    loop {
        let need = verification.need();
        if need.is_empty() {
            break;
        }
        assert!(need.len() <= 64);
        assert_eq!(verification.need_references().len(), need.len());
        // Three entries of each of seven levels, and what one batch of nodes adds.
        assert!(verification.pending() <= 21 + 64 * 4 * 7);
        let chunks = store.fetch(&need).unwrap();
        verification.feed(&chunks).unwrap();
    }
    assert_eq!(verification.totals().items, 2_000);
}

#[test]
fn sto_52_a_restored_writer_goes_on_as_if_it_had_never_stopped() {
    let mut store = TestStore::new();
    let mut writer = SnapshotWriter::new();
    for index in 0..100 {
        append(&mut writer, [index]);
        store.commit(&mut writer);
    }
    store.reads = 0;
    let mut restored = store.writer();
    // The map and the log; no node, no leaf.
    assert_eq!(store.reads, 2);
    append(&mut writer, [100]);
    append(&mut restored, [100]);
    let header = store.header();
    let (one, other) = (
        writer.seal(&header).unwrap(),
        restored.seal(&header).unwrap(),
    );
    assert_eq!(one.root, other.root);
    assert_eq!(one.chunks, other.chunks);
    store.accept(&other).unwrap();
}
