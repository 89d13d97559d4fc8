use qitos_macros::tool;

/// Doc.
#[tool]
fn generic<T>(value: T) {}

/// Doc.
#[tool]
fn lifetime<'a>(value: u8) {}

/// Doc.
#[tool]
fn bounded(value: u8) where u8: Copy {}

fn main() {}
