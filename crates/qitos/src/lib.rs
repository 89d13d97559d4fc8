//! QitOS: a durable agent kernel with six replaceable mechanisms.
