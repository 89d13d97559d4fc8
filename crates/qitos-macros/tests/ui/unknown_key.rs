use qitos_macros::tool;

/// Doc.
#[tool(readonly)]
fn f() {}

fn main() {}
