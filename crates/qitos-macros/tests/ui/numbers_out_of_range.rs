use qitos_macros::tool;

/// Doc.
#[tool(timeout_ms = 0, max_attempts = -1, result_max_chars = 99999999999999999999)]
fn f() {}

fn main() {}
