//! The Chat Completions dialect (section 5.1), for OpenAI and everything that speaks like it.
//!
//! The codec and the stream rules know nothing of sockets. They stand in this crate without any
//! feature, so that the scripted model, which is in every build, goes through the same parser as the
//! network client (PRV-108); a sibling crate could not hold them, because siblings never depend on
//! each other, and contracts hold no implementation. The feature `openai-chat` adds the network.

mod capabilities;
mod chunk;
mod client;
mod codec;
mod options;
mod profile;
mod profiles;
mod request;
mod response;
mod settings;
mod stream;
mod tool_slots;
mod write_item;

pub use crate::endpoint::{Authentication, EndpointError};
pub use capabilities::chat_capabilities;
pub use client::ChatModel;
pub use codec::ChatCodec;
pub use options::ChatOptions;
pub use profile::{ChatProfile, LimitKey, MappedFinish};
pub use profiles::{KNOWN_SERVERS, KnownServer};
pub use settings::ChatSettings;

pub(crate) use client::ChatCore;
pub(crate) use response::{Completion, RequestFacts, Validated, normal_form};
pub(crate) use write_item::write_message;
