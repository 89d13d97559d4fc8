//! The scripted model, registered as `fake` (section 10).
//!
//! It needs no feature, credential or network, and it is no shortcut: a step says what a server would
//! send, and the answer goes through the same codec, decoder and stream rules as one from the network
//! (PRV-108). That is why it stands in this crate and not beside the other implementations without
//! network: it must share the dialect, and siblings never depend on each other.
//!
//! ```
//! use qitos_providers::scripted::{Answer, ScriptedModel, Step};
//!
//! let model = ScriptedModel::new("notes-fake", vec![
//!     Step::answer(Answer::call("call_1", "add", r#"{"a":2,"b":3}"#)),
//!     Step::answer(Answer::text("done")),
//! ])?;
//! assert_eq!(model.undelivered_steps(), Some(2));
//! # Ok::<(), Box<qitos_contracts::model::ProviderFailure>>(())
//! ```

mod model;
mod react_script;
mod step;
mod transport;

pub use model::{Recording, ScriptedModel};
pub use react_script::ScriptError;
pub use step::{Answer, BodyEnd, Gate, Step};
