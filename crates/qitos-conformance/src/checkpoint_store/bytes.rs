//! K34 and K35: whatever a user or a tool says comes back byte for byte; canonical bytes are one thing everywhere.

use qitos_contracts::canonical_json;
use qitos_contracts::checkpoint::CheckpointStore;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::SnapshotId;
use qitos_contracts::snapshot::{Chunk, ChunkKind, Lifecycle};
use serde_json::{Value, json};

use super::expect::{checked, open, persist_commit, unexpected, whole_snapshot};
use super::history::{History, Step};
use super::subject::{StoreSubject, needs};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![
        Check::new(
            "K34.content_bytes",
            "every Unicode scalar, secret-like and path-like text, large and deep items round-trip exactly",
            &["SES-17", "SES-20", "SES-22", "STO-24"],
            content_bytes,
        )
        .needing(needs::INCREMENTAL),
        Check::new(
            "K35.canonical_vectors",
            "canonical JSON and chunk digests are those of the specification in this build",
            &["SES-17", "SES-18"],
            canonical_vectors,
        ),
    ]
}

/// The chunks under a snapshot, read back and compared with what was sent.
pub(super) async fn returned_as_sent(
    store: &dyn CheckpointStore,
    snapshot: &SnapshotId,
    sent: &[Chunk],
) -> Verdict {
    let access = store
        .groups()
        .chunk_access
        .ok_or_else(|| Failure::new("incremental is claimed without its group"))?;
    let digests: Vec<Digest> = sent.iter().map(Chunk::digest).collect();
    let read = access
        .get_chunks(snapshot, &digests)
        .await
        .map_err(|error| unexpected("get_chunks", &error))?;
    ensure!(
        read.len() == sent.len(),
        "{} chunks sent, {} returned",
        sent.len(),
        read.len()
    );
    for (sent, read) in sent.iter().zip(&read) {
        ensure!(
            read.kind() == sent.kind() && read.bytes()[..] == sent.bytes()[..],
            "chunk {} came back with other bytes",
            sent.digest()
        );
        ensure!(
            read.kind().digest(read.bytes()) == sent.digest(),
            "chunk {} came back with another digest",
            sent.digest()
        );
    }
    Ok(())
}

fn deep(levels: usize) -> Value {
    let mut value = json!("bottom");
    for _ in 0..levels {
        value = json!([value]);
    }
    value
}

fn contents() -> Vec<Value> {
    vec![
        json!({"text": "before\u{0}after \u{1}\u{1f}\u{7f}\u{85}\u{2028}"}),
        json!({"\u{1F600}": "astral key", "\u{FFFF}": 1, "é": 2, "": 3}),
        json!({"text": "Authorization: Bearer abc.def.ghi; password=hunter2; AKIAIOSFODNN7EXAMPLE"}),
        json!({"listing": "/home/someone/.ssh/id_ed25519\n/etc/shadow\nC:\\Users\\x"}),
        json!({"numbers": [0, -1, 9_223_372_036_854_775_807i64, 18_446_744_073_709_551_615u64, 1.0, -0.0, 1e16, 5e-324]}),
        json!({"text": "x".repeat(1024 * 1024)}),
        deep(60),
        Value::Null,
        json!(""),
        json!({"class": "__reduce__", "$type": "System.Process", "lc": 1}),
    ]
}

async fn content_bytes(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K34").await?;
    let mut history = History::new("K34");
    let mut commits = Vec::new();
    for (number, content) in contents().iter().enumerate() {
        let item = canonical_json::to_bytes(content)
            .map_err(|error| Failure::new(format!("content {number} is not JSON: {error}")))?;
        let state = canonical_json::to_bytes(&json!({"state": content}))
            .map_err(|error| Failure::new(format!("content {number} is not JSON: {error}")))?;
        let lifecycle = history.next_lifecycle();
        let step = Step::to(lifecycle)
            .with_raw_items(vec![item])
            .with_state(state);
        let commit = checked(history.commit(step)?)?;
        persist_commit(&*store, &commit)
            .await
            .map_err(|failure| Failure::new(format!("content {number}: {failure}")))?;
        commits.push(commit);
    }
    let another = open(&stage, "K34").await?;
    for store in [&store, &another] {
        for (number, commit) in commits.iter().enumerate() {
            let named = |failure| Failure::new(format!("content {number}: {failure}"));
            let (stored, _) = whole_snapshot(&**store, commit.snapshot_id())
                .await
                .map_err(named)?;
            ensure!(
                stored.root[..] == commit.root_bytes()[..],
                "content {number}: the root came back with other bytes"
            );
            returned_as_sent(&**store, commit.snapshot_id(), commit.chunks())
                .await
                .map_err(named)?;
        }
    }
    Ok(())
}

/// The vector of SES-18.
const VECTOR: &str = "25dbf78c2eccb2b47758561c0f1c0a5325ec1d0244e05428382e5d6e1fb66a72";
/// The leaf vector of section 18.
const LEAF: &str = "e7556b844d895d2fa6c66b3d15abe7d63d21d382146d38552f1c8cbfab721c37";

async fn canonical_vectors(stage: Stage<dyn StoreSubject>) -> Verdict {
    let _ = stage;
    // Built with unsorted keys: what a build with `preserve_order` would keep.
    let vector = json!({
        "\u{1F600}": 1,
        "\u{FFFF}": -2,
        "é": null,
        "c": [1e16, -0.0, 0.0001, 1e-05, 123_456_789_012_345_680.0, 5e-324, 1e15],
        "b": 1.0,
        "a": "é\u{0}\n\"/\u{7f}",
        "Z": true,
    });
    let digest = canonical_json::digest(&vector)
        .map_err(|error| Failure::new(format!("the vector was refused: {error}")))?;
    ensure!(
        digest.to_hex() == VECTOR,
        "the vector of SES-18 gives {digest}"
    );
    let leaf = ChunkKind::Leaf.digest(b"[{\"i\":0}]");
    ensure!(leaf.to_hex() == LEAF, "the leaf vector gives {leaf}");
    let mut history = History::new("K35");
    let request =
        history.commit(Step::to(Lifecycle::Created).with_raw_items(vec![b"{\"i\":0}".to_vec()]))?;
    ensure!(
        request
            .chunks
            .iter()
            .any(|chunk| chunk.digest().to_hex() == LEAF),
        "an appended item is not the leaf of the vector"
    );
    Ok(())
}
