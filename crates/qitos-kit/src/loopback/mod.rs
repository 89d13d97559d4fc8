//! An HTTP server on the loopback interface that sends exactly the scripted bytes.
//!
//! Stream tests must place every chunk boundary, hold a connection open, cut it or reset it, and see
//! when the client lets go of it. Ordinary mock servers frame and buffer on their own; this one writes
//! what the script says, flushed piece by piece, one thread per connection, standard library only.
//!
//! ```
//! use qitos_kit::loopback::{LoopbackServer, Reply};
//!
//! let reply = Reply::event_stream().piece("data: {}\n\n").piece("data: [DONE]\n\n").end();
//! let server = LoopbackServer::start(vec![reply])?;
//! assert!(server.base_url().starts_with("http://127.0.0.1:"));
//! # Ok::<(), std::io::Error>(())
//! ```

mod reply;
mod server;

pub use reply::{Gate, Reply};
pub use server::{LoopbackServer, RecordedRequest};

#[cfg(test)]
mod tests;
