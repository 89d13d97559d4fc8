//! The append-only trajectory journal of QitOS.
