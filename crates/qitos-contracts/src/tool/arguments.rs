//! Argument text to validated value (ARG-1 to ARG-7).
