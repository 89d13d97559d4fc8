//! Objects and arrays written straight into a buffer, without a tree.

use serde::Serialize;
use serde_json::{Map, Number, Value};

use super::serialize::append_canonical;
use super::writer::{
    CanonicalError, write, write_f64, write_i64, write_map, write_number, write_str, write_u64,
};
use crate::digest::Digest;

/// Writes one object directly into a buffer.
///
/// The caller gives the keys in code-point order; debug builds assert it, release builds trust it. The
/// brace is closed by [`end`](ObjectWriter::end) or when the writer is dropped.
///
/// ```
/// use qitos_contracts::canonical_json::ObjectWriter;
///
/// let mut buffer = Vec::new();
/// let mut object = ObjectWriter::new(&mut buffer);
/// object.key("name").str("notes");
/// let mut sizes = object.key("sizes").array();
/// sizes.item().u64(1);
/// sizes.end();
/// object.end();
/// assert_eq!(buffer, br#"{"name":"notes","sizes":[1]}"#);
/// ```
#[derive(Debug)]
pub struct ObjectWriter<'buffer> {
    buffer: &'buffer mut Vec<u8>,
    started: bool,
    #[cfg(debug_assertions)]
    last_key: String,
}

impl<'buffer> ObjectWriter<'buffer> {
    /// Opens an object at the end of `buffer`.
    #[must_use]
    pub fn new(buffer: &'buffer mut Vec<u8>) -> Self {
        buffer.push(b'{');
        ObjectWriter {
            buffer,
            started: false,
            #[cfg(debug_assertions)]
            last_key: String::new(),
        }
    }

    /// Writes a key; the returned slot takes its value.
    #[inline]
    pub fn key(&mut self, key: &str) -> ValueWriter<'_> {
        #[cfg(debug_assertions)]
        {
            debug_assert!(
                !self.started || self.last_key.as_str() < key,
                "key {key:?} does not follow {:?} in code-point order",
                self.last_key
            );
            self.last_key.clear();
            self.last_key.push_str(key);
        }
        if self.started {
            self.buffer.push(b',');
        }
        self.started = true;
        write_str(key, self.buffer);
        self.buffer.push(b':');
        ValueWriter {
            buffer: self.buffer,
        }
    }

    /// Closes the object.
    pub fn end(self) {}
}

impl Drop for ObjectWriter<'_> {
    fn drop(&mut self) {
        self.buffer.push(b'}');
    }
}

/// Writes one array directly into a buffer.
///
/// The bracket is closed by [`end`](ArrayWriter::end) or when the writer is dropped.
#[derive(Debug)]
pub struct ArrayWriter<'buffer> {
    buffer: &'buffer mut Vec<u8>,
    started: bool,
}

impl<'buffer> ArrayWriter<'buffer> {
    /// Opens an array at the end of `buffer`.
    #[must_use]
    pub fn new(buffer: &'buffer mut Vec<u8>) -> Self {
        buffer.push(b'[');
        ArrayWriter {
            buffer,
            started: false,
        }
    }

    /// A slot for the next item.
    #[inline]
    pub fn item(&mut self) -> ValueWriter<'_> {
        if self.started {
            self.buffer.push(b',');
        }
        self.started = true;
        ValueWriter {
            buffer: self.buffer,
        }
    }

    /// Closes the array.
    pub fn end(self) {}
}

impl Drop for ArrayWriter<'_> {
    fn drop(&mut self) {
        self.buffer.push(b']');
    }
}

/// The place of exactly one value.
///
/// A slot that is dropped without a value leaves bytes that are not JSON. So does a method that fails:
/// the buffer is then to be thrown away.
#[derive(Debug)]
#[must_use = "a key or item needs its value"]
pub struct ValueWriter<'buffer> {
    buffer: &'buffer mut Vec<u8>,
}

impl<'buffer> ValueWriter<'buffer> {
    /// A slot at the end of `buffer`, for a value that stands alone.
    pub fn new(buffer: &'buffer mut Vec<u8>) -> Self {
        ValueWriter { buffer }
    }

    /// A string.
    #[inline]
    pub fn str(self, text: &str) {
        write_str(text, self.buffer);
    }

    /// A string, or null.
    #[inline]
    pub fn optional_str(self, text: Option<&str>) {
        match text {
            Some(text) => self.str(text),
            None => self.null(),
        }
    }

    /// A digest as its 64 hex digits.
    pub fn digest(self, digest: &Digest) {
        self.str(&digest.to_hex());
    }

    /// An unsigned integer.
    #[inline]
    pub fn u64(self, value: u64) {
        write_u64(value, self.buffer);
    }

    /// An unsigned integer, or null.
    #[inline]
    pub fn optional_u64(self, value: Option<u64>) {
        match value {
            Some(value) => self.u64(value),
            None => self.null(),
        }
    }

    /// A signed integer.
    #[inline]
    pub fn i64(self, value: i64) {
        write_i64(value, self.buffer);
    }

    /// A finite float.
    ///
    /// # Errors
    /// `NotFinite`.
    pub fn f64(self, value: f64) -> Result<(), CanonicalError> {
        write_f64(value, self.buffer)
    }

    /// A boolean.
    #[inline]
    pub fn bool(self, value: bool) {
        self.buffer
            .extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// Null.
    #[inline]
    pub fn null(self) {
        self.buffer.extend_from_slice(b"null");
    }

    /// Bytes that are one canonical value already, such as a cached encoding; they are not checked.
    #[inline]
    pub fn raw(self, canonical: &[u8]) {
        self.buffer.extend_from_slice(canonical);
    }

    /// A JSON tree.
    ///
    /// # Errors
    /// As [`to_bytes`](super::to_bytes).
    pub fn value(self, value: &Value) -> Result<(), CanonicalError> {
        write(value, self.buffer)
    }

    /// A number of a JSON tree.
    ///
    /// # Errors
    /// As [`to_bytes`](super::to_bytes).
    pub fn number(self, number: &Number) -> Result<(), CanonicalError> {
        write_number(number, self.buffer)
    }

    /// The object that is a map of a JSON tree.
    ///
    /// # Errors
    /// As [`to_bytes`](super::to_bytes).
    pub fn map(self, members: &Map<String, Value>) -> Result<(), CanonicalError> {
        write_map(members, self.buffer, 0)
    }

    /// A `Serialize` value; see [`to_canonical`](super::to_canonical) for the cost.
    ///
    /// # Errors
    /// As [`to_canonical`](super::to_canonical).
    pub fn serialize<T: Serialize + ?Sized>(self, value: &T) -> Result<(), CanonicalError> {
        append_canonical(value, self.buffer)
    }

    /// An array of strings.
    pub fn strings<Item: AsRef<str>>(self, items: impl IntoIterator<Item = Item>) {
        let mut array = self.array();
        for item in items {
            array.item().str(item.as_ref());
        }
    }

    /// A nested object.
    #[must_use]
    pub fn object(self) -> ObjectWriter<'buffer> {
        ObjectWriter::new(self.buffer)
    }

    /// A nested array.
    #[must_use]
    pub fn array(self) -> ArrayWriter<'buffer> {
        ArrayWriter::new(self.buffer)
    }
}
