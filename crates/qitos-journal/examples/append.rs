//! Appends records to a fresh journal and prints what it cost: `append DIRECTORY RECORDS BATCH POLICY`.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use qitos_contracts::clock::{CountingIds, ManualClock, Timestamp};
use qitos_journal::{JournalOptions, SyncPolicy, measure_appends};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, records, batch, policy] = arguments.as_slice() else {
        return Err("usage: append DIRECTORY RECORDS BATCH always|group|never".into());
    };
    let sync = match policy.as_str() {
        "always" => SyncPolicy::Always,
        "group" => SyncPolicy::Group,
        "never" => SyncPolicy::Never,
        _ => return Err("the policy is always, group or never".into()),
    };
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(0)));
    let options = JournalOptions::new(clock, Arc::new(CountingIds::new(1))).with_sync(sync);
    let figures = measure_appends(
        Path::new(directory),
        options,
        records.parse()?,
        batch.parse()?,
    )?;
    println!("{figures:?}");
    println!(
        "{:.0} records/s",
        figures.records as f64 / figures.total.as_secs_f64()
    );
    Ok(())
}
