//! Implementations for QitOS without network, database or unsafe code.
