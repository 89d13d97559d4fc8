//! Trajectory records, loss and privacy views.
