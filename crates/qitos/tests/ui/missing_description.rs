use qitos::tool;

#[tool]
fn f() {}

fn main() {}
