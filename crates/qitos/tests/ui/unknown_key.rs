use qitos::tool;

/// Doc.
#[tool(readonly)]
fn f() {}

fn main() {}
