use qitos_macros::tool;

/// Doc.
#[tool(read_only = "yes", max_attempts = "3", name = 5)]
fn f() {}

fn main() {}
