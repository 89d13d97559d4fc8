use qitos_macros::toolset;

struct Files;

#[toolset]
impl Files {
    /// Doc.
    #[tool]
    fn change(&mut self) {}

    /// Doc.
    #[tool]
    fn consume(self) {}

    /// Doc.
    #[tool]
    fn shared(self: std::sync::Arc<Self>) {}

    /// Doc.
    #[tool]
    fn without(path: String) {}

    /// Doc.
    #[tool]
    fn own_type(&self, other: Self) {}
}

fn main() {}
