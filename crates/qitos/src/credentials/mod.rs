//! How a credential reference becomes a secret: from a local file, from the environment, or made up (CRD-3 to CRD-10).
//!
//! A composition uses the one resolver that its caller passes; nothing is looked up by itself.

mod environment;
mod fake;
mod local_file;

pub use environment::EnvironmentCredentialResolver;
pub use fake::FakeCredentialResolver;
pub use local_file::{LocalCredentialFileResolver, repository_root_of};
