//! Each wrong store is rejected by the check named for it; so no check of the suite is empty.

use std::sync::Arc;

use qitos_conformance::checkpoint_store::{checks, conformance};
use qitos_conformance::mutants::checkpoint_store::{Flaw, MutantSubject, shows_without_hooks};
use qitos_conformance::report::Status;
use qitos_conformance::run::RunOptions;

use crate::conformance::MemorySubject;

#[test]
fn every_flaw_names_a_check_and_every_check_has_a_flaw() {
    let ids: Vec<&str> = checks().iter().map(|check| check.id()).collect();
    for flaw in Flaw::ALL {
        assert!(ids.contains(&flaw.rejected_by()), "{flaw:?}");
    }
    // Without a mutant: K14 and K35 hold before any store is touched; K27 needs deletion; K36 and K37 are K38 at
    // chosen moments.
    let without = [
        "K14.superseded_refused",
        "K27.child_survives_source_delete",
        "K35.canonical_vectors",
        "K36.kill_points",
        "K37.kill_in_commit",
    ];
    for id in ids {
        let proved = Flaw::ALL.iter().any(|flaw| flaw.rejected_by() == id);
        assert_ne!(proved, without.contains(&id), "{id}");
    }
}

#[test]
fn each_wrong_store_is_rejected_by_the_check_named_for_it() {
    let mut missed = Vec::new();
    for flaw in Flaw::ALL.iter().filter(|flaw| shows_without_hooks(**flaw)) {
        let subject = MutantSubject::new(Arc::new(MemorySubject::default()), *flaw);
        let options = RunOptions::default().only(flaw.rejected_by());
        let report = conformance(Arc::new(subject), &options);
        let check = report.check(flaw.rejected_by()).unwrap();
        println!("{flaw:?}: {} {}", check.id(), check.detail());
        if check.status() != Status::Fail {
            missed.push((flaw, check.id().to_owned(), check.status()));
        }
    }
    assert!(missed.is_empty(), "not rejected: {missed:?}");
}
