use qitos::tool;

/// Doc.
#[tool(description = " ")]
fn f() {}

fn main() {}
