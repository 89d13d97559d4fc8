//! Snapshot envelope, components and the incremental layout (sections 4 and 18 of session).
