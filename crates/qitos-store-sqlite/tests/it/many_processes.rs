//! Many processes on one file (section 15).

use std::sync::{Arc, Mutex};

use qitos_contracts::checkpoint::{CheckpointStore, VerifyDepth};
use qitos_contracts::error::ContractError;
use qitos_contracts::snapshot::Lifecycle;
use qitos_kit::scripted_session::ScriptedSession;

use crate::child::{Task, start};
use crate::subject::{File, block_on, commit};

#[test]
fn sixteen_simultaneous_openings_make_one_store() {
    // STO-38, K50, K43
    let file = File::new();
    let children: Vec<_> = (0..16)
        .map(|seed| {
            let task = Task {
                seed,
                commits: 12,
                die_at: None,
            };
            start(file.path(), &task)
        })
        .collect();
    for mut child in children {
        let mut receipts = 0;
        while child.receipt().is_some() {
            receipts += 1;
        }
        assert_eq!(receipts, 12);
        assert!(child.process.wait().unwrap().success());
    }
    assert_eq!(file.number("SELECT count(*) FROM meta"), 4);
    assert_eq!(file.number("SELECT count(*) FROM session"), 16);
    assert_eq!(file.number("SELECT count(*) FROM snapshot"), 16 * 12);
    let store = file.open();
    let access = store.groups().chunk_access().unwrap();
    for seed in 0..16 {
        let id = ScriptedSession::new(seed).session_id().clone();
        let head = block_on(store.head(&id)).unwrap().unwrap();
        assert_eq!(head.generation, 11);
        assert!(
            block_on(access.verify(&head.snapshot_id, VerifyDepth::Deep))
                .unwrap()
                .intact()
        );
    }
}

#[test]
fn of_many_claims_exactly_one_wins_each_generation() {
    // SES-48, K42: contenders with a store of their own on one file.
    let file = File::new();
    let mut first = ScriptedSession::new(1);
    let store = file.open();
    commit(&store, &first.commit(Lifecycle::Created, "x").unwrap());
    commit(&store, &first.commit(Lifecycle::Running, "x").unwrap());
    commit(&store, &first.commit(Lifecycle::Paused, "x").unwrap());
    let id = first.session_id().clone();
    let latest = Arc::new(Mutex::new(first));
    let contenders: Vec<_> = (0..8)
        .map(|contender| {
            let store = file.open();
            let latest = Arc::clone(&latest);
            std::thread::spawn(move || {
                let mut won = 0;
                for attempt in 0..60 {
                    let mut claim = latest
                        .lock()
                        .unwrap()
                        .clone()
                        .diverging(1_000 * contender + attempt);
                    claim.claim();
                    let next = claim.commit(Lifecycle::Restoring, "claim").unwrap();
                    match block_on(store.commit(next)) {
                        Ok(receipt) => {
                            won += 1;
                            let mut latest = latest.lock().unwrap();
                            let known = latest.expected().unwrap().generation;
                            assert_eq!(receipt.generation, known + 1);
                            *latest = claim;
                        }
                        Err(error) => assert_eq!(error.code(), "generation_conflict"),
                    }
                }
                won
            })
        })
        .collect();
    let won: u64 = contenders
        .into_iter()
        .map(|contender| contender.join().unwrap())
        .sum();
    let head = block_on(store.head(&id)).unwrap().unwrap();
    assert_eq!(head.generation, 2 + won);
    assert!(won >= 1);
    assert_eq!(
        file.number("SELECT count(*) FROM snapshot"),
        i64::try_from(3 + won).unwrap()
    );
}
