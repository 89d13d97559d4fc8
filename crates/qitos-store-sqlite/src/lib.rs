//! The SQLite checkpoint store of QitOS.
