//! Time limits of one attempt (PRV-56, PRV-85).

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use qitos_contracts::model::TimeoutKind;
use tokio::time::Instant;

/// How long an attempt may wait, and for what.
///
/// One number for everything would either kill long answers or wait forever: each limit here answers
/// one question, and its kind stands in the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// Reaching the peer.
    pub connect: Duration,
    /// No byte, comments included; on streams also the wait for the status line.
    pub idle: Duration,
    /// No data event.
    pub progress: Duration,
    /// The whole attempt.
    pub total: Duration,
    /// A verified terminal whose body stays open without a further event.
    pub terminal_grace: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        TimeLimits {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            progress: Duration::from_secs(300),
            total: Duration::from_secs(180),
            terminal_grace: Duration::from_secs(5),
        }
    }
}

/// What the next wait may end with besides the awaited thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// The attempt fails.
    Timeout(TimeoutKind),
    /// The answer is complete and is judged as it stands.
    Grace,
}

impl Expiry {
    /// The kind that a failure names; a grace that ends is none by itself, so it counts as the total.
    pub(crate) fn kind(self) -> TimeoutKind {
        match self {
            Expiry::Timeout(kind) => kind,
            Expiry::Grace => TimeoutKind::Total,
        }
    }
}

/// The running limits of one attempt.
#[derive(Debug)]
pub(crate) struct Deadlines {
    limits: TimeLimits,
    started: Instant,
    last_byte: Instant,
    last_event: Instant,
    terminal: bool,
}

impl Deadlines {
    pub(crate) fn start(limits: TimeLimits) -> Self {
        let now = Instant::now();
        Deadlines {
            limits,
            started: now,
            last_byte: now,
            last_event: now,
            terminal: false,
        }
    }

    /// Bytes arrived; `event` if at least one data event was among them.
    pub(crate) fn received(&mut self, event: bool) {
        self.last_byte = Instant::now();
        if event {
            self.last_event = self.last_byte;
        }
    }

    /// From now on waiting too long is no failure.
    pub(crate) fn terminal_seen(&mut self) {
        self.terminal = true;
    }

    fn total(&self) -> Instant {
        self.started + self.limits.total
    }

    /// Waiting for the status line. Without streaming it comes after the whole answer was made.
    pub(crate) fn opening(&self, streaming: bool) -> (Instant, Expiry) {
        let header = self.started + self.limits.connect + self.limits.idle;
        if streaming && header < self.total() {
            (header, Expiry::Timeout(TimeoutKind::Header))
        } else {
            (self.total(), Expiry::Timeout(TimeoutKind::Total))
        }
    }

    /// Waiting for bytes of a body that is no stream.
    pub(crate) fn body(&self) -> (Instant, Expiry) {
        earliest(&[
            (self.total(), TimeoutKind::Total),
            (self.last_byte + self.limits.idle, TimeoutKind::Idle),
        ])
    }

    /// Waiting for bytes of a stream.
    pub(crate) fn streaming(&self) -> (Instant, Expiry) {
        if self.terminal {
            let grace = self.last_event + self.limits.terminal_grace;
            return (grace.min(self.total()), Expiry::Grace);
        }
        earliest(&[
            (self.total(), TimeoutKind::Total),
            (self.last_byte + self.limits.idle, TimeoutKind::Idle),
            (
                self.last_event + self.limits.progress,
                TimeoutKind::Progress,
            ),
        ])
    }
}

fn earliest(limits: &[(Instant, TimeoutKind)]) -> (Instant, Expiry) {
    let first = limits.iter().min_by_key(|(at, _)| *at);
    match first {
        Some((at, kind)) => (*at, Expiry::Timeout(*kind)),
        None => (Instant::now(), Expiry::Timeout(TimeoutKind::Total)),
    }
}

/// `future`, or `None` at the deadline, also if the future is ready then: a peer that always has more to say does not
/// outlast its limits. A future that is ready at once costs no timer.
pub(crate) async fn bounded<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    if Instant::now() >= deadline {
        return None;
    }
    let mut future = pin!(future);
    let ready = std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await;
    match ready {
        Some(output) => Some(output),
        None => tokio::time::timeout_at(deadline, future).await.ok(),
    }
}
