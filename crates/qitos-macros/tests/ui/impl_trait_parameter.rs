use qitos_macros::tool;

/// Doc.
#[tool]
fn f(text: impl Into<String>) {}

/// Doc.
#[tool]
fn g(text: Box<dyn ToString>) {}

fn main() {}
