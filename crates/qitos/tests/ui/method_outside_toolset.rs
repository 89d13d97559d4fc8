use qitos::tool;

struct Files;

impl Files {
    /// Doc.
    #[tool]
    fn read(&self) {}
}

fn main() {}
