//! Appends a given number of records and times them, for benchmarks (workload W5).

use std::path::Path;
use std::time::{Duration, Instant};

use qitos_contracts::clock::Timestamp;
use qitos_contracts::record::privacy::project_record;
use qitos_contracts::record::{PrivacyView, ProjectedRecord, Record, RecordKind};

use crate::error::{JournalError, Place};
use crate::options::JournalOptions;
use crate::writer::JournalWriter;

/// What [`measure_appends`] saw.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AppendFigures {
    /// Records appended, one batch each.
    pub records: u64,
    /// Time of all appends, without making the records.
    pub total: Duration,
    /// Median time of one append among the last thousand.
    pub last_median: Duration,
    /// Bytes of the records.
    pub record_bytes: u64,
    /// Bytes written to segments.
    pub journal_bytes: u64,
    /// Data syncs.
    pub syncs: u64,
}

/// A record of the size of workload W5: 512 bytes of text and a 64-byte result.
///
/// # Errors
/// The codes of [`Record::seal`], which a sample does not cause.
pub fn sample_record(
    sequence: u64,
) -> Result<ProjectedRecord, qitos_contracts::record::RecordError> {
    let time = Timestamp::from_micros(1_767_225_600_000_000);
    let mut record = Record::new(RecordKind::ToolResult, format!("rec-{sequence}"), time);
    record.tool_call_id = Some(format!("call_{sequence:06}").into());
    record.run_id = Some("run-1".into());
    record.payload.insert("text".into(), "t".repeat(512).into());
    record
        .payload
        .insert("result".into(), "r".repeat(64).into());
    project_record(&record.seal(sequence, time)?, PrivacyView::RawPrivate)
}

/// Appends `records` sample records to the journal in `directory` in batches of `batch` and times it.
///
/// Records are made in portions before the clock runs, so that only appending is measured.
///
/// # Errors
/// As [`JournalWriter::open`] and [`JournalWriter::append`].
pub fn measure_appends(
    directory: &Path,
    options: JournalOptions,
    records: u64,
    batch: usize,
) -> Result<AppendFigures, JournalError> {
    const PORTION: u64 = 1_000;
    let (mut writer, _) = JournalWriter::open(directory, options)?;
    let mut figures = AppendFigures {
        records: 0,
        total: Duration::ZERO,
        last_median: Duration::ZERO,
        record_bytes: 0,
        journal_bytes: 0,
        syncs: 0,
    };
    let mut last = Vec::new();
    while figures.records < records {
        let first = writer.next_sequence();
        let count = PORTION.min(records - figures.records);
        let portion: Vec<ProjectedRecord> = (first..first + count)
            .map(sample_record)
            .collect::<Result<_, _>>()
            .map_err(|source| JournalError::Record {
                place: Place {
                    segment: String::new(),
                    offset: 0,
                },
                source,
            })?;
        last.clear();
        for slice in portion.chunks(batch.max(1)) {
            let start = Instant::now();
            let appended = writer.append(slice)?;
            let elapsed = start.elapsed();
            figures.total += elapsed;
            figures.journal_bytes += appended.bytes_written;
            last.push(elapsed);
        }
        figures.records += count;
        figures.record_bytes += portion
            .iter()
            .map(|record| record.canonical_bytes().len() as u64)
            .sum::<u64>();
    }
    let start = Instant::now();
    writer.close()?;
    figures.total += start.elapsed();
    figures.syncs = writer.syncs();
    last.sort_unstable();
    figures.last_median = last.get(last.len() / 2).copied().unwrap_or_default();
    Ok(figures)
}
