use qitos_macros::toolset;

struct Files<T>(T);

#[toolset]
impl<T> Files<T> {
    /// Doc.
    #[tool]
    fn read(&self) {}
}

struct Empty;

#[toolset]
impl Empty {
    fn read(&self) {}
}

struct Named;

#[toolset(namespace = "a b", prefix = "c")]
impl Named {
    /// Doc.
    #[tool(readonly)]
    fn read(&self) {}
}

#[toolset]
impl Default for Empty {
    fn default() -> Self {
        Empty
    }
}

#[toolset]
struct NotAnImpl;

fn main() {}
