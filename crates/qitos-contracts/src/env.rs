//! The Env contract (types of the sandbox mechanism).
