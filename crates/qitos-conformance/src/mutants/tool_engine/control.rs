//! The handle that the suite's tools have on a run, and the signals behind it.

use std::collections::HashSet;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use qitos_contracts::ids::SlotId;
use qitos_contracts::tool::Tool;

use super::Flaw;
use crate::tool::RunControl;

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A flag that can be polled and awaited.
#[derive(Clone, Default)]
pub(super) struct Signal(Arc<(AtomicBool, Mutex<Vec<Waker>>)>);

impl fmt::Debug for Signal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Signal({})", self.is_set())
    }
}

impl Signal {
    pub(super) fn set(&self) {
        let wakers = {
            let mut wakers = locked(&self.0.1);
            self.0.0.store(true, Ordering::SeqCst);
            std::mem::take(&mut *wakers)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.0.load(Ordering::SeqCst)
    }

    pub(super) async fn wait(&self) {
        poll_fn(|context| {
            let mut wakers = locked(&self.0.1);
            if self.is_set() {
                return Poll::Ready(());
            }
            wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// What the outside asks of a run.
#[derive(Debug, Default)]
pub(super) struct Control {
    pub(super) cancelled: Signal,
    pub(super) dropped: AtomicBool,
    pub(super) mailbox: Mutex<Vec<String>>,
    pub(super) intents: Mutex<HashSet<SlotId>>,
    pub(super) late_tools: Mutex<Vec<Arc<dyn Tool>>>,
    flaw: Option<Flaw>,
}

impl Control {
    pub(super) fn new(flaw: Option<Flaw>) -> Self {
        Control {
            flaw,
            ..Control::default()
        }
    }

    pub(super) fn take_mail(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.mailbox))
    }
}

impl RunControl for Control {
    fn cancel(&self) {
        self.cancelled.set();
    }

    fn steer(&self, text: &str) {
        locked(&self.mailbox).push(text.to_owned());
    }

    fn drop_run(&self) {
        self.dropped.store(true, Ordering::SeqCst);
        self.cancelled.set();
    }

    fn register(&self, tool: Arc<dyn Tool>) -> Result<(), String> {
        if self.flaw == Some(Flaw::RegistersDuringRun) {
            locked(&self.late_tools).push(tool);
            return Ok(());
        }
        Err("registry_frozen".into())
    }

    fn intent_is_durable(&self, slot: &SlotId) -> bool {
        locked(&self.intents).contains(slot)
    }
}
