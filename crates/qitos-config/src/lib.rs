//! The strict agent.yaml reader of QitOS, with positions.
