//! The checkpoint store contract (session specification, section 20), for any [`CheckpointStore`].
//!
//! Implement [`StoreSubject`] for your store and call [`conformance`]:
//!
//! ```text
//! let report = qitos_conformance::checkpoint_store::conformance(Arc::new(MySubject), &RunOptions::default());
//! report.conforms().unwrap();
//! ```
//!
//! Groups: commit (K1 to K7), replay (K8 to K10), requests (K11 to K14), visibility (K15 to K17), lineage (K18 to
//! K20), fork (K21 to K27), fencing (K28 to K30, K42), bytes (K34, K35), crash (K36 to K38), cancellation (K44),
//! damage (K45, K46), incremental (K57 to K61), clocks (K65, K66), capabilities (K67), inbox (K68).

mod bytes;
mod cancellation;
mod capabilities;
mod clocks;
mod commit;
mod crash;
mod damage;
mod expect;
mod fencing;
mod fork;
mod history;
mod inbox;
mod incremental;
mod lineage;
mod replay;
mod requests;
mod subject;
mod visibility;

use std::sync::Arc;

use qitos_contracts::checkpoint::CheckpointStore;

use crate::check::Check;
use crate::report::Report;
use crate::run::{RunOptions, run_checks};

pub use crash::serve_writer;
pub use subject::{Damage, DamageLayer, Effort, StoreSubject};

/// The word for this mechanism in reports and on the command line.
pub const MECHANISM: &str = "checkpoint-store";

/// Runs the whole suite.
pub fn conformance(subject: Arc<dyn StoreSubject>, options: &RunOptions) -> Report {
    let name = subject.name().to_owned();
    run_checks(MECHANISM, &name, subject, &checks(), options)
}

/// All checks in the order of the specification.
#[must_use]
pub fn checks() -> Vec<Check<dyn StoreSubject>> {
    let mut all = Vec::new();
    all.extend(commit::checks());
    all.extend(replay::checks());
    all.extend(requests::checks());
    all.extend(visibility::checks());
    all.extend(lineage::checks());
    all.extend(fork::checks());
    all.extend(fencing::checks());
    all.extend(bytes::checks());
    all.extend(crash::checks());
    all.extend(cancellation::checks());
    all.extend(damage::checks());
    all.extend(incremental::checks());
    all.extend(clocks::checks());
    all.extend(capabilities::checks());
    all.extend(inbox::checks());
    all
}

type StorePointer = Arc<dyn CheckpointStore>;
