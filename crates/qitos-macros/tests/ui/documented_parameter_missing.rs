use qitos_macros::tool;

/// Doc.
///
/// # Arguments
/// * `path` - where
/// * `limit` - how many
#[tool]
fn f(path: String) -> String {
    path
}

fn main() {}
