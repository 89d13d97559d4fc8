use qitos_macros::tool;

/// Doc.
#[tool]
fn f((a, b): (u8, u8)) {}

/// Doc.
#[tool]
fn g(_: u8) {}

/// Doc.
#[tool]
fn h(ref a: u8) {}

fn main() {}
