use qitos_macros::tool;

/// Doc.
#[tool]
fn f(one: CallCtx, two: &CallCtx) {}

fn main() {}
