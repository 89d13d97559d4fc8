use qitos::tool;

/// Doc.
#[tool(needs_approval = "sometimes")]
fn f() {}

fn main() {}
