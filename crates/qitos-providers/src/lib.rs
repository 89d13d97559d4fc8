//! Model clients of QitOS over HTTP with verified streams.
//!
//! | module | what it decides |
//! |---|---|
//! | [`sse`] | bytes to events, pure and bounded |
//! | [`gemini`] | Gemini's `generateContent`: codec, verdict on whole answers |
//! | [`local`] | Ollama, LM Studio, vLLM and a LiteLLM proxy: text in whole answers |
//! | [`anthropic`] | the Messages dialect: codec, stream rules, client |
//! | [`openai_chat`] | the Chat Completions dialect: codec, stream rules, client |
//! | [`openai_responses`] | the Responses dialect: codec, stream rules, client |
//! | [`scripted`] | the model `fake`, whose answers are written beforehand |
//! | [`http`] | the small transport below every dialect |
//!
//! Without features the crate has no HTTP client in its tree; what is there then still reads, judges
//! and writes the dialects over any transport.

pub mod anthropic;
mod attempt;
mod call;
mod classify_failure;
mod connection;
mod endpoint;
mod failure;
pub mod gemini;
pub mod http;
mod image_url;
mod json_text;
pub mod local;
pub mod openai_chat;
pub mod openai_responses;
mod request_options;
mod result_text;
pub mod scripted;
pub mod sse;
mod time_limits;
mod token_count;
mod verdict;
mod whole_answer;

pub use connection::Connection;
pub use endpoint::{Authentication, EndpointError};
pub use time_limits::TimeLimits;
pub use whole_answer::WholeAnswerModel;

pub(crate) use qitos_contracts::model::request_rules;
