use qitos_macros::tool;

/// Doc.
#[tool]
fn f() -> impl std::future::Future<Output = u8> {
    async { 1 }
}

/// Doc.
#[tool]
fn g() -> std::pin::Pin<Box<dyn std::future::Future<Output = u8> + Send>> {
    Box::pin(async { 1 })
}

/// Doc.
#[tool]
fn h() -> BoxStream<'static, u8> {
    unimplemented!()
}

fn main() {}
