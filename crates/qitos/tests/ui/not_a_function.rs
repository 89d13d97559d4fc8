use qitos::tool;

#[tool]
struct Files;

fn main() {}
