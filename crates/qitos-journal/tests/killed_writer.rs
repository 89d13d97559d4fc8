//! A writer that is killed at any moment loses nothing that it had a receipt for (`persisted_is_true`).

#![expect(
    clippy::unwrap_used,
    reason = "a helper of tests; lints exempt only functions marked as such"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use qitos_contracts::clock::{CountingIds, ManualClock, Timestamp};
use qitos_journal::{JournalOptions, JournalReader, JournalWriter, Query, sample_record};

const DIRECTORY: &str = "QITOS_JOURNAL_TEST_DIRECTORY";

fn open(directory: &Path) -> JournalWriter {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(0)));
    let options = JournalOptions::new(clock, Arc::new(CountingIds::new(1)));
    JournalWriter::open(directory, options).unwrap().0
}

/// Not a test of its own: the child of the test below. Prints a sequence when its receipt is there.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let mut writer = open(Path::new(&directory));
    let mut output = std::io::stdout();
    loop {
        let sequence = writer.next_sequence();
        let appended = writer.append(&[sample_record(sequence).unwrap()]).unwrap();
        assert!(appended.durable);
        writeln!(output, "persisted {sequence}").unwrap();
        output.flush().unwrap();
    }
}

#[test]
fn nothing_persisted_is_lost_when_the_writer_is_killed() {
    // TRJ-45, TRJ-48; kit check `persisted_is_true`
    let directory = tempfile::tempdir().unwrap();
    let mut next = 0;
    for round in 0..6u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "child_that_appends_until_it_is_killed",
                "--nocapture",
            ])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut persisted = None;
        let mut receipts = 0;
        for line in output.lines() {
            let line = line.unwrap();
            // The harness may print on the same line.
            if let Some((_, sequence)) = line.split_once("persisted ") {
                persisted = sequence.trim().parse::<u64>().ok();
                receipts += 1;
                if receipts == 3 * round + 1 {
                    child.kill().unwrap();
                }
            }
        }
        child.wait().unwrap();
        let persisted = persisted.expect("a receipt");
        assert!(persisted >= next);
        let mut reader = JournalReader::open(directory.path()).unwrap();
        assert!(reader.watermark() >= Some(persisted), "round {round}");
        let mut cursor = Some(reader.page(&Query::all(), 100).unwrap());
        let mut sequence = 0;
        while let Some(page) = cursor {
            for record in &page.records {
                assert_eq!(record.sequence(), sequence);
                sequence += 1;
            }
            cursor = page
                .next_cursor
                .map(|next| reader.next_page(&next).unwrap());
        }
        next = persisted + 1;
        reader.validate().unwrap();
    }
    assert!(open(directory.path()).next_sequence() >= next);
}
