//! K36 to K38: a writer that is killed (F1 to F4).
//!
//! The writer is a process of its own, so that `kill -9` is what the name says. It speaks in lines; lines that do
//! not start with [`MARK`] are somebody else's (test harnesses print, too).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::Duration;

use qitos_contracts::snapshot::Lifecycle;
use serde::{Deserialize, Serialize};

use super::expect::{
    checked, head, head_is, head_is_whole, open, receipt_answers, resolves, unexpected,
};
use super::history::{History, Step};
use super::subject::{StoreSubject, needs};
use crate::check::{Check, Failure, Stage, Verdict, ensure};
use crate::runtime::{Runtime, block_on};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    let limit = Duration::from_secs(900);
    vec![
        Check::new(
            "K36.kill_points",
            "killed at any point of a commit: the head is old or new, whole, and the repeated request completes it",
            &["STO-1", "STO-5", "SES-33"],
            kill_points,
        )
        .needing(needs::KILL_POINTS)
        .within(limit),
        Check::new(
            "K37.kill_in_commit",
            "killed inside a commit: the head is old or new, whole, and every receipted commit is there",
            &["STO-1", "STO-5", "STO-6"],
            kill_in_commit,
        )
        .needing(needs::CRASH)
        .within(limit),
        Check::new(
            "K38.kill_child_writer",
            "killed at any time: every receipted commit is there and replays exactly",
            &["STO-1", "STO-5", "STO-8"],
            kill_child_writer,
        )
        .needing(needs::CRASH)
        .within(limit),
    ]
}

/// Starts every line of the writer.
const MARK: &str = "qitos-writer ";
/// More than any round lets the writer do.
const COMMITS: u64 = 64;

#[derive(Serialize, Deserialize)]
struct Order {
    place: String,
    session: String,
    kill_point: Option<String>,
}

/// The writer's side: call it in the process that [`StoreSubject::child_process`] starts, with the same subject.
///
/// Reads one order from standard input, commits, and reports on standard output. It usually does not return,
/// because it is killed.
///
/// # Errors
/// A text when the order cannot be read, the store does not open, or a commit fails.
pub fn serve_writer(subject: &dyn StoreSubject, runtime: &dyn Runtime) -> Result<(), String> {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|error| format!("no order: {error}"))?;
    let order: Order =
        serde_json::from_str(&line).map_err(|error| format!("not an order: {error}"))?;
    block_on(runtime, write_until_killed(subject, &order))
        .unwrap_or_else(|| Err("the runtime did not finish".into()))
}

async fn write_until_killed(subject: &dyn StoreSubject, order: &Order) -> Result<(), String> {
    let opened = match &order.kill_point {
        Some(point) => subject.open_killing(&order.place, point).await,
        None => subject.open(&order.place).await,
    };
    let store = opened.map_err(|error| format!("open: {error}"))?;
    let mut history = History::new(&order.session);
    for generation in 0..COMMITS {
        let commit = next_commit(&mut history).map_err(|failure| failure.to_string())?;
        say(&format!("begin {generation}"))?;
        store
            .commit(commit)
            .await
            .map_err(|error| format!("commit {generation}: {error}"))?;
        say(&format!("done {generation}"))?;
    }
    say("end")
}

fn next_commit(history: &mut History) -> Result<Arc<qitos_contracts::checkpoint::Commit>, Failure> {
    let next = history.next_lifecycle();
    checked(history.commit(Step::to(next).with_items(2).of_bytes(512))?)
}

/// Straight to the descriptor: captured output of a test harness would arrive too late.
fn say(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{text}")
        .and_then(|()| out.flush())
        .map_err(|error| format!("nobody listens: {error}"))
}

/// A running writer; killed when dropped.
struct Writer {
    child: Child,
    lines: BufReader<ChildStdout>,
    _orders: ChildStdin,
    begun: Option<u64>,
    done: Option<u64>,
    ended: bool,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Writer {
    fn start(stage: &Stage<dyn StoreSubject>, order: &Order) -> Result<Self, Failure> {
        let mut command = stage
            .subject()
            .child_process()
            .ok_or_else(|| Failure::new("the child_process hook is gone"))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Failure::new(format!("the writer did not start: {error}")))?;
        let (Some(mut orders), Some(lines)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("the writer has no pipes"));
        };
        let text = serde_json::to_string(order)
            .map_err(|error| Failure::new(format!("no order: {error}")))?;
        writeln!(orders, "{text}")
            .and_then(|()| orders.flush())
            .map_err(|error| Failure::new(format!("the writer takes no order: {error}")))?;
        Ok(Writer {
            child,
            lines: BufReader::new(lines),
            _orders: orders,
            begun: None,
            done: None,
            ended: false,
        })
    }

    /// Reads one line of the writer; false at the end of its output.
    fn listen(&mut self) -> Result<bool, Failure> {
        let mut line = String::new();
        let read = self
            .lines
            .read_line(&mut line)
            .map_err(|error| Failure::new(format!("the writer's output: {error}")))?;
        if read == 0 {
            return Ok(false);
        }
        // A harness may print before the mark on the same line; a line cut by the kill has no end.
        let Some((_, said)) = line.split_once(MARK).filter(|_| line.ends_with('\n')) else {
            return Ok(true);
        };
        match said.trim().split_once(' ') {
            Some(("begin", number)) => self.begun = number.parse().ok(),
            Some(("done", number)) => self.done = number.parse().ok(),
            _ if said.trim() == "end" => self.ended = true,
            _ => {}
        }
        Ok(true)
    }

    fn listen_until(&mut self, wanted: impl Fn(&Self) -> bool) -> Verdict {
        while !wanted(self) {
            ensure!(
                self.listen()?,
                "the writer ended by itself after {:?} of {:?} commits; is child_process right?",
                self.done,
                self.begun
            );
        }
        Ok(())
    }

    /// `kill -9`, then what it still had said.
    fn kill(&mut self) -> Verdict {
        self.child
            .kill()
            .map_err(|error| Failure::new(format!("the writer could not be killed: {error}")))?;
        while self.listen()? {}
        self.child
            .wait()
            .map_err(|error| Failure::new(format!("waiting for the writer: {error}")))?;
        Ok(())
    }
}

/// What must hold in a new process, whenever the writer died.
async fn recovered(
    stage: &Stage<dyn StoreSubject>,
    order: &Order,
    begun: Option<u64>,
    done: Option<u64>,
) -> Verdict {
    let store = open(stage, &order.place).await?;
    let mut history = History::new(&order.session);
    let session = history.session().clone();
    let found = head(&*store, &session).await?.map(|head| head.generation);
    ensure!(
        found >= done,
        "generation {done:?} was receipted, the head is at {found:?}"
    );
    ensure!(
        found <= begun,
        "the head is at {found:?}, but only {begun:?} was begun"
    );
    if found.is_some() {
        head_is_whole(&*store, &session).await?;
    }
    let Some(begun) = begun else {
        return Ok(());
    };
    for generation in 0..=begun {
        let commit = next_commit(&mut history)?;
        let there = found.is_some_and(|found| generation <= found);
        resolves(&*store, commit.snapshot_id(), there.then_some(generation)).await?;
        let receipt = store
            .commit(Arc::clone(&commit))
            .await
            .map_err(|error| unexpected("the repeated request", &error))?;
        receipt_answers(&*store, &commit, &receipt)?;
        ensure!(
            receipt.replayed == there,
            "generation {generation}: replayed {} although it was {}",
            receipt.replayed,
            if there { "there" } else { "not there" }
        );
        if generation == begun {
            head_is(&*store, &receipt).await?;
        }
    }
    Ok(())
}

async fn kill_points(stage: Stage<dyn StoreSubject>) -> Verdict {
    for point in stage.subject().kill_points() {
        let order = Order {
            place: "K36".into(),
            session: format!("K36 {point}"),
            kill_point: Some(point.clone()),
        };
        let mut writer = Writer::start(&stage, &order)?;
        while writer.listen()? {}
        ensure!(
            !writer.ended,
            "the writer was not killed at {point}: the point is never passed"
        );
        let (begun, done) = (writer.begun, writer.done);
        drop(writer);
        recovered(&stage, &order, begun, done)
            .await
            .map_err(|failure| Failure::new(format!("at {point}: {failure}")))?;
    }
    Ok(())
}

async fn kill_in_commit(stage: Stage<dyn StoreSubject>) -> Verdict {
    let rounds = stage.subject().effort().of(200);
    for round in 0..rounds {
        let order = Order {
            place: "K37".into(),
            session: format!("K37 {round}"),
            kill_point: None,
        };
        let mut writer = Writer::start(&stage, &order)?;
        writer.listen_until(|writer| writer.begun >= Some(round % 5))?;
        writer.kill()?;
        let (begun, done) = (writer.begun, writer.done);
        drop(writer);
        recovered(&stage, &order, begun, done)
            .await
            .map_err(|failure| Failure::new(format!("round {round}: {failure}")))?;
    }
    Ok(())
}

async fn kill_child_writer(stage: Stage<dyn StoreSubject>) -> Verdict {
    let rounds = stage.subject().effort().of(200);
    for round in 0..rounds {
        let order = Order {
            place: "K38".into(),
            session: format!("K38 {round}"),
            kill_point: None,
        };
        let mut writer = Writer::start(&stage, &order)?;
        // After its first receipt, its second … and then some work that nobody counts.
        writer.listen_until(|writer| writer.done >= Some(round % 11))?;
        for _ in 0..(round * 37) % 1_000 {
            std::hint::spin_loop();
        }
        writer.kill()?;
        let (begun, done) = (writer.begun, writer.done);
        drop(writer);
        ensure!(
            done.is_some(),
            "round {round}: the writer never receipted anything"
        );
        recovered(&stage, &order, begun, done)
            .await
            .map_err(|failure| Failure::new(format!("round {round}: {failure}")))?;
    }
    // The store as a whole still works for somebody else.
    let store = open(&stage, "K38").await?;
    let mut history = History::new("K38 afterwards");
    let commit = checked(history.commit(Step::to(Lifecycle::Created))?)?;
    let receipt = store
        .commit(commit)
        .await
        .map_err(|error| unexpected("a commit afterwards", &error))?;
    head_is(&*store, &receipt).await
}
