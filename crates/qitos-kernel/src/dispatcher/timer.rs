//! Deadlines that need no runtime: one thread that wakes whoever waits (SNK-15).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

#[derive(Debug, Default)]
struct Alarms {
    waiting: Vec<(Instant, oneshot::Sender<()>)>,
    running: bool,
    ended: bool,
}

/// Wakes futures at instants; its thread starts with the first wait.
#[derive(Debug, Default)]
pub(super) struct Timer {
    shared: Arc<(Mutex<Alarms>, Condvar)>,
}

fn lock(alarms: &Mutex<Alarms>) -> MutexGuard<'_, Alarms> {
    alarms.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Timer {
    /// Returns at `until`, or at once if no thread can be had.
    ///
    /// # Cancel safety
    /// Dropping means nothing happened.
    pub(super) async fn at(&self, until: Instant) {
        let (alarm, rings) = oneshot::channel();
        {
            let mut alarms = lock(&self.shared.0);
            // Whoever stopped waiting must not be remembered until its deadline.
            alarms.waiting.retain(|(_, waiter)| !waiter.is_closed());
            alarms.waiting.push((until, alarm));
            if !alarms.running {
                let shared = Arc::clone(&self.shared);
                alarms.running = std::thread::Builder::new()
                    .name("qitos-sink-timer".into())
                    .spawn(move || run(&shared))
                    .is_ok();
                if !alarms.running {
                    alarms.waiting.clear();
                }
            }
        }
        self.shared.1.notify_one();
        let _ = rings.await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        lock(&self.shared.0).ended = true;
        self.shared.1.notify_one();
    }
}

fn run(shared: &(Mutex<Alarms>, Condvar)) {
    let mut alarms = lock(&shared.0);
    while !alarms.ended {
        let now = Instant::now();
        // Dropping the sender wakes the waiter.
        alarms
            .waiting
            .retain(|(until, waiter)| *until > now && !waiter.is_closed());
        let next = alarms.waiting.iter().map(|(until, _)| *until).min();
        alarms = match next {
            None => shared
                .1
                .wait(alarms)
                .unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = until.saturating_duration_since(now);
                let (guard, _) = shared
                    .1
                    .wait_timeout(alarms, left)
                    .unwrap_or_else(PoisonError::into_inner);
                guard
            }
        };
    }
}
