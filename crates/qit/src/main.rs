//! The qit command: run, inspect and check durable agents.

fn main() {}
