use qitos_macros::tool;

/// Doc.
#[tool(timeout_ms = 5 * 60)]
fn f() {}

fn main() {}
