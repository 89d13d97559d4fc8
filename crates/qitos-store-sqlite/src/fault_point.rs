//! Where a test may stop or break the store; nothing here exists for users.
//!
//! A store opened the ordinary way carries no fault plan, and passing a point costs one branch.

use std::fmt;
use std::sync::Arc;

/// A place on the way of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Point {
    /// Before the exclusive transaction of a migration.
    MigrationBegin,
    /// After one step of a migration.
    MigrationStep,
    /// Before a migration becomes visible.
    MigrationCommit,
    /// Before BEGIN IMMEDIATE.
    BeforeBegin,
    /// After BEGIN IMMEDIATE.
    AfterBegin,
    /// After the chunks are inserted.
    AfterChunks,
    /// After the snapshot row is inserted.
    AfterSnapshot,
    /// After the head has moved.
    AfterHead,
    /// Before COMMIT.
    BeforeCommit,
    /// After COMMIT, before any reply.
    AfterCommit,
    /// After the replies.
    AfterReply,
}

impl Point {
    /// The points of one commit, in the order in which they are passed.
    pub const OF_A_COMMIT: [Point; 8] = [
        Point::BeforeBegin,
        Point::AfterBegin,
        Point::AfterChunks,
        Point::AfterSnapshot,
        Point::AfterHead,
        Point::BeforeCommit,
        Point::AfterCommit,
        Point::AfterReply,
    ];
}

/// What the store is made to believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The engine reports a full disk.
    DiskFull,
    /// COMMIT reports an I/O error although the transaction became durable.
    CommitErrorAfter,
    /// COMMIT reports an I/O error and the transaction is gone.
    CommitErrorBefore,
}

/// A test's plan.
pub trait FaultPlan: fmt::Debug + Send + Sync + 'static {
    /// Called at each point; may end the process, may ask for a fault.
    fn reached(&self, point: Point) -> Option<InjectedFault>;
}

/// The plan of one store, usually none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Option<Arc<dyn FaultPlan>>);

impl Faults {
    pub(crate) fn planned(plan: Arc<dyn FaultPlan>) -> Self {
        Faults(Some(plan))
    }

    pub(crate) fn reached(&self, point: Point) -> Option<InjectedFault> {
        self.0.as_ref().and_then(|plan| plan.reached(point))
    }

    pub(crate) fn pass(&self, point: Point) {
        let _ = self.reached(point);
    }
}
