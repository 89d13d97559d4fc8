//! W5: appending to a journal under each sync policy, and reading back.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use qitos::kernel::system::{SystemClock, SystemIds};
use qitos::tracing::journal::{
    JournalOptions, JournalReader, Query, SyncPolicy, measure_appends, sample_record,
};

use crate::Outcome;
use crate::report::{Report, median};

/// Appends with a sync each; more would only wait for the disk.
const SYNCED: u64 = 500;
/// Records per page when everything is read back.
const PAGE: usize = 1_000;

fn options(sync: SyncPolicy) -> JournalOptions {
    JournalOptions::new(Arc::new(SystemClock::new()), Arc::new(SystemIds)).with_sync(sync)
}

/// Records per second of one `write` each, and per second with a data sync each.
fn floors(directory: &Path, records: u64) -> Outcome<(f64, f64)> {
    let record = sample_record(0)?;
    let bytes = record.canonical_bytes();
    let folder = tempfile::tempdir_in(directory)?;
    let mut file = std::fs::File::create(folder.path().join("floor"))?;
    let started = Instant::now();
    for _ in 0..records {
        file.write_all(bytes)?;
    }
    let written = records as f64 / started.elapsed().as_secs_f64();
    let mut file = std::fs::File::create(folder.path().join("synced"))?;
    let started = Instant::now();
    for _ in 0..SYNCED {
        file.write_all(bytes)?;
        file.sync_data()?;
    }
    Ok((written, SYNCED as f64 / started.elapsed().as_secs_f64()))
}

pub(crate) fn run(records: u64, directory: Option<&Path>, runs: u32) -> Outcome<Report> {
    let records = records.max(1);
    let temporary = std::env::temp_dir();
    let directory = directory.unwrap_or(&temporary);
    let mut samples: Vec<[f64; 8]> = Vec::new();
    for _ in 0..runs {
        let (write_floor, sync_floor) = floors(directory, records)?;
        let rate = |sync: SyncPolicy, records: u64, folder: &Path| -> Outcome<(f64, f64)> {
            let figures = measure_appends(folder, options(sync), records, 1)?;
            Ok((
                figures.records as f64 / figures.total.as_secs_f64(),
                figures.journal_bytes as f64 / figures.records as f64,
            ))
        };
        let unsynced_folder = tempfile::tempdir_in(directory)?;
        let (unsynced, bytes) = rate(SyncPolicy::Never, records, unsynced_folder.path())?;
        let group_folder = tempfile::tempdir_in(directory)?;
        let (group, _) = rate(SyncPolicy::Group, records, group_folder.path())?;
        let always_folder = tempfile::tempdir_in(directory)?;
        let (always, _) = rate(SyncPolicy::Always, SYNCED, always_folder.path())?;

        let started = Instant::now();
        let mut reader = JournalReader::open(unsynced_folder.path())?;
        let mut page = reader.page(&Query::all(), PAGE)?;
        let mut all = page.records.len() as u64;
        while let Some(cursor) = page.next_cursor {
            page = reader.next_page(&cursor)?;
            all += page.records.len() as u64;
        }
        let read = all as f64 / started.elapsed().as_secs_f64();
        if all != records {
            return Err(format!("{all} of {records} records were read").into());
        }
        let started = Instant::now();
        let page = reader.page(&Query::all().with_after(records / 2), 100)?;
        let page_us = started.elapsed().as_secs_f64() * 1e6;
        if records > 200 && page.records.len() != 100 {
            return Err("the page from the middle is not whole".into());
        }
        samples.push([
            write_floor,
            sync_floor,
            unsynced,
            group,
            always,
            bytes,
            read,
            page_us,
        ]);
    }
    let mut report = Report::new("journal");
    report.parameter("records", records);
    report.parameter("synced_records", SYNCED);
    report.parameter("runs", runs);
    let names = [
        "floor_writes_per_s",
        "floor_synced_writes_per_s",
        "unsynced_records_per_s",
        "group_records_per_s",
        "always_records_per_s",
        "stored_record_bytes",
        "read_records_per_s",
        "page_from_the_middle_us",
    ];
    for (index, name) in names.into_iter().enumerate() {
        let values = samples.iter().filter_map(|sample| sample.get(index));
        report.figure(name, median(values.copied()));
    }
    report.ratio(
        "always_to_synced_write",
        median(
            samples
                .iter()
                .map(|[_, synced, _, _, always, ..]| synced / always),
        ),
    );
    report.ratio(
        "unsynced_to_write",
        median(
            samples
                .iter()
                .map(|[written, _, unsynced, ..]| written / unsynced),
        ),
    );
    report.at_least("unsynced_records_per_s", 100_000.0);
    report.at_least("group_records_per_s", 50_000.0);
    report.at_most("always_to_synced_write", 1.5);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn more_records_than_one_query_returns_are_read_back() {
        // TRJ-60, TRJ-61
        let report = run(10_001, None, 1).unwrap();
        let value: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert!(value["figures"]["read_records_per_s"].as_f64().unwrap() > 0.0);
    }
}
