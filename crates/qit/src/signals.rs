//! What SIGINT and SIGTERM do to a run (CLI-8).

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit_code::ExitCode;

/// Listens for the signals that ask a run to end.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
}

impl Signals {
    /// Takes the signals over; where that is not possible they keep ending the process.
    pub(crate) fn listen() -> Self {
        Signals {
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
        }
    }

    /// Waits for the next signal and gives the exit status it stands for.
    ///
    /// # Cancel safety
    /// Dropping it loses no signal.
    pub(crate) async fn next(&mut self) -> ExitCode {
        tokio::select! {
            () = received(&mut self.interrupt) => ExitCode::Interrupted,
            () = received(&mut self.terminate) => ExitCode::Terminated,
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    if let Some(listener) = signal
        && listener.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}
