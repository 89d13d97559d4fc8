use qitos_macros::tool;

/// Doc.
#[tool(idempotency = "key")]
fn f() {}

fn main() {}
