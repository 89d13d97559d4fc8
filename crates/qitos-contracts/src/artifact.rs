//! Artifact references and the artifact store contract (ART-1 to ART-8).
