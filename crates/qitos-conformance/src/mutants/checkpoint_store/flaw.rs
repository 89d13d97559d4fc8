//! The flaws of wrong checkpoint stores, and the checks that must reject them.

flaws!(
    /// Receipts of creates say generation 1.
    CreatesAtOne => "K1.create_zero",
    /// A second create is said to have succeeded.
    CreatesTwice => "K2.create_twice",
    /// The head stays at the first commit.
    ForgetsToMoveTheHead => "K3.advance_chain",
    /// A conflict of generations is said to be a success.
    IgnoresGenerations => "K4.stale_generation",
    /// A conflict of checkpoints is said to be a success.
    IgnoresCheckpoints => "K5.stale_checkpoint",
    /// A conflict of owners is said to be a success.
    IgnoresOwners => "K6.stale_owner",
    /// The owner is compared before the generation.
    ChecksOwnersFirst => "K7.check_order",
    /// A repeated request gets a receipt that looks new.
    HidesReplays => "K8.replay_same",
    /// A repeated request is a conflict once the head moved on.
    ForgetsOldRequests => "K9.replay_after_progress",
    /// An id that stands for other content is accepted.
    AcceptsReusedIds => "K10.id_reuse_other_content",
    /// An advance of a session that does not exist is accepted.
    AdvancesNothing => "K11.mixed_expectations",
    /// A root that names another parent is accepted.
    AcceptsForeignParents => "K12.payload_mismatch",
    /// Every lifecycle step is accepted.
    AcceptsAnyTransition => "K13.illegal_transition",
    /// The head is visible before its snapshot.
    ShowsHeadsEarly => "K15.atomic_visibility",
    /// A stored snapshot takes the lifecycle of its session's later commits.
    UpdatesOldSnapshots => "K16.isolation_of_returned_data",
    /// The bytes of the newest root are returned for older snapshots, too.
    ReplacesOldRoots => "K17.immutability",
    /// Lineages are listed oldest first.
    ListsOldestFirst => "K18.lineage_order_and_pages",
    /// The cursor of a page counts from the head of the moment.
    PagesByOffset => "K19.lineage_under_writes",
    /// A page holds whatever there is.
    IgnoresPageLimits => "K20.lineage_memory",
    /// A fork's child starts at generation 1.
    ForksAtOne => "K21.fork_basic",
    /// Repeating a fork is an error.
    ForksOnce => "K22.fork_idempotent",
    /// A fork operation is found by its id alone.
    ForksBlindly => "K23.fork_other_source",
    /// Only the head can be forked.
    ForksHeadsOnly => "K24.fork_history",
    /// Any snapshot can be forked.
    ForksAnything => "K25.fork_unsafe",
    /// A fork claims its source.
    ForksAndClaims => "K26.fork_source_untouched",
    /// A fenced owner's commit is said to have succeeded.
    LetsFencedOwnersCommit => "K28.restore_fences_old",
    /// Everybody who claims is told that they won.
    LetsEverybodyWin => "K29.n_restores_one_winner",
    /// A fenced owner is let in when it guesses the generation.
    LetsGuessesIn => "K30.fenced_steer",
    /// Some conflicts are lost in a storm and reported as successes.
    LosesCountInAStorm => "K42.cas_storm",
    /// Chunks are stored as text without U+0000.
    DropsNulCharacters => "K34.content_bytes",
    /// A dropped commit leaves the store busy for good.
    StaysBusyWhenDropped => "K44.cancel_everywhere",
    /// Each commit writes a little more than the one before.
    GrowsWithHistory => "K57.growth_law",
    /// A fork copies its source's history.
    ForksByCopying => "K58.fork_constant",
    /// A leaf comes back with its items in another order.
    ReordersItems => "K59.materialise_equals_flat",
    /// A commit with missing chunks is accepted.
    AcceptsHoles => "K60.closure_refused",
    /// Verification finds damage that is not there after a rewrite.
    MistrustsRewrites => "K61.rewrite_suffix",
    /// An absent group is claimed.
    ClaimsTooMuch => "K67.unsupported_is_typed",
    /// Appending an entry twice makes two entries.
    AppendsTwice => "K68.inbox_once",
    /// A commit is receipted before it is stored.
    ReceiptsEarly => "K38.kill_child_writer",
    /// A damaged root is treated as if nothing was there.
    TrustsStoredRoots => "K45.bitflip_each_layer",
    /// A missing chunk is left out of the answer.
    SkipsMissingChunks => "K46.missing_chunk_row",
    /// Lineages are ordered by time.
    OrdersByTime => "K65.clock_back",
    /// Lineages of equal times are ordered by snapshot id.
    OrdersEqualTimesById => "K66.equal_times",
);

/// Whether a flaw shows without hooks: the others need a subject with a child process, damage or a clock.
#[must_use]
pub fn shows_without_hooks(flaw: Flaw) -> bool {
    !matches!(
        flaw,
        Flaw::ReceiptsEarly
            | Flaw::TrustsStoredRoots
            | Flaw::SkipsMissingChunks
            | Flaw::OrdersByTime
            | Flaw::OrdersEqualTimesById
    )
}
