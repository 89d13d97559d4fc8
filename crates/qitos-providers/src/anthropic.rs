//! The Anthropic Messages dialect (section 5.3), for Anthropic and everything that speaks like it.
//!
//! Codec and stream rules need no feature and no network; the feature `anthropic` adds the client.

mod batch;
mod block;
mod capabilities;
mod client;
mod codec;
mod continuation;
mod event;
mod options;
mod profile;
mod request;
mod response;
mod settings;
mod stream;
mod usage;
mod write_item;

pub use capabilities::anthropic_capabilities;
pub use client::AnthropicModel;
pub use codec::AnthropicCodec;
pub use options::AnthropicOptions;
pub use profile::AnthropicProfile;
pub use settings::AnthropicSettings;
