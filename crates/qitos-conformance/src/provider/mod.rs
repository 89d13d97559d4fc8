//! The Provider contract (provider specification, PRV-17), for any [`Model`](qitos_contracts::model::Model) with its
//! codec.
//!
//! Implement [`ProviderSubject`] for your provider and call [`conformance`]:
//!
//! ```text
//! let report = qitos_conformance::provider::conformance(Arc::new(MySubject), &RunOptions::default());
//! report.conforms().unwrap();
//! ```
//!
//! The models under test speak to a [`ScriptedPeer`], which plays written replies and sees every connection; the
//! subject says how an [`Answer`] is written in its dialect and where its terminal is. Everything between, from the
//! transport's first call to the decoded response, is the provider's own.
//!
//! Eighteen checks hold for every provider. Clients of a [`Dialect`] whose streams the specification lists row by row
//! also replay its fixtures: checks `PRV-S1` to `PRV-S14`, and `PRV-C1`, `PRV-R1` or `PRV-A1` onwards.

mod closing;
mod construction;
mod continuation;
mod decoding;
mod encoding;
mod exchange;
mod expect;
mod peer;
mod records;
mod redaction;
mod row_tables;
mod rows;
mod subject;
mod terminals;
mod views;

use std::sync::Arc;

use crate::check::Check;
use crate::report::Report;
use crate::run::{RunOptions, run_checks};

pub use peer::{
    Ending, PeerAnswer, PeerBody, PeerConnection, PeerLost, Reply, ReplyBody, ScriptedPeer,
};
pub use rows::{Dialect, STREAM_FIXTURES, StreamFixture};
pub use subject::{Answer, AnswerCall, Form, ProviderSubject, Setup, WireForm};

/// The word for this mechanism in reports and on the command line.
pub const MECHANISM: &str = "provider";

/// Runs the whole suite: the checks for every provider, and the rows of its dialect if it has one.
pub fn conformance(subject: Arc<dyn ProviderSubject>, options: &RunOptions) -> Report {
    let name = subject.name().to_owned();
    let mut all = checks();
    if let Some(dialect) = subject.dialect() {
        all.extend(rows::checks(dialect));
    }
    run_checks(MECHANISM, &name, subject, &all, options)
}

/// The checks for every provider, in the order of the specification.
#[must_use]
pub fn checks() -> Vec<Check<dyn ProviderSubject>> {
    const ORDER: [&str; 18] = [
        "capabilities_round_trip",
        "view_round_trip",
        "report_round_trip",
        "no_secret_keys_in_payload",
        "undeclared_loss_refused",
        "unsupported_refused_before_send",
        "construction_sends_nothing",
        "part_order",
        "deltas_equal_text",
        "no_success_without_terminal",
        "half_call_never_returned",
        "usage_unknown_stays_unknown",
        "failure_is_redacted",
        "consumer_error_unchanged",
        "drop_closes",
        "cancel_twice",
        "no_streaming_claim_one_chunk",
        "continuation_missing_fails",
    ];
    let mut all = Vec::new();
    all.extend(records::checks());
    all.extend(encoding::checks());
    all.extend(construction::checks());
    all.extend(decoding::checks());
    all.extend(terminals::checks());
    all.extend(redaction::checks());
    all.extend(closing::checks());
    all.extend(continuation::checks());
    all.sort_by_key(|check| ORDER.iter().position(|id| *id == check.id()));
    all
}

/// The rows of one dialect's tables, and further rules that it has fixtures for.
#[must_use]
pub fn row_checks(dialect: Dialect) -> Vec<Check<dyn ProviderSubject>> {
    rows::checks(dialect)
}
