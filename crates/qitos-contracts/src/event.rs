//! The EventSink contract.
