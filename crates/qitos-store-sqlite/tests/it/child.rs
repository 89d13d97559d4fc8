//! Other processes: this test binary started again with a task in its environment.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use qitos_contracts::snapshot::Lifecycle;
use qitos_kit::scripted_session::ScriptedSession;
use qitos_store_sqlite::fault_point::{FaultPlan, InjectedFault, Point};
use qitos_store_sqlite::{OpenOptions, SqliteStore};

use crate::subject::commit;

const TASK: &str = "QITOS_STORE_TEST_TASK";

/// What a child does: commits of one session, dying on its own or not.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) seed: u64,
    pub(crate) commits: u64,
    /// Die when this point is passed for the n-th time, counted from 1.
    pub(crate) die_at: Option<(Point, u32)>,
}

pub(crate) const POINTS: [Point; 11] = [
    Point::MigrationBegin,
    Point::MigrationStep,
    Point::MigrationCommit,
    Point::BeforeBegin,
    Point::AfterBegin,
    Point::AfterChunks,
    Point::AfterSnapshot,
    Point::AfterHead,
    Point::BeforeCommit,
    Point::AfterCommit,
    Point::AfterReply,
];

/// The n-th commit of the session that a child writes.
pub(crate) fn nth_commit(
    session: &mut ScriptedSession,
    number: u64,
) -> Arc<qitos_contracts::checkpoint::Commit> {
    let lifecycle = if number == 0 {
        Lifecycle::Created
    } else {
        Lifecycle::Running
    };
    session
        .commit(lifecycle, &format!("item {number} {}", "x".repeat(500)))
        .unwrap()
}

pub(crate) struct Running {
    pub(crate) process: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// The generation of the next receipt; none once the child ended.
    pub(crate) fn receipt(&mut self) -> Option<u64> {
        loop {
            let line = self.lines.next()?.unwrap();
            if let Some((_, number)) = line.split_once("receipt ") {
                return Some(number.parse().unwrap());
            }
        }
    }
}

pub(crate) fn start(path: &Path, task: &Task) -> Running {
    let (point, occurrence) = match task.die_at {
        Some((point, occurrence)) => {
            let index = POINTS.iter().position(|candidate| *candidate == point);
            (index.unwrap().to_string(), occurrence)
        }
        None => ("-".to_owned(), 0),
    };
    let words = format!(
        "{} {} {point} {occurrence} {}",
        task.seed,
        task.commits,
        path.display()
    );
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["child::a_child_does_its_task", "--exact", "--nocapture"])
        .env(TASK, words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    Running { process, lines }
}

#[derive(Debug)]
struct DieAt {
    point: Point,
    left: AtomicU32,
}

impl FaultPlan for DieAt {
    fn reached(&self, point: Point) -> Option<InjectedFault> {
        if point == self.point && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // No destructor, no flush: what a kill leaves.
            std::process::abort();
        }
        None
    }
}

#[test]
fn a_child_does_its_task() {
    let Some(task) = std::env::var_os(TASK) else {
        return;
    };
    let task = task.into_string().unwrap();
    let words: Vec<&str> = task.splitn(5, ' ').collect();
    let (seed, commits) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let options = OpenOptions::default().create();
    let store = match words[2].parse::<usize>() {
        Ok(index) => {
            let plan = DieAt {
                point: POINTS[index],
                left: AtomicU32::new(words[3].parse().unwrap()),
            };
            SqliteStore::open_with_fault_plan(words[4], options, Arc::new(plan))
        }
        Err(_) => SqliteStore::open_blocking(words[4], options),
    }
    .unwrap();
    let mut session = ScriptedSession::new(seed);
    for number in 0..commits {
        let receipt = commit(&store, &nth_commit(&mut session, number));
        let mut output = std::io::stdout().lock();
        // One write, so that a kill leaves no half line.
        output
            .write_all(format!("\nreceipt {}\n", receipt.generation).as_bytes())
            .unwrap();
        output.flush().unwrap();
    }
}
