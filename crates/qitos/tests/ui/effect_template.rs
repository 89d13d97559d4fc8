use qitos::tool;

/// Doc.
#[tool(effect = "invoice:{invoice}")]
fn unknown(id: u64) {}

/// Doc.
#[tool(effect = "invoice:{id}")]
fn optional(id: Option<u64>) {}

/// Doc.
#[tool(effect = "invoice:{id}")]
fn defaulted(#[arg(default = 1)] id: u64) {}

/// Doc.
#[tool(effect = "invoice:{id")]
fn unclosed(id: u64) {}

/// Doc.
#[tool(effect = "invoice {id}")]
fn unprintable(id: u64) {}

fn main() {}
