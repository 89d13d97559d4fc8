//! The JSON Schema subset of tool arguments (section 2).
