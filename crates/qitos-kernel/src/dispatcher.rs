//! Hands records to sinks (placeholder while the dispatcher is being built).
use qitos_contracts::clock::Clock;
use qitos_contracts::event::DispatchReport;
use qitos_contracts::record::Record;
use std::sync::Arc;
/// Dispatcher.
#[derive(Debug)]
pub struct Dispatcher;
/// Outcome.
#[derive(Debug)]
pub struct Submitted {
    /// r
    pub report: DispatchReport,
    /// f
    pub required_failed: bool,
}
impl Dispatcher {
    /// New.
    pub fn new(_: Arc<dyn Clock>, _: u64) -> Self {
        Dispatcher
    }
    /// Register.
    pub fn register(
        &mut self,
        _: qitos_contracts::event::SinkRegistration,
    ) -> Result<(), qitos_contracts::event::SinkError> {
        Ok(())
    }
    /// Close.
    pub async fn close(&self, _: std::time::Instant) -> DispatchReport {
        DispatchReport::default()
    }
    /// Empty.
    pub fn is_empty(&self) -> bool {
        true
    }
    /// Submit.
    pub async fn submit(&self, _: Vec<Record>) -> Submitted {
        Submitted {
            report: DispatchReport::default(),
            required_failed: false,
        }
    }
}
