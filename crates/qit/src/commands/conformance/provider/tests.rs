//! Every built-in provider keeps the contract, and every wrong one is rejected by the check named for its flaw.

use std::sync::Arc;

use qitos_conformance::mutants::provider::{Flaw, MutantProvider, shows_on};
use qitos_conformance::provider::{ProviderSubject, conformance};
use qitos_conformance::report::{Report, Status};
use qitos_conformance::run::RunOptions;

use super::super::TokioRuntime;
use super::{NAMES, subject};

fn run(subject: Arc<dyn ProviderSubject>, only: &[&str]) -> Report {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let mut options = RunOptions::default().on(Arc::new(TokioRuntime(runtime.handle().clone())));
    options.only = only.iter().map(|id| (*id).to_owned()).collect();
    conformance(subject, &options)
}

#[test]
fn every_built_in_provider_keeps_the_provider_contract_prv_17() {
    for name in NAMES {
        let report = run(subject(name).unwrap(), &[]).conforms().unwrap();
        println!("{report}");
    }
}

#[test]
fn each_wrong_provider_is_rejected_by_the_check_named_for_it() {
    let mut missed = Vec::new();
    for name in NAMES {
        let capabilities = subject(name).unwrap().capabilities();
        for flaw in Flaw::ALL
            .iter()
            .filter(|flaw| shows_on(**flaw, &capabilities))
        {
            let wrong = Arc::new(MutantProvider::new(subject(name).unwrap(), *flaw));
            let report = run(wrong, &[flaw.rejected_by()]);
            let check = report.check(flaw.rejected_by()).unwrap();
            println!("{name}, {flaw:?}: {} {}", check.id(), check.detail());
            if check.status() != Status::Fail {
                missed.push((name, flaw, check.id().to_owned()));
            }
        }
    }
    assert!(missed.is_empty(), "not rejected: {missed:?}");
}

#[test]
fn every_row_rejects_a_client_that_turns_its_verdict_around() {
    // A row whose streams are failures refuses whoever takes shown text for an answer or answers anyway; a row whose
    // streams are successes refuses whoever refuses everything.
    for name in NAMES {
        if subject(name).unwrap().dialect().is_none() {
            continue;
        }
        let wrong = |flaw| {
            let wrong = Arc::new(MutantProvider::new(subject(name).unwrap(), flaw));
            run(wrong, &["PRV-"])
        };
        let refuses = wrong(Flaw::RefusesEverything);
        let answers = wrong(Flaw::AnswersAnyway);
        for check in refuses.checks() {
            let also = answers.check(check.id()).unwrap();
            assert!(
                check.status() == Status::Fail || also.status() == Status::Fail,
                "{name}: {} rejects neither",
                check.id()
            );
        }
    }
}
