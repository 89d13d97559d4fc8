use qitos_macros::tool;

/// Doc.
#[tool(title = "a", title = "b")]
fn f() {}

fn main() {}
