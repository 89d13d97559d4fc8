//! Deliberately wrong implementations: each breaks one rule of a correct one, and the check named for that rule
//! must reject it.
//!
//! Wrong stores and wrong providers wrap any correct one, so whoever writes one can find out what a check is worth;
//! wrong engines are a small right one with a flaw.

/// The list of a mechanism's flaws, each with the id of the check that must reject it.
macro_rules! flaws {
    ($($(#[$doc:meta])* $name:ident => $check:literal),+ $(,)?) => {
        /// The rule that a mutant breaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Flaw {
            $($(#[$doc])* $name,)+
        }

        impl Flaw {
            /// Every flaw.
            pub const ALL: &'static [Flaw] = &[$(Flaw::$name),+];

            /// The id of the check that must reject it.
            #[must_use]
            pub const fn rejected_by(self) -> &'static str {
                match self {
                    $(Flaw::$name => $check,)+
                }
            }
        }
    };
}

pub mod checkpoint_store;
pub mod provider;
pub mod tool_engine;
