//! The exchange log: items, batches, completion order (section 7 of tools-and-engine).
