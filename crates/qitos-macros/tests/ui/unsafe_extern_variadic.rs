use qitos_macros::tool;

/// Doc.
#[tool]
unsafe fn f() {}

/// Doc.
#[tool]
extern "C" fn g() {}

/// Doc.
#[tool]
unsafe extern "C" fn h(a: u8, _: ...) {}

fn main() {}
