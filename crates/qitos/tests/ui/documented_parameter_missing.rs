use qitos::tool;

/// Doc.
///
/// # Arguments
/// * `path` - where
/// * `limit` - how many
#[tool]
fn f(path: String) {}

fn main() {}
