use qitos_macros::tool;

/// Doc.
#[tool(description = " ")]
fn f() {}

fn main() {}
