//! Integration tests of the facade.

#[cfg(test)]
#[cfg(all(feature = "anthropic", feature = "sqlite"))]
mod anthropic;
#[cfg(test)]
mod call_port;
#[cfg(test)]
mod compose;
#[cfg(test)]
mod consumer;
#[cfg(test)]
#[cfg(all(feature = "sqlite", feature = "anthropic"))]
mod continuation;
#[cfg(test)]
mod engine;
#[cfg(test)]
#[cfg(feature = "sqlite")]
mod kills;
#[cfg(test)]
#[cfg(all(feature = "openai-responses", feature = "sqlite"))]
mod responses;
#[cfg(test)]
mod settle;
#[cfg(test)]
mod tool_macro;
#[cfg(test)]
mod trajectory;
#[cfg(test)]
#[cfg(all(feature = "sqlite", feature = "gemini", feature = "local"))]
mod whole_providers;
