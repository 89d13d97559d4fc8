//! Callback errors and cancellation: everything is closed, nothing goes on (PRV-90 to PRV-96).

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use qitos_contracts::model::DeltaSink;

use super::decoding::PIECES;
use super::exchange::{Stopped, send};
use super::expect::{Texts, bytewise, form, must_succeed, replying, stand, whole_reply, wire};
use super::peer::{Ending, Reply, ScriptedPeer};
use super::subject::{Answer, ProviderSubject, needs};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ProviderSubject>> {
    vec![
        Check::new(
            "consumer_error_unchanged",
            "a callback's error comes back as the same object, nothing more is read, everything is closed",
            &["PRV-93", "PRV-94", "PRV-95"],
            consumer_error_unchanged,
        ),
        Check::new(
            "drop_closes",
            "an attempt dropped at any await calls nothing afterwards, and its connection is gone within one second",
            &["PRV-90", "PRV-96"],
            drop_closes,
        )
        .needing(needs::CANCELLATION),
        Check::new(
            "cancel_twice",
            "a second cancel changes nothing: each connection is closed once, and the next request is served",
            &["PRV-96"],
            cancel_twice,
        )
        .needing(needs::CANCELLATION),
    ]
}

/// How soon a connection must be gone.
const SOON: Duration = Duration::from_secs(1);
/// More awaits than any attempt over a short answer has.
const MOST_POLLS: usize = 10_000;

/// An error that can be told from any other.
#[derive(Debug)]
struct Mine(Arc<()>);

impl fmt::Display for Mine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the screen is gone")
    }
}

impl Error for Mine {}

/// Fails and remembers how far the peer had been read then.
struct Failing {
    peer: ScriptedPeer,
    calls: usize,
    token: Arc<()>,
    read_at_failure: usize,
}

impl DeltaSink for Failing {
    fn delta(&mut self, _: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.calls += 1;
        self.read_at_failure = self.peer.pieces_read();
        Err(Box::new(Mine(Arc::clone(&self.token))))
    }
}

async fn consumer_error_unchanged(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let answer = Answer::text(&PIECES);
    let bytes = wire(&stage, &answer, form(&stage, true))?;
    // Behind the text comes what would be a failure of the provider: the callback's error came first.
    let broken = [&bytes.before_terminal[..], b"\n\n\xFF\n\n"].concat();
    let streams = stage.subject().capabilities().supports_streaming;
    let mut replies = vec![bytewise(&bytes.all()), vec![bytes.all()]];
    if streams {
        replies.push(vec![broken]);
    }
    for pieces in replies {
        let reply = replying(&bytes, pieces, Ending::Clean);
        let stand = stand(&stage, vec![reply])?;
        let (_, payload) = stand.asking()?;
        let mut sink = Failing {
            peer: stand.peer.clone(),
            calls: 0,
            token: Arc::new(()),
            read_at_failure: 0,
        };
        let outcome = send(&*stand.model, payload, Some(&mut sink)).await;
        let Err(Stopped::Consumer(error)) = outcome else {
            return Err(Failure::new(match outcome {
                Ok(_) => "the callback failed and the request succeeded".into(),
                Err(stopped) => format!("the callback's error became {}", stopped.code()),
            }));
        };
        let same = error
            .downcast_ref::<Mine>()
            .is_some_and(|mine| Arc::ptr_eq(&mine.0, &sink.token));
        ensure!(same, "another error came back than the callback's");
        ensure!(
            sink.calls == 1,
            "the callback was called again after its error"
        );
        ensure!(
            stand.peer.pieces_read() == sink.read_at_failure,
            "reading went on after the callback's error"
        );
        ensure!(
            stand.peer.open() == 0,
            "the connection is still open after the callback's error"
        );
    }
    Ok(())
}

/// Polls at most `polls` times, then drops the future; whether it was finished.
async fn poll_then_drop<T>(future: impl Future<Output = T>, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(false);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if polled == polls => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Drops the future once it waits for something that never comes; whether it was finished before.
async fn drop_when_hanging<T>(future: impl Future<Output = T>, peer: &ScriptedPeer) -> bool {
    let mut future = pin!(future);
    let before = peer.hanging();
    // A future that is pending for another reason is woken, and then polled again.
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending if peer.hanging() > before => Poll::Ready(false),
        Poll::Pending => Poll::Pending,
    })
    .await
}

async fn drop_closes(stage: Stage<dyn ProviderSubject>) -> Verdict {
    for with_callback in [false, true] {
        let answer = Answer::text(&["Hel", "lo"]);
        let bytes = wire(&stage, &answer, form(&stage, with_callback))?;
        let halves = || {
            let all = bytes.all();
            let (left, right) = all.split_at(all.len() / 2);
            vec![left.to_vec(), right.to_vec()]
        };
        let mut polls = 0;
        loop {
            ensure!(polls < MOST_POLLS, "an attempt never ends");
            let reply = replying(&bytes, halves(), Ending::Clean);
            let finished = dropped_after(&stage, reply, with_callback, Some(polls)).await?;
            if finished {
                break;
            }
            polls += 1;
        }
        let hanging = [
            Reply::Silence,
            replying(&bytes, Vec::new(), Ending::Hang),
            replying(&bytes, halves().into_iter().take(1).collect(), Ending::Hang),
        ];
        for reply in hanging {
            let finished = dropped_after(&stage, reply, with_callback, None).await?;
            ensure!(!finished, "an answer that never comes was finished");
        }
    }
    Ok(())
}

/// Starts an attempt, drops it after so many polls, or when it hangs, and looks at what is left of it.
async fn dropped_after(
    stage: &Stage<dyn ProviderSubject>,
    reply: Reply,
    with_callback: bool,
    polls: Option<usize>,
) -> Result<bool, Failure> {
    let stand = stand(stage, vec![reply])?;
    let (_, payload) = stand.asking()?;
    let mut texts = Texts::default();
    let finished = {
        let sink: Option<&mut dyn DeltaSink> = if with_callback {
            Some(&mut texts)
        } else {
            None
        };
        let attempt = stand.model.send(payload, sink);
        match polls {
            Some(polls) => poll_then_drop(attempt, polls).await,
            None => drop_when_hanging(attempt, &stand.peer).await,
        }
    };
    let shown = texts.clone();
    let place = match polls {
        Some(polls) => format!("dropped after {polls} polls"),
        None => "dropped while it waited for ever".to_owned(),
    };
    ensure!(
        stand.peer.wait_until_closed(SOON),
        "{place}: after a second the connection is still open"
    );
    ensure!(
        texts == shown,
        "{place}: the callback was called afterwards"
    );
    ensure!(
        stand.peer.request_count() <= 1,
        "{place}: it was sent again"
    );
    Ok(finished)
}

async fn cancel_twice(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let answer = Answer::text(&PIECES);
    let bytes = wire(&stage, &answer, form(&stage, true))?;
    let hang = || replying(&bytes, Vec::new(), Ending::Hang);
    let stand = stand(&stage, vec![hang(), hang(), whole_reply(&bytes)])?;
    for cancelled in 1..=2 {
        let (_, payload) = stand.asking()?;
        let mut texts = Texts::default();
        let attempt = stand.model.send(payload, Some(&mut texts));
        let finished = drop_when_hanging(attempt, &stand.peer).await;
        ensure!(!finished, "an answer that never comes was finished");
        ensure!(
            stand.peer.wait_until_closed(SOON),
            "cancel {cancelled}: after a second the connection is still open"
        );
        ensure!(
            stand.peer.opened() == cancelled,
            "cancel {cancelled}: {} connections were opened",
            stand.peer.opened()
        );
    }
    let (texts, decoded) = stand.ask(true).await?;
    must_succeed(decoded, "the request after two cancelled ones")?;
    ensure!(
        texts.0.concat() == answer.joined_text() && stand.peer.opened() == 3,
        "the request after two cancelled ones was not served as any other"
    );
    Ok(())
}
