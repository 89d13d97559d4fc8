//! The Responses dialect (section 5.2), for OpenAI, Azure and servers that speak like them.
//!
//! Opt-in: nothing falls back to it or from it (PRV-9). Codec and stream rules know nothing of sockets;
//! the feature `openai-responses` adds the network.
//!
//! Where the server stores responses (its default), a request holds what came after the newest answer and
//! names that answer as `previous_response_id`. With `store: false` in the extra body the whole history goes
//! out, and reasoning comes back encrypted and returns in its original place (PRV-32).

mod capabilities;
mod client;
mod codec;
mod continuation;
mod event;
mod options;
mod request;
mod response;
mod settings;
mod stream;
mod write_item;

pub use crate::endpoint::{Authentication, EndpointError};
pub use capabilities::responses_capabilities;
pub use client::ResponsesModel;
pub use codec::ResponsesCodec;
pub use options::ResponsesOptions;
pub use settings::ResponsesSettings;
