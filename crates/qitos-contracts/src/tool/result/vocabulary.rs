//! The words of the result format.

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every value, in the order of the specification.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The word as written.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }

            /// The value that `word` names.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($name::$variant),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// How a call ended.
    TerminalStatus {
        /// The tool gave a value.
        Success = "success",
        /// It failed, or was refused with an error.
        Error = "error",
        /// A rule kept it from starting.
        Skipped = "skipped",
        /// Its deadline passed.
        TimedOut = "timed_out",
        /// It was cancelled, before or after it started.
        Cancelled = "cancelled",
    }
}

words! {
    /// What is known about the external effect of a call.
    EffectState {
        /// The tool declared none.
        NoEffectDeclared = "no_effect_declared",
        /// Declared, and the tool was never entered.
        NotStarted = "not_started",
        /// The worker that may cause it still runs.
        Started = "started",
        /// The outside world took it.
        Committed = "committed",
        /// The outside world refused it.
        Rejected = "rejected",
        /// It may have happened.
        Unknown = "unknown",
        /// It may have happened, and somebody must find out.
        ReconciliationRequired = "reconciliation_required",
    }
}

words! {
    /// Whether a later call may repeat this one.
    RetryDisposition {
        /// Nobody judged.
        NotEvaluated = "not_evaluated",
        /// It may.
        Retryable = "retryable",
        /// It may not.
        NonRetryable = "non_retryable",
        /// Not while the worker runs.
        BlockedWorkerRunning = "blocked_worker_running",
        /// Not before the outcome is known.
        RequiresReconciliation = "requires_reconciliation",
    }
}

words! {
    /// The state of one slot in a batch closure (EXE-14).
    SlotClosure {
        /// No terminal yet.
        Open = "open",
        /// Ended in success.
        Success = "success",
        /// Ended in an error.
        Error = "error",
        /// Kept from starting.
        Skipped = "skipped",
        /// Ran past its deadline.
        TimedOut = "timed_out",
        /// Cancelled.
        Cancelled = "cancelled",
    }
}

impl From<TerminalStatus> for SlotClosure {
    fn from(status: TerminalStatus) -> Self {
        match status {
            TerminalStatus::Success => SlotClosure::Success,
            TerminalStatus::Error => SlotClosure::Error,
            TerminalStatus::Skipped => SlotClosure::Skipped,
            TerminalStatus::TimedOut => SlotClosure::TimedOut,
            TerminalStatus::Cancelled => SlotClosure::Cancelled,
        }
    }
}
