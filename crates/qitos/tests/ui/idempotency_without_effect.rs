use qitos::tool;

/// Doc.
#[tool(idempotency = "key")]
fn f() {}

fn main() {}
