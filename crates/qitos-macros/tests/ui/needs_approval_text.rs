use qitos_macros::tool;

/// Doc.
#[tool(needs_approval = "sometimes")]
fn f() {}

fn main() {}
