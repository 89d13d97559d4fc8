//! Text-only adapters for servers near by: Ollama's own dialect, LM Studio, vLLM, and a LiteLLM proxy (section 9).
//!
//! Each is one bounded request with a whole answer. Ollama has a dialect of its own, in two modes; the others speak
//! Chat Completions, and their answers pass the very verdict of that dialect. For streaming and native calls over an
//! OpenAI-compatible server there is [`openai_chat`](crate::openai_chat).

mod lost_options;
mod ollama_answer;
mod ollama_codec;
mod ollama_request;
mod server;
mod settings;
mod text_chat;
mod transcript;

pub use ollama_codec::OllamaCodec;
pub use server::{LocalServer, OllamaMode};
pub use settings::{LocalOptions, LocalSettings, local_capabilities};
pub use text_chat::TextChatCodec;
