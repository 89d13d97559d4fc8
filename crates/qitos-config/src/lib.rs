//! The strict `agent.yaml` reader of QitOS, with positions.
//!
//! A configuration is data: it selects among factories that the program registered and can never load, import,
//! download or execute anything. [`AgentConfig`] is the only way to hold one; it is immutable and every value of
//! it went through the same validation, whether it came from YAML, from JSON or from code.
//!
//! | module | what it decides |
//! |---|---|
//! | `source` | how a file is opened (CFG-11) |
//! | `parse_yaml`, `parse_json` | which bytes are a document (CFG-1 to CFG-3), with a position for every node |
//! | `scalar` | what a plain scalar means (CFG-5) |
//! | [`section`] | the one list of fields: name, type, bounds, default, text |
//! | `decode` | document and list of fields to values, defaults filled, unknown keys refused (CFG-4, CFG-6) |
//! | `text_rule` | what a string must be, for each kind of text |
//! | `validate` | what concerns two fields at once |
//! | `json_schema` | the same list as JSON Schema (CFG-34) |
//! | [`config`] | the result: canonical form, digest, sanitized form (CFG-12 to CFG-17) |

pub mod config;
mod credential_file;
mod credential_key;
mod decode;
mod describe_error;
mod document;
mod endpoint;
mod field;
#[cfg(test)]
mod fixture_tests;
mod json_schema;
mod limits;
mod parse_json;
mod parse_yaml;
mod paths;
mod scalar;
mod schema_revision;
pub mod section;
mod source;
mod text_rule;
mod validate;

pub use config::{AgentConfig, AgentConfigBuilder, CompatibilityReceipt, Format};
pub use credential_file::{MAX_CREDENTIAL_FILE_BYTES, read_credential_mapping};
pub use describe_error::{ConfigError, ConfigErrorCode, ConfigErrors, MAX_ERRORS};
pub use json_schema::json_schema;
pub use limits::{MAX_BYTES, MAX_DEPTH, MAX_METADATA_BYTES, MAX_NODES, MAX_SCALAR_BYTES};
