//! The Provider contract: request view, codec, verified response, typed failure.
