//! Gives records their place, seals and projects them, and offers them to the sinks (TRJ-7, TRJ-8).

use std::sync::Arc;

use qitos_contracts::error::{Performed, Retry};
use qitos_contracts::event::{DispatchReport, SinkError, SinkOperation};
use qitos_contracts::record::privacy::project_record;
use qitos_contracts::record::{PrivacyView, ProjectedRecord, Record, RecordError, SealedRecord};

use super::queue::{Lost, Offered, SinkQueue};
use super::{Dispatcher, announce};

const BETWEEN_LOSS_RECORDS_NS: u64 = 1_000_000_000;

/// What is decided in one order for all submitters; its lock is never held across an await.
#[derive(Debug)]
pub(super) struct Sequencer {
    pub(super) next: u64,
    pub(super) closed: bool,
    session_id: Option<Arc<str>>,
    run_id: Option<Arc<str>>,
}

impl Sequencer {
    pub(super) fn new(next: u64) -> Self {
        Sequencer {
            next,
            closed: false,
            session_id: None,
            run_id: None,
        }
    }
}

/// A record with its place, for all sinks but one.
struct Outgoing {
    sealed: Arc<SealedRecord>,
    except: Option<usize>,
}

/// What one sink was offered, for its submitter to wait for.
pub(super) struct Offer {
    pub(super) index: usize,
    pub(super) offered: Offered,
}

impl Dispatcher {
    /// Seals and offers the records to all sinks; `None` after close.
    pub(super) fn sequence(&self, drafts: Vec<Record>) -> Option<(Vec<Offer>, DispatchReport)> {
        let mut report = DispatchReport::default();
        let mut sequencer = self.sequencer();
        if sequencer.closed {
            let count = drafts.len() as u64;
            self.sinks.iter().for_each(|s| s.count_unoffered(count));
            return None;
        }
        if let Some(first) = drafts.first() {
            sequencer.session_id.clone_from(&first.session_id);
            sequencer.run_id.clone_from(&first.run_id);
        }
        let mut outgoing = Vec::with_capacity(drafts.len());
        if !drafts.is_empty() {
            self.add_losses(&mut sequencer, &mut outgoing, false);
        }
        let gaps = self.add_gaps(&mut sequencer, &mut outgoing, !drafts.is_empty());
        let now = self.clock.now();
        for draft in drafts {
            match draft.seal(sequencer.next, now) {
                Ok(sealed) => {
                    sequencer.next = sequencer.next.saturating_add(1);
                    outgoing.push(Outgoing {
                        sealed,
                        except: None,
                    });
                }
                Err(error) => self.refuse_everywhere(&error, &mut report),
            }
        }
        let offers = self.fan_out(&outgoing, &gaps, &mut report);
        drop(sequencer);
        Some((offers, report))
    }

    /// Gives the sequences again that a journal did not use since it had the records already (TRJ-42).
    ///
    /// With other sinks, or after a later submit, they are taken for good and the gap is announced.
    pub(super) fn take_back_unused(&self, sink: &SinkQueue) {
        let mut sequencer = self.sequencer();
        let mut state = sink.lock();
        let Some((first, last)) = state.unused.take() else {
            return;
        };
        let alone = state
            .gap
            .is_some_and(|gap| gap.first == first && !gap.announced);
        if alone && self.sinks.len() == 1 && sequencer.next == last.saturating_add(1) {
            sequencer.next = first;
            state.gap = None;
        }
    }

    /// Sends what other sinks lost without any record of a producer's.
    pub(super) fn announce_losses(&self, sequencer: &mut Sequencer, last_chance: bool) {
        let mut outgoing = Vec::new();
        self.add_losses(sequencer, &mut outgoing, last_chance);
        if outgoing.is_empty() {
            return;
        }
        let gaps = self.add_gaps(sequencer, &mut outgoing, true);
        let mut report = DispatchReport::default();
        for offer in self.fan_out(&outgoing, &gaps, &mut report) {
            if let Some((ticket, ..)) = offer.offered.waiting
                && let Some(sink) = self.sinks.get(offer.index)
            {
                // Nobody is there to wait.
                sink.give_up(ticket);
            }
        }
        let mut deferred = self
            .deferred
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        deferred.append(&mut report.failures);
    }

    /// One `loss` record per sink that lost something, at most one a second, for the others (SNK-11).
    ///
    /// A direct sink skips it only inside a gap that is announced right behind it: elsewhere its own
    /// sequence would break. The last chance ignores the second, so that nothing stays untold, and then
    /// tells a direct sink too if it has no gap.
    fn add_losses(&self, sequencer: &mut Sequencer, outgoing: &mut Vec<Outgoing>, last: bool) {
        if self.sinks.len() < 2 {
            return;
        }
        let (clock_ns, now) = (self.clock.monotonic_ns(), self.clock.now());
        for (index, sink) in self.sinks.iter().enumerate() {
            let mut state = sink.lock();
            let recent = state
                .published_at_ns
                .is_some_and(|at| clock_ns.saturating_sub(at) < BETWEEN_LOSS_RECORDS_NS);
            let heals = state.gap.is_some_and(|gap| !gap.announced);
            let skips = !sink.direct || state.ended.is_some() || heals;
            if state.unpublished.count() == 0 || (recent && !last) || !(skips || last) {
                continue;
            }
            let lost: Lost = std::mem::take(&mut state.unpublished);
            state.published_at_ns = Some(clock_ns);
            drop(state);
            let sink_id = &sink.capabilities.sink_id;
            let record = announce::loss(sink_id, lost, sequencer.next, now);
            self.add_own(sequencer, outgoing, record, skips.then_some(index));
        }
    }

    /// A `sink_gap` record for each direct sink that missed records; where each sink's part begins.
    fn add_gaps(
        &self,
        sequencer: &mut Sequencer,
        outgoing: &mut Vec<Outgoing>,
        wanted: bool,
    ) -> Vec<Option<(usize, u64)>> {
        let mut gaps = vec![None; self.sinks.len()];
        if !wanted {
            return gaps;
        }
        for (sink, place) in self.sinks.iter().zip(&mut gaps) {
            let open = {
                let state = sink.lock();
                state.gap.filter(|g| !g.announced && state.ended.is_none())
            };
            let (Some(gap), Some(last)) = (open, sequencer.next.checked_sub(1)) else {
                continue;
            };
            let now = self.clock.now();
            let sink_id = &sink.capabilities.sink_id;
            let record = announce::gap(sink_id, gap.first, last, sequencer.next, now);
            let begins = outgoing.len();
            self.add_own(sequencer, outgoing, record, None);
            if outgoing.len() > begins {
                *place = Some((begins, gap.first));
            }
        }
        gaps
    }

    fn add_own(
        &self,
        sequencer: &mut Sequencer,
        outgoing: &mut Vec<Outgoing>,
        mut record: Record,
        except: Option<usize>,
    ) {
        record.session_id.clone_from(&sequencer.session_id);
        record.run_id.clone_from(&sequencer.run_id);
        let sealed = record.seal_history(sequencer.next, self.clock.now().into());
        if let Ok(sealed) = sealed {
            sequencer.next = sequencer.next.saturating_add(1);
            outgoing.push(Outgoing { sealed, except });
        }
    }

    fn refuse_everywhere(&self, error: &RecordError, report: &mut DispatchReport) {
        for sink in &self.sinks {
            sink.count_unoffered(1);
            let failure = sink.failure(SinkOperation::Receive, refused(error));
            report.failures.push(failure);
        }
    }

    fn fan_out(
        &self,
        outgoing: &[Outgoing],
        gaps: &[Option<(usize, u64)>],
        report: &mut DispatchReport,
    ) -> Vec<Offer> {
        let mut views: Vec<(PrivacyView, Result<Vec<ProjectedRecord>, RecordError>)> = Vec::new();
        let mut offers = Vec::with_capacity(self.sinks.len());
        for (index, sink) in self.sinks.iter().enumerate() {
            if !views.iter().any(|(view, _)| *view == sink.view) {
                let projected = outgoing
                    .iter()
                    .map(|record| project_record(&record.sealed, sink.view))
                    .collect();
                views.push((sink.view, projected));
            }
            let Some((_, projected)) = views.iter().find(|(view, _)| *view == sink.view) else {
                continue;
            };
            let projected = match projected {
                Ok(projected) => projected,
                Err(error) => {
                    self.miss_all(sink, outgoing, error, report);
                    continue;
                }
            };
            let place = gaps.get(index).copied().flatten();
            let begins = place.map_or(0, |(begins, _)| begins);
            let records = outgoing
                .iter()
                .zip(projected)
                .skip(begins)
                .filter(|(record, _)| record.except != Some(index))
                .map(|(_, projected)| projected.clone())
                .collect();
            let offered = sink.offer(records, place.map(|(_, first)| first));
            offers.push(Offer { index, offered });
        }
        offers
    }

    /// A slice that cannot be shown in the view of a sink fails there as a whole.
    fn miss_all(
        &self,
        sink: &SinkQueue,
        outgoing: &[Outgoing],
        error: &RecordError,
        report: &mut DispatchReport,
    ) {
        let at = |record: Option<&Outgoing>| record.map(|record| record.sealed.sequence());
        let span = at(outgoing.first()).zip(at(outgoing.last()));
        sink.count_unprojected(outgoing.len() as u64, span);
        let failure = sink.failure(SinkOperation::Receive, refused(error));
        report.failures.push(failure);
    }
}

/// A record that no sink can get, with the record's own code.
fn refused(error: &RecordError) -> SinkError {
    let code = match error {
        RecordError::IdentityInvalid { .. } => "record_identity_invalid",
        RecordError::IdentityMissing { .. } => "record_identity_missing",
        RecordError::EventIdentityMissing { .. } => "missing_event_identity",
        RecordError::ViewWideningRefused { .. } => "view_widening_refused",
        RecordError::PayloadNotJson { .. } => "payload_not_json",
        _ => "invalid_record_field",
    };
    SinkError::Own {
        code,
        message: error.to_string().into(),
        retry: Retry::Never,
        performed: Performed::No,
    }
}
