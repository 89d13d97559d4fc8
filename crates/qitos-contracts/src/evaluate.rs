//! The TrajectoryEvaluator contract.
