//! What a tool declares before any call.
