//! Workloads, floors and growth laws of QitOS.

fn main() {}
