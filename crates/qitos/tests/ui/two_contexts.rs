use qitos::tool;

use qitos::tool::CallCtx;

/// Doc.
#[tool]
fn f(one: CallCtx, two: &CallCtx) {}

fn main() {}
