//! Effect classes and idempotency keys.
