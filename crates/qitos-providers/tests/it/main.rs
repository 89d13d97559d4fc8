//! Behaviour of the model clients over scripted transports and the loopback interface.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "every function here is part of a test; the lints only exempt the test functions themselves"
)]

mod anthropic_fixtures;
mod anthropic_limits;
#[cfg(all(feature = "anthropic", feature = "openai-chat"))]
mod anthropic_network;
mod anthropic_requests;
mod anthropic_turns;
mod chat_fixtures;
mod chat_requests;
mod chat_statuses;
mod chat_time;
mod gemini_requests;
mod known_servers;
mod local_requests;
#[cfg(feature = "openai-chat")]
mod network;
mod replay;
mod responses_answers;
mod responses_continuation;
mod responses_fixtures;
#[cfg(all(feature = "openai-chat", feature = "openai-responses"))]
mod responses_network;
mod responses_requests;
mod scripted;
mod setup;
mod whole_answers;
