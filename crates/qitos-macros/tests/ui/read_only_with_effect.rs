use qitos_macros::tool;

/// Doc.
#[tool(read_only, effect = "pure")]
fn f() {}

fn main() {}
