//! One check: a sentence of a contract, made executable.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::{Runtime, block_on};

/// Why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A failure with its explanation: what was expected and what was seen.
    #[must_use]
    pub fn new(explanation: impl Into<String>) -> Self {
        Failure(explanation.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What a check's body returns.
pub type Verdict = Result<(), Failure>;

/// What a subject must have for a check to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A claim: a capability or a durability class. Without it the check is `not_claimed`.
    Claim(&'static str),
    /// A hook that only tests have. Without it the check is `not_claimed`.
    Hook(&'static str),
    /// A hook without which a claim cannot be proved. Without it the check fails, once its claims are made: a
    /// claimed capability with a skipped check is a failure.
    OwedHook(&'static str),
}

/// What the subject has of a [`Need`], and why not.
pub trait Claims {
    /// Whether the claim is made.
    fn claims(&self, name: &str) -> bool;
    /// Whether the hook is there.
    fn has_hook(&self, name: &str) -> bool;
}

/// The subject of a check, and the runtime to drive it with.
pub struct Stage<S: ?Sized> {
    runtime: Arc<dyn Runtime>,
    subject: Arc<S>,
}

impl<S: ?Sized> Clone for Stage<S> {
    fn clone(&self) -> Self {
        Stage {
            runtime: Arc::clone(&self.runtime),
            subject: Arc::clone(&self.subject),
        }
    }
}

impl<S: ?Sized> fmt::Debug for Stage<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Stage").finish_non_exhaustive()
    }
}

impl<S: ?Sized + Send + Sync + 'static> Stage<S> {
    /// A subject on a runtime.
    #[must_use]
    pub fn new(subject: Arc<S>, runtime: Arc<dyn Runtime>) -> Self {
        Stage { runtime, subject }
    }

    /// The subject.
    #[must_use]
    pub fn subject(&self) -> &Arc<S> {
        &self.subject
    }

    /// Runs `work` on `count` threads at once and returns the results in the order of their numbers.
    ///
    /// # Errors
    /// The first failure, or one that tells of a thread that panicked or could not start.
    pub fn on_threads<T, F, W>(&self, count: usize, work: W) -> Result<Vec<T>, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>>,
        W: Fn(usize, Stage<S>) -> F + Send + Sync + 'static,
    {
        let work = Arc::new(work);
        let mut threads = Vec::with_capacity(count);
        for number in 0..count {
            let (work, stage) = (Arc::clone(&work), self.clone());
            let thread = std::thread::Builder::new()
                .name(format!("conformance-{number}"))
                .spawn(move || {
                    let runtime = Arc::clone(&stage.runtime);
                    block_on(&*runtime, work(number, stage))
                })
                .map_err(|error| Failure::new(format!("a thread did not start: {error}")))?;
            threads.push(thread);
        }
        let mut results = Vec::with_capacity(count);
        for thread in threads {
            match thread.join() {
                Ok(Some(result)) => results.push(result),
                Ok(None) => return Err(Failure::new("the runtime did not finish a future")),
                Err(_) => return Err(Failure::new("a thread panicked")),
            }
        }
        results.into_iter().collect()
    }
}

type Body<S> = dyn Fn(Stage<S>) -> Pin<Box<dyn Future<Output = Verdict>>> + Send + Sync;

/// A named check over subjects of one kind.
pub struct Check<S: ?Sized> {
    id: &'static str,
    sentence: &'static str,
    rules: &'static [&'static str],
    needs: &'static [Need],
    limit: Duration,
    body: Arc<Body<S>>,
}

impl<S: ?Sized> Clone for Check<S> {
    fn clone(&self) -> Self {
        Check {
            body: Arc::clone(&self.body),
            ..*self
        }
    }
}

impl<S: ?Sized> fmt::Debug for Check<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Check")
            .field("id", &self.id)
            .field("rules", &self.rules)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

impl<S: ?Sized + Send + Sync + 'static> Check<S> {
    /// A check without needs and with a time limit of 60 s.
    ///
    /// `id` is its name as printed, with its number in front where it has one (decision 23); `sentence` is what the
    /// contract says; `rules` are the ids of the rules it proves.
    pub fn new<F, B>(
        id: &'static str,
        sentence: &'static str,
        rules: &'static [&'static str],
        body: B,
    ) -> Self
    where
        F: Future<Output = Verdict> + 'static,
        B: Fn(Stage<S>) -> F + Send + Sync + 'static,
    {
        Check {
            id,
            sentence,
            rules,
            needs: &[],
            limit: Duration::from_secs(60),
            body: Arc::new(move |stage| Box::pin(body(stage))),
        }
    }

    /// The same check with what its subject must have.
    #[must_use]
    pub fn needing(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }

    /// The same check with another time limit.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Its name as printed, such as `K1.create_zero`.
    #[must_use]
    pub fn id(&self) -> &'static str {
        self.id
    }

    /// What the contract says.
    #[must_use]
    pub fn sentence(&self) -> &'static str {
        self.sentence
    }

    /// The rules it proves.
    #[must_use]
    pub fn rules(&self) -> &'static [&'static str] {
        self.rules
    }

    /// What its subject must have.
    #[must_use]
    pub fn needs(&self) -> &'static [Need] {
        self.needs
    }

    /// How long it may take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn start(&self, stage: Stage<S>) -> Pin<Box<dyn Future<Output = Verdict>>> {
        (self.body)(stage)
    }
}

/// Fails the check, with an explanation, unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($explanation:tt)+) => {
        if !$condition {
            return Err($crate::check::Failure::new(format!($($explanation)+)));
        }
    };
}
pub(crate) use ensure;
