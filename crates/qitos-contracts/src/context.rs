//! Contributors, budgets and contributions.
