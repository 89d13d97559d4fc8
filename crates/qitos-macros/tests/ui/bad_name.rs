use qitos_macros::tool;

/// Doc.
#[tool(name = "read file")]
fn f() {}

/// Doc.
#[tool]
fn größe() {}

fn main() {}
