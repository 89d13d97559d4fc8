use qitos_macros::tool;

/// Doc.
#[tool]
fn f(text: &str) {}

/// Doc.
#[tool]
fn g(list: Vec<&'static str>) {}

/// Doc.
#[tool]
fn h(ctx: &mut CallCtx) {}

fn main() {}
