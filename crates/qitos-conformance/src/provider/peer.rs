//! The other end of a provider under test: it plays written replies and sees who holds a connection.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

/// How the bytes of a reply end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The body is complete as far as its framing goes.
    Clean,
    /// The connection is reset.
    Reset,
    /// Nothing more comes and the connection stays open.
    Hang,
    /// These bytes come again and again, for ever.
    Repeat {
        /// What comes.
        bytes: Vec<u8>,
        /// How long the peer waits before each time.
        every: Duration,
    },
}

/// A status line, headers and a body in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyBody {
    /// The status.
    pub status: u16,
    /// Header names in lower case and their values.
    pub headers: Vec<(String, String)>,
    /// The body; each piece arrives by itself.
    pub pieces: Vec<Vec<u8>>,
    /// What follows the last piece.
    pub ending: Ending,
}

/// What the peer does with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It answers.
    Body(ReplyBody),
    /// It takes the request and never says anything.
    Silence,
    /// The connection is lost before a status line.
    Lost,
}

impl Reply {
    /// A reply with status 200 whose body ends cleanly.
    #[must_use]
    pub fn of(content_type: Option<&str>, pieces: Vec<Vec<u8>>) -> Self {
        Reply::ending(content_type, pieces, Ending::Clean)
    }

    /// A reply with status 200 and an ending.
    #[must_use]
    pub fn ending(content_type: Option<&str>, pieces: Vec<Vec<u8>>, ending: Ending) -> Self {
        let headers = content_type
            .map(|kind| ("content-type".to_owned(), kind.to_owned()))
            .into_iter()
            .collect();
        Reply::Body(ReplyBody {
            status: 200,
            headers,
            pieces,
            ending,
        })
    }

    /// A reply with another status and a whole body.
    #[must_use]
    pub fn status(status: u16, headers: Vec<(String, String)>, body: impl Into<Vec<u8>>) -> Self {
        Reply::Body(ReplyBody {
            status,
            headers,
            pieces: vec![body.into()],
            ending: Ending::Clean,
        })
    }
}

/// The connection ended, or there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLost;

impl std::fmt::Display for PeerLost {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the connection was lost")
    }
}

impl std::error::Error for PeerLost {}

#[derive(Debug, Default)]
struct State {
    replies: VecDeque<Reply>,
    requests: Vec<Vec<u8>>,
    opened: usize,
    closed: usize,
    pieces: usize,
    hanging: usize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A peer in memory; clones are the same peer.
///
/// # Contract
/// The n-th request gets the n-th reply; a request beyond the last one is recorded and its connection lost. Whatever
/// it does is pending once before it is ready, so that a dropped future is dropped at every await.
///
/// A client that wants sockets puts a small server in front: [`ScriptedPeer::open_connection`] for each accepted
/// connection, dropped when the client closes it, and [`ScriptedPeer::take_reply`] for what to send.
#[derive(Clone, Debug, Default)]
pub struct ScriptedPeer(Arc<Shared>);

impl ScriptedPeer {
    /// A peer that plays `replies`.
    #[must_use]
    pub fn new(replies: Vec<Reply>) -> Self {
        let peer = ScriptedPeer::default();
        peer.lock().replies = replies.into();
        peer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one request and waits for the status line.
    ///
    /// # Errors
    /// The connection was lost.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn request(&self, body: &[u8]) -> Result<PeerAnswer, PeerLost> {
        let connection = self.open_connection();
        let reply = self.take_reply(body);
        breathe().await;
        match reply {
            None | Some(Reply::Lost) => Err(PeerLost),
            Some(Reply::Silence) => {
                self.lock().hanging += 1;
                std::future::pending().await
            }
            Some(Reply::Body(reply)) => Ok(PeerAnswer {
                status: reply.status,
                headers: reply.headers,
                body: PeerBody {
                    pieces: reply.pieces.into(),
                    ending: reply.ending,
                    connection,
                },
            }),
        }
    }

    /// Opens a connection by hand; it is open until the value is dropped.
    #[must_use]
    pub fn open_connection(&self) -> PeerConnection {
        self.lock().opened += 1;
        PeerConnection(self.clone())
    }

    /// Records a request and takes its reply; none if the script is over.
    #[must_use]
    pub fn take_reply(&self, request: &[u8]) -> Option<Reply> {
        let mut state = self.lock();
        state.requests.push(request.to_vec());
        state.replies.pop_front()
    }

    /// Says that a client waits for something that never comes, for a transport that plays replies by itself.
    pub fn note_hang(&self) {
        self.lock().hanging += 1;
    }

    /// Connections opened so far.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.lock().opened
    }

    /// Connections that are open.
    #[must_use]
    pub fn open(&self) -> usize {
        let state = self.lock();
        state.opened - state.closed
    }

    /// Requests so far.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.lock().requests.len()
    }

    /// The newest request.
    #[must_use]
    pub fn last_request(&self) -> Option<Vec<u8>> {
        self.lock().requests.last().cloned()
    }

    /// Pieces of bodies that were read.
    #[must_use]
    pub fn pieces_read(&self) -> usize {
        self.lock().pieces
    }

    /// How often a client began to wait for something that never comes.
    #[must_use]
    pub fn hanging(&self) -> usize {
        self.lock().hanging
    }

    /// Waits until no connection is open; false if `limit` passes first.
    #[must_use]
    pub fn wait_until_closed(&self, limit: Duration) -> bool {
        let state = self.lock();
        let waited = self
            .0
            .changed
            .wait_timeout_while(state, limit, |state| state.opened > state.closed);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.opened == state.closed
    }
}

/// One open connection.
#[derive(Debug)]
pub struct PeerConnection(ScriptedPeer);

impl Drop for PeerConnection {
    fn drop(&mut self) {
        self.0.lock().closed += 1;
        self.0.0.changed.notify_all();
    }
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub struct PeerAnswer {
    /// The status.
    pub status: u16,
    /// Header names in lower case and their values.
    pub headers: Vec<(String, String)>,
    /// The body; dropping it closes the connection.
    pub body: PeerBody,
}

/// The body of an answer.
#[derive(Debug)]
pub struct PeerBody {
    pieces: VecDeque<Vec<u8>>,
    ending: Ending,
    connection: PeerConnection,
}

impl PeerBody {
    /// The next piece, or none at a clean end.
    ///
    /// # Errors
    /// The connection was reset.
    ///
    /// # Cancel safety
    /// Dropping the future before it is ready loses nothing.
    pub async fn next_piece(&mut self) -> Result<Option<Vec<u8>>, PeerLost> {
        breathe().await;
        if let Some(piece) = self.pieces.pop_front() {
            self.connection.0.lock().pieces += 1;
            return Ok(Some(piece));
        }
        match &self.ending {
            Ending::Clean => Ok(None),
            Ending::Reset => Err(PeerLost),
            Ending::Hang => {
                self.connection.0.lock().hanging += 1;
                std::future::pending().await
            }
            Ending::Repeat { bytes, every } => {
                let bytes = bytes.clone();
                pass(*every).await;
                self.connection.0.lock().pieces += 1;
                Ok(Some(bytes))
            }
        }
    }
}

/// Pending once, then ready.
async fn breathe() {
    let mut waited = false;
    poll_fn(|context| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits on a thread of its own: this crate has no executor whose timer it could ask.
async fn pass(time: Duration) {
    let over = Arc::new(AtomicBool::new(false));
    let mut started = false;
    poll_fn(|context| {
        if over.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        // Only the first poll's waker is kept: whoever waits here stays on one task.
        if !started {
            started = true;
            let (over, waker) = (Arc::clone(&over), context.waker().clone());
            std::thread::spawn(move || {
                std::thread::sleep(time);
                over.store(true, Ordering::Release);
                waker.wake();
            });
        }
        Poll::Pending
    })
    .await;
}
