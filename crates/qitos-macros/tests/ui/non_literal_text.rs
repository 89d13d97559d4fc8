use qitos_macros::tool;

const TEXT: &str = "text";

#[tool(description = TEXT)]
fn f() {}

fn main() {}
