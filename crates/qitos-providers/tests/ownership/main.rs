//! Who owns what of an attempt, counted from outside (PRV-90 to PRV-96).
//!
//! A program of its own with one test: connections, descriptors, threads, tasks and bytes belong to the whole
//! process, and another test at work would disturb every count.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "every function here is part of a test; the lints only exempt the test functions themselves"
)]

mod dialects;
mod endings;
mod left_over;
#[path = "../it/setup.rs"]
#[allow(
    dead_code,
    reason = "shared with the other test program, which uses all of it"
)]
mod setup;

use peak_alloc::PeakAlloc;

use dialects::DIALECTS;
use left_over::LeftOver;

/// Counts what is allocated, and nothing else.
#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

#[test]
fn no_ending_of_an_attempt_leaves_anything_behind_prv_90_to_prv_96() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    for dialect in DIALECTS {
        // Whatever is made once per process is made before anything is counted.
        endings::every_ending(&runtime, dialect);
        let before = LeftOver::count(&runtime);
        endings::every_ending(&runtime, dialect);
        let polls = endings::dropped_after_every_poll(&runtime, dialect);
        before.assert_no_more(&runtime, dialect.name);
        println!("{}: dropped after {polls} different polls", dialect.name);
    }
    endings::ten_thousand_mixed(&runtime);
}
