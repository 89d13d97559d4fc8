use qitos_macros::tool;

struct Files;

impl Files {
    /// Doc.
    #[tool]
    fn read(&self) {}
}

fn main() {}
