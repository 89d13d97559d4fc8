//! A writer that is killed at any moment loses nothing that it had a receipt for (`persisted_is_true`).
//!
//! The writer is this test binary, started again with a task in its environment. It sends the same batches from the
//! first one on, whatever is stored already, and names each batch once its receipt says `persisted`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper of tests; lints exempt only functions marked as such"
)]

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qitos_contracts::clock::{CountingIds, ManualClock, Timestamp};
use qitos_contracts::record::privacy::project_record;
use qitos_contracts::record::{PrivacyView, ProjectedRecord, Record, RecordKind};
use qitos_journal::storage::{DirectoryStorage, Storage, StoredFile};
use qitos_journal::{
    JournalOptions, JournalReader, JournalWriter, Query, SEGMENT_BYTES_RANGE, SyncPolicy,
};
use rustix::process::{Signal, getpid, kill_process};

const TASK: &str = "QITOS_JOURNAL_TEST_TASK";
const BATCHES: u64 = 12;

/// When the writer dies, by the operations that change something on the disk, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Never,
    Before(u64),
    /// Half of what is to be appended is written; as `Before` if nothing is.
    Within(u64),
    After(u64),
}

impl Death {
    const WORDS: [&str; 4] = ["never", "before", "within", "after"];

    fn words(self) -> (&'static str, u64) {
        match self {
            Death::Never => ("never", 0),
            Death::Before(number) => ("before", number),
            Death::Within(number) => ("within", number),
            Death::After(number) => ("after", number),
        }
    }

    fn read(word: &str, number: u64) -> Death {
        match Self::WORDS.iter().position(|known| *known == word) {
            Some(1) => Death::Before(number),
            Some(2) => Death::Within(number),
            Some(3) => Death::After(number),
            _ => Death::Never,
        }
    }
}

fn die() {
    kill_process(getpid(), Signal::KILL).unwrap();
}

/// Counts what changes the disk, and kills the process on its way.
#[derive(Debug)]
struct Plan {
    death: Death,
    passed: AtomicU64,
}

impl Plan {
    /// Does something to the disk, or a half of it, or dies.
    fn change<T>(
        &self,
        half: impl FnOnce() -> io::Result<()>,
        whole: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let number = self.passed.fetch_add(1, Ordering::SeqCst) + 1;
        if self.death == Death::Before(number) {
            die();
        }
        if self.death == Death::Within(number) {
            half()?;
            die();
        }
        let done = whole();
        if self.death == Death::After(number) {
            die();
        }
        done
    }
}

#[derive(Debug)]
struct Deadly {
    storage: DirectoryStorage,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct DeadlyFile {
    file: Box<dyn StoredFile>,
    plan: Arc<Plan>,
}

impl Deadly {
    fn wrap(&self, file: Box<dyn StoredFile>) -> Box<dyn StoredFile> {
        let plan = Arc::clone(&self.plan);
        Box::new(DeadlyFile { file, plan })
    }
}

fn nothing() -> io::Result<()> {
    Ok(())
}

impl Storage for Deadly {
    fn names(&self) -> io::Result<Vec<String>> {
        self.storage.names()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        self.storage.open(name)
    }

    fn open_append(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        self.storage.open_append(name).map(|file| self.wrap(file))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let made = self.plan.change(nothing, || self.storage.create(name));
        made.map(|file| self.wrap(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.plan.change(nothing, || self.storage.rename(from, to))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.plan.change(nothing, || self.storage.sync_directory())
    }
}

impl StoredFile for DeadlyFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = std::cell::RefCell::new(&mut self.file);
        let half = || {
            file.borrow_mut()
                .append(&bytes[..bytes.len() / 2])
                .map(drop)
        };
        self.plan.change(half, || file.borrow_mut().append(bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.plan.change(nothing, || self.file.sync())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.plan.change(nothing, || self.file.truncate(length))
    }
}

fn options() -> JournalOptions {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(0)));
    JournalOptions::new(clock, Arc::new(CountingIds::new(1)))
        .with_segment_bytes(*SEGMENT_BYTES_RANGE.start())
}

/// Records in a batch.
fn records_of(batch: u64) -> u64 {
    1 + batch % 3
}

fn record_id(batch: u64, index: u64) -> String {
    format!("batch-{batch}-{index}")
}

fn batch(number: u64, first_sequence: u64, characters: usize) -> Vec<ProjectedRecord> {
    let time = Timestamp::from_micros(1_767_225_600_000_000);
    let text = "t".repeat(characters);
    (0..records_of(number))
        .map(|index| {
            let id = record_id(number, index);
            let mut record = Record::new(RecordKind::Run, id, time);
            record.run_id = Some("run-1".into());
            record.payload.insert("text".into(), text.as_str().into());
            let sealed = record.seal(first_sequence + index, time).unwrap();
            project_record(&sealed, PrivacyView::RawPrivate).unwrap()
        })
        .collect()
}

/// Not a test of its own: the writer that the tests below kill.
#[test]
fn the_writer_appends_until_it_is_killed() {
    let Some(task) = std::env::var_os(TASK) else {
        return;
    };
    let task = task.into_string().unwrap();
    let words: Vec<&str> = task.splitn(5, ' ').collect();
    let death = Death::read(words[0], words[1].parse().unwrap());
    let plan = Arc::new(Plan {
        death,
        passed: AtomicU64::new(0),
    });
    let storage = DirectoryStorage::new(words[4]);
    storage.create_directory().unwrap();
    let storage = Arc::new(Deadly { storage, plan });
    // The large ones fill a segment once.
    let (sync, characters) = match words[2] {
        "group" => (SyncPolicy::Group, 300),
        "large" => (SyncPolicy::Always, 55_000),
        _ => (SyncPolicy::Always, 300),
    };
    let batches: u64 = words[3].parse().unwrap();
    let (mut writer, _) = JournalWriter::open_storage(storage, options().with_sync(sync)).unwrap();
    let say = |batch: u64| {
        // One write, so that a kill leaves no half line.
        let mut output = io::stdout().lock();
        output
            .write_all(format!("\npersisted {batch}\n").as_bytes())
            .unwrap();
        output.flush().unwrap();
    };
    for number in 0..batches {
        let records = batch(number, writer.next_sequence(), characters);
        let mut appended = writer.append(&records).unwrap();
        if sync == SyncPolicy::Group && number % 3 == 2 {
            appended = writer.flush().unwrap();
        }
        if appended.durable {
            say(number);
        }
    }
    assert!(writer.close().unwrap().durable);
    say(batches - 1);
}

struct Running {
    process: Child,
    lines: io::Lines<BufReader<ChildStdout>>,
    /// Batches of which a receipt said `persisted`.
    persisted: u64,
}

impl Running {
    fn start(directory: &Path, death: Death, sync: &str, batches: u64) -> Running {
        let (word, number) = death.words();
        let task = format!("{word} {number} {sync} {batches} {}", directory.display());
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "the_writer_appends_until_it_is_killed",
                "--nocapture",
            ])
            .env(TASK, task)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Running {
            process,
            lines,
            persisted: 0,
        }
    }

    /// Reads the next receipt; `false` after the last one.
    fn hears_a_receipt(&mut self) -> bool {
        for line in self.lines.by_ref() {
            if let Some(batch) = line.unwrap().strip_prefix("persisted ") {
                self.persisted = batch.parse::<u64>().unwrap() + 1;
                return true;
            }
        }
        false
    }

    /// Whether it was killed, and how many batches were persisted before.
    fn end(mut self) -> (bool, u64) {
        while self.hears_a_receipt() {}
        let status = self.process.wait().unwrap();
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        assert!(killed || status.success(), "{status}");
        (killed, self.persisted)
    }
}

/// What is stored is whole batches, in order, each once, and at least what was persisted; gives their number.
#[track_caller]
fn stored(directory: &Path, persisted: u64, place: &str) -> u64 {
    let mut reader = match JournalReader::open(directory) {
        Ok(reader) => reader,
        Err(error) if persisted == 0 => {
            // No segment has a whole header yet.
            assert_eq!(
                qitos_contracts::error::ContractError::code(&error),
                "journal_not_found",
                "{place}"
            );
            return 0;
        }
        Err(error) => panic!("{place}: {error}"),
    };
    reader.validate().unwrap();
    let mut found = Vec::new();
    let mut page = Some(reader.page(&Query::all(), 100).unwrap());
    let mut sequence = 0;
    while let Some(read) = page {
        for record in &read.records {
            assert_eq!(record.sequence(), sequence, "{place}");
            sequence += 1;
            let id = record.record().record_id.to_string();
            // A recovery tells of the torn tail in a record of its own.
            if id.starts_with("batch-") {
                found.push(id);
            }
        }
        page = read
            .next_cursor
            .map(|cursor| reader.next_page(&cursor).unwrap());
    }
    let mut batches = 0;
    let mut wanted = Vec::new();
    while wanted.len() < found.len() {
        wanted.extend((0..records_of(batches)).map(|index| record_id(batches, index)));
        batches += 1;
    }
    assert_eq!(found, wanted, "{place}: a batch stands there in part");
    assert!(
        batches >= persisted,
        "{place}: {batches} stored, {persisted} persisted"
    );
    batches
}

/// Goes on in a writer that nobody kills; then everything is there.
#[track_caller]
fn finishes(directory: &Path, sync: &str, place: &str) {
    let ended = Running::start(directory, Death::Never, sync, BATCHES).end();
    assert_eq!(ended, (false, BATCHES), "{place}");
    assert_eq!(stored(directory, BATCHES, place), BATCHES, "{place}");
}

/// Kills the writer at an operation, the next one … until it gets through; gives the number of kills.
fn at_every_operation(sync: &str, death: fn(u64) -> Death, first: u64) -> u64 {
    for number in first.. {
        let folder = tempfile::tempdir().unwrap();
        let place = format!("{sync} {:?}", death(number));
        let (killed, persisted) = Running::start(folder.path(), death(number), sync, BATCHES).end();
        let batches = stored(folder.path(), persisted, &place);
        if !killed {
            assert_eq!(batches, BATCHES, "{place}");
            return number - first;
        }
        finishes(folder.path(), sync, &place);
    }
    unreachable!()
}

#[test]
fn nothing_persisted_is_lost_wherever_the_writer_dies() {
    // TRJ-40, TRJ-42, TRJ-45, TRJ-48; kit check `persisted_is_true`
    for death in [
        Death::Before as fn(u64) -> Death,
        Death::Within,
        Death::After,
    ] {
        let kills = at_every_operation("always", death, 1);
        assert!(kills > 2 * BATCHES, "{kills}");
    }
    let kills = at_every_operation("group", Death::Within, 1);
    assert!(kills > BATCHES, "{kills}");
}

#[test]
fn nothing_persisted_is_lost_while_a_segment_is_sealed_and_the_next_one_begins() {
    // TRJ-48, TRJ-52
    let folder = tempfile::tempdir().unwrap();
    finishes(folder.path(), "large", "undisturbed");
    let segments = std::fs::read_dir(folder.path()).unwrap();
    let segments = segments.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with(".qtj")
    });
    assert!(segments.count() > 1);
    // What comes before is an append and a sync for each batch, as in the test above.
    let kills = at_every_operation("large", Death::Within, 18);
    assert!(kills > 15, "{kills}");
}

#[test]
fn a_recovery_that_dies_itself_loses_nothing() {
    // TRJ-48, TRJ-49: a torn tail, then a death at each operation of the writer that finds it.
    let mut torn = 0;
    for first in (1..).step_by(2) {
        let place = format!("torn at {first}");
        let folder = tempfile::tempdir().unwrap();
        let (killed, persisted) =
            Running::start(folder.path(), Death::Within(first), "always", BATCHES).end();
        if !killed {
            break;
        }
        let before = stored(folder.path(), persisted, &place);
        for second in 1..8 {
            let death = if second % 2 == 0 {
                Death::Within(second)
            } else {
                Death::After(second)
            };
            let place = format!("{place}, then {death:?}");
            let (_, persisted) = Running::start(folder.path(), death, "always", BATCHES).end();
            let after = stored(folder.path(), persisted, &place);
            assert!(after >= before, "{place}");
            torn += 1;
        }
        finishes(folder.path(), "always", &place);
    }
    assert!(torn > 50, "{torn}");
}

#[test]
fn nothing_persisted_is_lost_to_a_hundred_kills_at_random_times() {
    // TRJ-45, TRJ-48: the moment comes from a printed seed and the machine's own unrest.
    let seed = 0x5eed_0003_u64;
    println!("seed {seed:#x}");
    let mut random = seed;
    let mut below = |bound: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let mut folder = tempfile::tempdir().unwrap();
    let mut persisted = 0;
    for round in 0..100 {
        if round % 10 == 0 {
            folder = tempfile::tempdir().unwrap();
            persisted = 0;
        }
        let sync = ["always", "group"][usize::from(round % 20 >= 10)];
        let place = format!("seed {seed:#x}, round {round}");
        let mut writer = Running::start(folder.path(), Death::Never, sync, 10_000);
        // As many receipts as the round before, and some more.
        while writer.persisted < persisted + below(6) && writer.hears_a_receipt() {}
        let until = Instant::now() + Duration::from_micros(below(3_000));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        writer.process.kill().unwrap();
        let (killed, now) = writer.end();
        assert!(killed, "{place}");
        persisted = stored(folder.path(), now.max(persisted), &place);
    }
}
