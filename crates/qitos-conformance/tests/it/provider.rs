//! A provider that a third party wrote passes the provider suite; each flaw of it is rejected by the check named for it.

#![expect(clippy::unwrap_used, reason = "its names are constant words")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use qitos_conformance::mutants::provider::{Flaw, MutantProvider, shows_on};
use qitos_conformance::provider::{
    Answer, Dialect, Form, ProviderSubject, STREAM_FIXTURES, ScriptedPeer, Setup, WireForm, checks,
    conformance, row_checks,
};
use qitos_conformance::report::Status;
use qitos_conformance::run::RunOptions;
use qitos_contracts::model::{
    FailureCategory, FailureStage, Model, ProviderCapabilities, ProviderFailure, RequestSent,
    Target,
};
use serde_json::json;

use super::plain_provider::{PlainModel, Post};

#[derive(Debug)]
struct Scripted(ScriptedPeer);

#[async_trait]
impl Post for Scripted {
    async fn post(&self, body: Vec<u8>) -> Option<(u16, Vec<u8>)> {
        let mut answer = self.0.request(&body).await.ok()?;
        let mut read = Vec::new();
        while let Some(piece) = answer.body.next_piece().await.ok()? {
            read.extend(piece);
        }
        Some((answer.status, read))
    }
}

struct Plain;

impl Plain {
    fn model(peer: &ScriptedPeer, name: &str) -> Result<PlainModel, Box<ProviderFailure>> {
        PlainModel::new(name, Box::new(Scripted(peer.clone()))).map_err(|_| {
            let target = Target::new("plain", "unnamed", "post", "plain").unwrap();
            Box::new(ProviderFailure::new(
                &target,
                FailureCategory::ProviderException,
                "provider_client_construction_failed",
                FailureStage::Connection,
                RequestSent::No,
                "the model has no name",
            ))
        })
    }
}

impl ProviderSubject for Plain {
    fn name(&self) -> &str {
        "plain"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        let model = Plain::model(&ScriptedPeer::new(Vec::new()), "plain-1").unwrap();
        model.capabilities().clone()
    }

    fn build(&self, setup: &Setup) -> Result<Arc<dyn Model>, Box<ProviderFailure>> {
        Ok(Arc::new(Plain::model(&setup.peer, "plain-1")?))
    }

    fn build_flawed(&self, setup: &Setup) -> Option<Result<Arc<dyn Model>, Box<ProviderFailure>>> {
        let built = Plain::model(&setup.peer, "");
        Some(built.map(|model| Arc::new(model) as Arc<dyn Model>))
    }

    fn wire(&self, answer: &Answer, _: Form) -> Option<WireForm> {
        let body = json!({"text": answer.joined_text(), "done": true});
        Some(WireForm::whole("application/json", body.to_string()))
    }
}

#[test]
fn the_plain_provider_keeps_the_provider_contract() {
    let report = conformance(Arc::new(Plain), &RunOptions::default())
        .conforms()
        .unwrap();
    println!("{report}");
    let unclaimed: Vec<&str> = report
        .checks()
        .iter()
        .filter(|check| check.status() == Status::NotClaimed)
        .map(|check| check.id())
        .collect();
    assert_eq!(
        unclaimed,
        ["half_call_never_returned", "continuation_missing_fails"]
    );
}

#[test]
fn every_flaw_names_a_check_and_every_check_has_a_flaw() {
    let ids: Vec<&str> = checks().iter().map(|check| check.id()).collect();
    assert_eq!(ids.len(), 18, "PRV-17");
    for flaw in Flaw::ALL {
        assert!(ids.contains(&flaw.rejected_by()), "{flaw:?}");
    }
    for id in ids {
        assert!(
            Flaw::ALL.iter().any(|flaw| flaw.rejected_by() == id),
            "{id}"
        );
    }
}

#[test]
fn each_wrong_plain_provider_is_rejected_by_the_check_named_for_it() {
    let capabilities = Plain.capabilities();
    let mut missed = Vec::new();
    for flaw in Flaw::ALL
        .iter()
        .filter(|flaw| shows_on(**flaw, &capabilities))
    {
        let options = RunOptions::default().only(flaw.rejected_by());
        let wrong = Arc::new(MutantProvider::new(Arc::new(Plain), *flaw));
        let report = conformance(wrong, &options);
        let check = report.check(flaw.rejected_by()).unwrap();
        println!("{flaw:?}: {} {}", check.id(), check.detail());
        if check.status() != Status::Fail {
            missed.push((flaw, check.id().to_owned(), check.status()));
        }
    }
    assert!(missed.is_empty(), "not rejected: {missed:?}");
}

#[test]
fn the_guide_shows_the_provider_that_is_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide =
        std::fs::read_to_string(root.join("../../docs/guides/write-a-provider.md")).unwrap();
    let code = std::fs::read_to_string(root.join("tests/it/plain_provider.rs")).unwrap();
    assert!(code.lines().count() < 80);
    assert!(
        guide.contains(&format!("```rust\n{code}```\n")),
        "copy tests/it/plain_provider.rs into the guide"
    );
    for check in checks() {
        assert!(
            guide.contains(&format!("`{}`", check.id())),
            "{}",
            check.id()
        );
    }
}

#[test]
fn every_fixture_of_a_dialect_is_in_the_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/provider-streams");
    let mut there = BTreeSet::new();
    for dialect in std::fs::read_dir(&folder).unwrap() {
        let dialect = dialect.unwrap().path();
        for file in std::fs::read_dir(&dialect).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            if let Some(case) = name.strip_suffix(".sse") {
                let dialect = dialect.file_name().unwrap().to_str().unwrap();
                there.insert((dialect.to_owned(), case.to_owned()));
            }
        }
    }
    let known: BTreeSet<(String, String)> = STREAM_FIXTURES
        .iter()
        .map(|fixture| (fixture.dialect.to_owned(), fixture.case.to_owned()))
        .collect();
    assert!(!known.is_empty());
    assert_eq!(there, known);
    for fixture in STREAM_FIXTURES {
        let path = folder.join(fixture.dialect).join(fixture.case);
        let bytes = std::fs::read(path.with_extension("sse")).unwrap();
        assert_eq!(bytes, fixture.bytes, "{}", fixture.case);
        let expected: serde_json::Value = serde_json::from_str(fixture.expected).unwrap();
        assert_eq!(expected["rule"], fixture.rules[0], "{}", fixture.case);
    }
}

#[test]
fn each_row_of_the_tables_is_a_check() {
    for (dialect, letter, rows) in [
        (Dialect::OpenAiChat, 'C', 31),
        (Dialect::OpenAiResponses, 'R', 22),
        (Dialect::Anthropic, 'A', 25),
    ] {
        let checks = row_checks(dialect);
        let ids: BTreeSet<&str> = checks.iter().map(|check| check.id()).collect();
        assert_eq!(ids.len(), checks.len(), "{dialect:?}");
        for number in 1..=14 {
            assert!(ids.contains(format!("PRV-S{number}").as_str()));
        }
        for number in 1..=rows {
            assert!(ids.contains(format!("PRV-{letter}{number}").as_str()));
        }
    }
}
