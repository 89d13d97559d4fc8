//! Repository rules as tests, schema and error-page generation.

fn main() {}
