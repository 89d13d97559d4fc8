//! How a field is described: the reader, the defaults and the JSON Schema all follow this one description.

/// One key of a section.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) shape: Shape,
    pub(crate) default: WhenAbsent,
}

/// What a value must be.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A mapping with exactly these keys.
    Section(fn() -> &'static [Field]),
    Text(Text),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An integer within bounds, both inclusive.
    Integer {
        min: u64,
        max: Option<u64>,
        nullable: bool,
    },
    /// A finite number within bounds, both inclusive.
    Number {
        min: f64,
        max: Option<f64>,
        nullable: bool,
    },
    Flag,
    /// A protection that can be named but not switched off.
    AlwaysTrue,
    Texts {
        item: Text,
        unique: bool,
    },
    /// Any JSON-safe mapping.
    FreeMap,
    /// A JSON-safe mapping that goes to the provider: no key the client sets, no credential (see `credential_key`).
    ExtraBody,
    /// A list of task strings or `{task, expected?, metadata?}`.
    Dataset,
}

/// What a string must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    /// Anything.
    Any,
    /// At least one character that is no white space, and at most so many characters.
    NonBlank { max_chars: usize },
    /// A name under which a factory can be registered.
    Name,
    /// At most 256 characters without white space; empty when that means "none".
    Token { empty: bool },
    /// A path as written: not blank, no NUL.
    Path,
    /// An absolute path inside a sandbox, outside the system's trees.
    GuestPath,
    /// An HTTP endpoint, or empty.
    Endpoint,
    /// A glob or a path relative to the workspace.
    Glob,
}

/// What stands for a key that is not written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum WhenAbsent {
    /// It must be written.
    Required,
    /// Nothing: the factory, or another field, decides.
    Absent,
    Null,
    Text(&'static str),
    Integer(u64),
    Number(f64),
    Flag(bool),
    EmptyList,
    EmptyMap,
    /// A section with the defaults of its own fields.
    Section,
}

/// The pattern of names.
pub(crate) const NAME_PATTERN: &str = "^[a-z][a-z0-9_.-]{0,63}$";

/// Whether `text` can be the name of a factory.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-'))
}
