use qitos_macros::tool;

#[tool]
fn f() {}

fn main() {}
