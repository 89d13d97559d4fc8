//! What the model sees of a result (PRJ-1 to PRJ-9).
