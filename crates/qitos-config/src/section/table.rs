//! The macros that turn one list of fields into types, setters and rows.

/// A closed set of words with its spelling in files; the first is the default.
macro_rules! choices {
    ($(#[$meta:meta])* $name:ident { $first:ident = $first_text:literal $first_doc:literal $(, $variant:ident = $text:literal $doc:literal)* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            #[doc = $first_doc]
            #[default]
            #[serde(rename = $first_text)]
            $first,
            $(#[doc = $doc] #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            pub(crate) const WORDS: &'static [&'static str] = &[$first_text $(, $text)*];

            /// The word as it is written in a file.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $name::$first => $first_text,
                    $($name::$variant => $text,)*
                }
            }
        }
    };
}

macro_rules! field_type {
    (text) => { String };
    (opt_text) => { Option<String> };
    (integer) => { u64 };
    (opt_integer) => { Option<u64> };
    (number) => { f64 };
    (opt_number) => { Option<f64> };
    (flag) => { bool };
    (opt_flag) => { Option<bool> };
    (texts) => { Vec<String> };
    (map) => { serde_json::Map<String, serde_json::Value> };
    (dataset) => { Vec<crate::section::root::DatasetItem> };
    (choice $inner:ident) => { $inner };
    (section $inner:ident $edit:ident) => { $inner };
    (opt_section $inner:ident $edit:ident) => { Option<$inner> };
}

macro_rules! field_getter {
    ($doc:literal $name:ident text) => {
        #[doc = $doc]
        #[must_use]
        pub fn $name(&self) -> &str {
            &self.$name
        }
    };
    ($doc:literal $name:ident opt_text) => {
        #[doc = $doc]
        #[must_use]
        pub fn $name(&self) -> Option<&str> {
            self.$name.as_deref()
        }
    };
    ($doc:literal $name:ident integer) => {
        #[doc = $doc]
        #[must_use]
        pub const fn $name(&self) -> u64 {
            self.$name
        }
    };
    ($doc:literal $name:ident opt_integer) => {
        #[doc = $doc]
        #[must_use]
        pub const fn $name(&self) -> Option<u64> {
            self.$name
        }
    };
    ($doc:literal $name:ident number) => {
        #[doc = $doc]
        #[must_use]
        pub const fn $name(&self) -> f64 {
            self.$name
        }
    };
    ($doc:literal $name:ident opt_number) => {
        #[doc = $doc]
        #[must_use]
        pub const fn $name(&self) -> Option<f64> {
            self.$name
        }
    };
    ($doc:literal $name:ident flag) => {
        #[doc = $doc]
        #[must_use]
        pub const fn $name(&self) -> bool {
            self.$name
        }
    };
    ($doc:literal $name:ident opt_flag) => {
        #[doc = $doc]
        #[must_use]
        pub const fn $name(&self) -> Option<bool> {
            self.$name
        }
    };
    ($doc:literal $name:ident texts) => {
        #[doc = $doc]
        #[must_use]
        pub fn $name(&self) -> &[String] {
            &self.$name
        }
    };
    ($doc:literal $name:ident map) => {
        #[doc = $doc]
        #[must_use]
        pub const fn $name(&self) -> &serde_json::Map<String, serde_json::Value> {
            &self.$name
        }
    };
    ($doc:literal $name:ident dataset) => {
        #[doc = $doc]
        #[must_use]
        pub fn $name(&self) -> &[crate::section::root::DatasetItem] {
            &self.$name
        }
    };
    ($doc:literal $name:ident choice $inner:ident) => {
        #[doc = $doc]
        #[must_use]
        pub const fn $name(&self) -> $inner {
            self.$name
        }
    };
    ($doc:literal $name:ident section $inner:ident $edit:ident) => {
        #[doc = $doc]
        #[must_use]
        pub const fn $name(&self) -> &$inner {
            &self.$name
        }
    };
    ($doc:literal $name:ident opt_section $inner:ident $edit:ident) => {
        #[doc = $doc]
        #[must_use]
        pub const fn $name(&self) -> Option<&$inner> {
            self.$name.as_ref()
        }
    };
}

macro_rules! field_setter {
    ($doc:literal $key:literal $name:ident text) => { field_setter!(@put $doc $key $name, impl Into<String>, |value| Kind::Quoted(value.into())); };
    ($doc:literal $key:literal $name:ident opt_text) => { field_setter!($doc $key $name text); };
    ($doc:literal $key:literal $name:ident integer) => { field_setter!(@put $doc $key $name, u64, |value| Kind::Plain(value.to_string())); };
    ($doc:literal $key:literal $name:ident opt_integer) => { field_setter!($doc $key $name integer); };
    ($doc:literal $key:literal $name:ident number) => { field_setter!(@put $doc $key $name, f64, |value| Kind::Plain(format!("{value:?}"))); };
    ($doc:literal $key:literal $name:ident opt_number) => { field_setter!($doc $key $name number); };
    ($doc:literal $key:literal $name:ident flag) => { field_setter!(@put $doc $key $name, bool, |value| Kind::Plain(value.to_string())); };
    ($doc:literal $key:literal $name:ident opt_flag) => { field_setter!($doc $key $name flag); };
    ($doc:literal $key:literal $name:ident choice $inner:ident) => { field_setter!(@put $doc $key $name, $inner, |value| Kind::Quoted(value.as_str().to_owned())); };
    ($doc:literal $key:literal $name:ident texts) => {
        #[doc = $doc]
        pub fn $name<Item: Into<String>>(&mut self, values: impl IntoIterator<Item = Item>) -> &mut Self {
            let items = values.into_iter().map(|item| Node::from_code(Kind::Quoted(item.into()))).collect();
            self.node.set($key, Node::from_code(Kind::Sequence(items)));
            self
        }
    };
    ($doc:literal $key:literal $name:ident map) => {
        #[doc = $doc]
        pub fn $name(&mut self, map: serde_json::Map<String, serde_json::Value>) -> &mut Self {
            self.node.set($key, Node::from_map(&map));
            self
        }
    };
    ($doc:literal $key:literal $name:ident dataset) => {
        #[doc = $doc]
        pub fn $name(&mut self, items: impl IntoIterator<Item = crate::section::root::DatasetItem>) -> &mut Self {
            let items = items.into_iter().map(|item| item.to_node()).collect();
            self.node.set($key, Node::from_code(Kind::Sequence(items)));
            self
        }
    };
    ($doc:literal $key:literal $name:ident section $inner:ident $edit:ident) => {
        #[doc = $doc]
        pub fn $name(&mut self, edit: impl FnOnce(&mut $edit)) -> &mut Self {
            let mut section = $edit { node: self.node.take($key).unwrap_or_else(Node::empty_mapping) };
            edit(&mut section);
            self.node.set($key, section.node);
            self
        }
    };
    ($doc:literal $key:literal $name:ident opt_section $inner:ident $edit:ident) => { field_setter!($doc $key $name section $inner $edit); };
    (@put $doc:literal $key:literal $name:ident, $type:ty, |$value:ident| $kind:expr) => {
        #[doc = $doc]
        pub fn $name(&mut self, $value: $type) -> &mut Self {
            self.node.set($key, Node::from_code($kind));
            self
        }
    };
}

/// One section: `doc type name = "key": shape, default;` per field.
macro_rules! section {
    ($(#[$meta:meta])* $section:ident, $edit:ident {
        $(#[doc = $doc:literal] $kind:ident $(<$($inner:ident),+>)? $name:ident = $key:literal: $shape:expr, $default:expr;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $section {
            $(#[serde(rename = $key, default)] $name: field_type!($kind $($($inner)+)?),)*
        }

        impl $section {
            /// The rows of this section, in the order of the specification.
            pub(crate) fn fields() -> &'static [Field] {
                const FIELDS: &[Field] = &[$(Field { name: $key, doc: $doc, shape: $shape, default: $default },)*];
                FIELDS
            }

            $(field_getter! { $doc $name $kind $($($inner)+)? })*
        }

        #[doc = concat!("Sets fields of [`", stringify!($section), "`] in a builder.")]
        ///
        /// Nothing is checked here: the builder's `build` runs the validation of the reader (CFG-17).
        #[derive(Debug)]
        pub struct $edit {
            pub(crate) node: Node,
        }

        impl $edit {
            $(field_setter! { $doc $key $name $kind $($($inner)+)? })*

            /// Forgets what is set under `key`, so that its default holds again.
            pub fn unset(&mut self, key: &str) -> &mut Self {
                self.node.take(key);
                self
            }
        }
    };
}
