use qitos_macros::tool;

/// Doc.
#[tool]
fn f(#[arg(defalut = 3)] a: u8) {}

/// Doc.
#[tool]
fn g(#[arg(default)] a: u8) {}

/// Doc.
#[tool]
fn h(#[arg] a: u8) {}

/// Doc.
#[tool]
fn i(#[arg(description = "a", description = "b")] a: u8) {}

/// Doc.
#[tool]
fn j(#[arg(default = 1)] ctx: CallCtx) {}

fn main() {}
