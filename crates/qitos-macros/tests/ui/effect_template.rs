use qitos_macros::tool;

/// Doc.
#[tool(effect = "invoice:{invoice}")]
fn unknown(id: u64) -> u64 {
    id
}

/// Doc.
#[tool(effect = "invoice:{id}")]
fn optional(id: Option<u64>) -> Option<u64> {
    id
}

/// Doc.
#[tool(effect = "invoice:{id}")]
fn defaulted(#[arg(default = 1)] id: u64) -> u64 {
    id
}

/// Doc.
#[tool(effect = "invoice:{id")]
fn unclosed(id: u64) -> u64 {
    id
}

/// Doc.
#[tool(effect = "invoice {id}")]
fn unprintable(id: u64) -> u64 {
    id
}

fn main() {}
