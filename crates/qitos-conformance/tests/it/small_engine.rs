//! The small engine passes the tool suite; each flaw is rejected by the check named for it.

use std::sync::Arc;

use qitos_conformance::mutants::tool_engine::{Flaw, SmallEngine};
use qitos_conformance::report::Status;
use qitos_conformance::run::RunOptions;
use qitos_conformance::tool::{engine_checks, engine_conformance};

#[test]
fn the_small_engine_keeps_the_tool_contract() {
    let report = engine_conformance(Arc::new(SmallEngine::right()), &RunOptions::default())
        .conforms()
        .unwrap();
    println!("{report}");
    assert_eq!(report.not_claimed(), 0);
}

#[test]
fn every_flaw_names_a_check_and_every_check_has_a_flaw() {
    let ids: Vec<&str> = engine_checks().iter().map(|check| check.id()).collect();
    for flaw in Flaw::ALL {
        assert!(ids.contains(&flaw.rejected_by()), "{flaw:?}");
    }
    // These two look at the types of the contract, which no engine can replace.
    let without = ["TCK-13.result_table", "TCK-29.open_batch_blocks"];
    for id in ids {
        let proved = Flaw::ALL.iter().any(|flaw| flaw.rejected_by() == id);
        assert_ne!(proved, without.contains(&id), "{id}");
    }
}

#[test]
fn each_wrong_engine_is_rejected_by_the_check_named_for_it() {
    let mut missed = Vec::new();
    for flaw in Flaw::ALL {
        let options = RunOptions::default().only(flaw.rejected_by());
        let report = engine_conformance(Arc::new(SmallEngine::wrong(*flaw)), &options);
        let check = report.check(flaw.rejected_by()).unwrap();
        println!("{flaw:?}: {} {}", check.id(), check.detail());
        if check.status() != Status::Fail {
            missed.push((flaw, check.id().to_owned(), check.status()));
        }
    }
    assert!(missed.is_empty(), "not rejected: {missed:?}");
}
