use qitos_macros::tool;

#[tool]
struct Files;

fn main() {}
