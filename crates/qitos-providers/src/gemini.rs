//! Gemini's `generateContent`: whole answers, verified terminals, thought signatures (section 9).
//!
//! The dialect has no call ids and counts the answers to calls: all results of a batch stand in one content, in
//! the order in which the calls were declared, because position is the only identity that the wire has.

mod capabilities;
mod codec;
mod continuation;
mod options;
mod request;
mod response;
mod settings;
mod write_item;

pub use capabilities::gemini_capabilities;
pub use codec::GeminiCodec;
pub use options::GeminiOptions;
pub use settings::GeminiSettings;
