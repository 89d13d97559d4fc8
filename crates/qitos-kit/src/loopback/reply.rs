//! What the server does with one request.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// One thing the connection's thread does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Writes and flushes these bytes.
    Write(Vec<u8>),
    /// Waits until the gate is open.
    Wait(Gate),
    /// Keeps the connection open and silent until the client closes it.
    Hang,
    /// Ends the connection with a reset instead of an orderly close.
    Reset,
}

/// A door that a test opens to decide the order of events.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    inner: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Gate::default()
    }

    /// Opens the gate for good.
    pub fn open(&self) {
        let (open, changed) = &*self.inner;
        *open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Blocks the calling thread until the gate is open.
    pub fn wait(&self) {
        let (open, changed) = &*self.inner;
        let mut guard = open.lock().unwrap_or_else(PoisonError::into_inner);
        while !*guard {
            guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The bytes and pauses that answer one request.
///
/// # Contract
/// A reply is written in order, each piece flushed on its own. Once it is used up the connection is
/// closed in order; a reply never keeps the connection for a second request.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub(crate) actions: Vec<Action>,
    chunked: bool,
}

impl Reply {
    /// Exactly these bytes, status line and headers included.
    #[must_use]
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Reply::default().write(bytes)
    }

    /// A whole answer with a length.
    #[must_use]
    pub fn whole(status: u16, content_type: &str, body: impl AsRef<[u8]>) -> Self {
        Reply::whole_with_headers(status, content_type, &[], body)
    }

    /// A whole answer with a length and further headers.
    #[must_use]
    pub fn whole_with_headers(
        status: u16,
        content_type: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Self {
        let body = body.as_ref();
        let mut bytes = head(status, content_type, headers);
        bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        Reply::raw(bytes)
    }

    /// The head of a chunked answer; follow it with [`Reply::piece`] and [`Reply::end`].
    #[must_use]
    pub fn chunked(status: u16, content_type: &str, headers: &[(&str, &str)]) -> Self {
        let mut bytes = head(status, content_type, headers);
        bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
        let mut reply = Reply::raw(bytes);
        reply.chunked = true;
        reply
    }

    /// The head of a chunked event stream.
    #[must_use]
    pub fn event_stream() -> Self {
        Reply::chunked(200, "text/event-stream", &[])
    }

    /// One flushed piece of the body; framed if the reply is chunked. Empty pieces write nothing.
    #[must_use]
    pub fn piece(self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        if !self.chunked || bytes.is_empty() {
            return self.write(bytes);
        }
        let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
        framed.extend_from_slice(bytes);
        framed.extend_from_slice(b"\r\n");
        self.write(framed)
    }

    /// The last chunk: the body ends cleanly.
    #[must_use]
    pub fn end(self) -> Self {
        if self.chunked {
            self.write("0\r\n\r\n")
        } else {
            self
        }
    }

    /// Bytes as they are, never framed.
    #[must_use]
    pub fn write(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.actions.push(Action::Write(bytes.into()));
        self
    }

    /// Waits for `gate` before going on.
    #[must_use]
    pub fn wait(mut self, gate: &Gate) -> Self {
        self.actions.push(Action::Wait(gate.clone()));
        self
    }

    /// Holds the connection open and silent until the client closes it.
    #[must_use]
    pub fn hang(mut self) -> Self {
        self.actions.push(Action::Hang);
        self
    }

    /// Resets the connection.
    #[must_use]
    pub fn reset(mut self) -> Self {
        self.actions.push(Action::Reset);
        self
    }

    pub(crate) fn resets(&self) -> bool {
        self.actions
            .iter()
            .any(|action| matches!(action, Action::Reset))
    }
}

fn head(status: u16, content_type: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Scripted\r\nconnection: close\r\n");
    if !content_type.is_empty() {
        text.push_str(&format!("content-type: {content_type}\r\n"));
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.into_bytes()
}
