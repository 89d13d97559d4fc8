//! What a running call may touch.
