//! Accepting, recording, replying, counting.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::reply::{Action, Reply};

/// Largest request head or body that is recorded.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// One request as it came over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// `POST /v1/chat/completions HTTP/1.1`.
    pub request_line: String,
    /// Header names in lower case with their values, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl RecordedRequest {
    /// The first header of that lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(candidate, _)| candidate == name)
            .map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Default)]
struct State {
    replies: VecDeque<Reply>,
    requests: Vec<RecordedRequest>,
    accepted: usize,
    open: usize,
    streams: Vec<TcpStream>,
    stopping: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// The running server; stops and joins its threads when dropped.
///
/// # Contract
/// The n-th request gets the n-th reply; a request beyond the last reply is recorded and its
/// connection closed without an answer.
#[derive(Debug)]
pub struct LoopbackServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl LoopbackServer {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// Whatever binding or starting the thread reports.
    pub fn start(replies: Vec<Reply>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        shared.change(|state| state.replies = replies.into());
        let acceptor = std::thread::Builder::new()
            .name("loopback-accept".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || accept_all(&listener, &shared)
            })?;
        Ok(LoopbackServer {
            address,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().requests.clone()
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn accepted_connections(&self) -> usize {
        self.shared.lock().accepted
    }

    /// Connections that neither side has closed.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.lock().open
    }

    /// Waits until `count` requests have arrived; false if `limit` passes first.
    #[must_use]
    pub fn wait_for_requests(&self, count: usize, limit: Duration) -> bool {
        self.wait_until(limit, |state| state.requests.len() >= count)
    }

    /// Waits until no connection is open; false if `limit` passes first.
    #[must_use]
    pub fn wait_until_no_connection(&self, limit: Duration) -> bool {
        self.wait_until(limit, |state| state.open == 0)
    }

    fn wait_until(&self, limit: Duration, done: impl Fn(&State) -> bool) -> bool {
        let guard = self.shared.lock();
        let (guard, _) = self
            .shared
            .changed
            .wait_timeout_while(guard, limit, |state| !done(state))
            .unwrap_or_else(PoisonError::into_inner);
        done(&guard)
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.stopping = true;
            for stream in &state.streams {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        // Wakes the acceptor, which then sees that it is to stop.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.lock().stopping {
            return;
        }
        let Ok(stream) = stream else { continue };
        shared.change(|state| {
            state.accepted += 1;
            state.open += 1;
            state.streams.extend(stream.try_clone());
        });
        let worker = std::thread::Builder::new()
            .name("loopback-connection".to_owned())
            .spawn({
                let shared = Arc::clone(shared);
                move || {
                    let _ = serve(stream, &shared);
                    shared.change(|state| state.open -= 1);
                }
            });
        if worker.is_err() {
            shared.change(|state| state.open -= 1);
        }
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let resets = shared.lock().replies.front().is_some_and(Reply::resets);
    let Some(request) = read_request(&mut stream, resets)? else {
        return Ok(());
    };
    let mut reply = None;
    shared.change(|state| {
        state.requests.push(request);
        reply = state.replies.pop_front();
    });
    for action in reply.unwrap_or_default().actions {
        match action {
            Action::Write(bytes) => {
                stream.write_all(&bytes)?;
                stream.flush()?;
            }
            Action::Wait(gate) => gate.wait(),
            Action::Hang => return wait_for_close(&mut stream),
            Action::Reset => {
                // The kept clone would hold the socket open; without it, closing a socket with
                // unread input makes the kernel send a reset.
                forget_clone(shared, &stream);
                return Ok(());
            }
        }
    }
    stream.shutdown(Shutdown::Write)?;
    forget_clone(shared, &stream);
    Ok(())
}

fn forget_clone(shared: &Shared, stream: &TcpStream) {
    if let Ok(peer) = stream.peer_addr() {
        shared.change(|state| {
            state
                .streams
                .retain(|other| other.peer_addr().is_ok_and(|other| other != peer));
        });
    }
}

fn wait_for_close(stream: &mut TcpStream) -> io::Result<()> {
    let mut rest = [0u8; 512];
    while stream.read(&mut rest)? > 0 {}
    Ok(())
}

/// Reads one request. `leave_last_byte` keeps the last byte unread, so that closing resets.
fn read_request(
    stream: &mut TcpStream,
    leave_last_byte: bool,
) -> io::Result<Option<RecordedRequest>> {
    let mut head = Vec::new();
    let mut byte = [0u8; 1];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_REQUEST_BYTES || stream.read(&mut byte)? == 0 {
            return Ok(None);
        }
        head.extend_from_slice(&byte);
    }
    let text = String::from_utf8_lossy(&head);
    let mut lines = text.split("\r\n");
    let request_line = lines.next().unwrap_or_default().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .and_then(|(_, value)| value.parse::<usize>().ok())
        .unwrap_or(0)
        .min(MAX_REQUEST_BYTES);
    let keep = usize::from(leave_last_byte && length > 0);
    let mut body = vec![0u8; length - keep];
    stream.read_exact(&mut body)?;
    if keep == 1 {
        stream.peek(&mut byte)?;
        body.extend_from_slice(&byte);
    }
    Ok(Some(RecordedRequest {
        request_line,
        headers,
        body,
    }))
}
