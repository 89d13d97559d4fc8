use qitos_macros::tool;

struct Arguments;

/// Doc.
#[tool]
fn f(#[args] all: Arguments, more: u8) {}

/// Doc.
#[tool]
fn g(#[args] all: Arguments, #[args] more: Arguments) {}

fn main() {}
