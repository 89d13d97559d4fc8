//! `Serialize` values to canonical bytes, without a tree in between.

use std::borrow::Cow;
use std::fmt;

use serde::ser::{self, Serialize};

use super::reader::{ReadLimits, ReadReason, read};
use super::writer::{
    CanonicalError, deeper, write_f64, write_i64, write_str, write_u64, write_value,
};

/// The canonical bytes of any `Serialize` value (SES-17).
///
/// The data model is that of `serde_json`. Costs one pass and no tree; an object whose keys do not come
/// in order is copied once more, so declare the fields of hot types in key order or write them with
/// [`ObjectWriter`](super::ObjectWriter).
///
/// # Errors
/// `NotFinite`, `IntegerRange` (128-bit integers), `TooDeep`, `DuplicateKey`, `KeyNotString`; `Custom` when
/// the value itself refuses.
pub fn to_canonical<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    let mut buffer = Vec::with_capacity(128);
    append_canonical(value, &mut buffer)?;
    Ok(buffer)
}

/// Appends the canonical bytes of any `Serialize` value to `buffer` (SES-17).
///
/// # Errors
/// As [`to_canonical`]; `buffer` then ends in an incomplete value.
pub fn append_canonical<T: Serialize + ?Sized>(
    value: &T,
    buffer: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    value.serialize(Encoder { buffer, depth: 0 })
}

impl ser::Error for CanonicalError {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        // The message may quote content, which errors must not echo.
        CanonicalError::Custom
    }
}

/// The names under which `serde_json` hides its own types from other formats.
const NUMBER_TOKEN: &str = "$serde_json::private::Number";
const RAW_VALUE_TOKEN: &str = "$serde_json::private::RawValue";

struct Encoder<'buffer> {
    buffer: &'buffer mut Vec<u8>,
    depth: usize,
}

impl<'buffer> Encoder<'buffer> {
    /// Opens `{"variant":` and tells how deep its content stands.
    fn variant(&mut self, variant: &str) -> Result<(), CanonicalError> {
        self.depth = deeper(self.depth)?;
        self.buffer.push(b'{');
        write_str(variant, self.buffer);
        self.buffer.push(b':');
        Ok(())
    }

    fn sequence(self, in_variant: bool) -> Result<Sequence<'buffer>, CanonicalError> {
        let depth = deeper(self.depth)?;
        self.buffer.push(b'[');
        Ok(Sequence {
            buffer: self.buffer,
            depth,
            started: false,
            in_variant,
        })
    }

    fn members(self, in_variant: bool) -> Result<Members<'buffer>, CanonicalError> {
        let depth = deeper(self.depth)?;
        self.buffer.push(b'{');
        let start = self.buffer.len();
        Ok(Members {
            buffer: self.buffer,
            depth,
            start,
            in_order: true,
            parts: Vec::new(),
            in_variant,
        })
    }
}

macro_rules! integers {
    ($($method:ident $type:ty => $writer:ident $wide:ty),* $(,)?) => {$(
        fn $method(self, value: $type) -> Result<(), CanonicalError> {
            $writer(<$wide>::from(value), self.buffer);
            Ok(())
        }
    )*};
}

impl<'buffer> ser::Serializer for Encoder<'buffer> {
    type Ok = ();
    type Error = CanonicalError;
    type SerializeSeq = Sequence<'buffer>;
    type SerializeTuple = Sequence<'buffer>;
    type SerializeTupleStruct = Sequence<'buffer>;
    type SerializeTupleVariant = Sequence<'buffer>;
    type SerializeMap = Members<'buffer>;
    type SerializeStruct = Fields<'buffer>;
    type SerializeStructVariant = Members<'buffer>;

    integers! {
        serialize_i8 i8 => write_i64 i64,
        serialize_i16 i16 => write_i64 i64,
        serialize_i32 i32 => write_i64 i64,
        serialize_i64 i64 => write_i64 i64,
        serialize_u8 u8 => write_u64 u64,
        serialize_u16 u16 => write_u64 u64,
        serialize_u32 u32 => write_u64 u64,
        serialize_u64 u64 => write_u64 u64,
    }

    fn serialize_i128(self, value: i128) -> Result<(), CanonicalError> {
        if let Ok(value) = u64::try_from(value) {
            write_u64(value, self.buffer);
        } else {
            let value = i64::try_from(value).map_err(|_| CanonicalError::IntegerRange)?;
            write_i64(value, self.buffer);
        }
        Ok(())
    }

    fn serialize_u128(self, value: u128) -> Result<(), CanonicalError> {
        let value = u64::try_from(value).map_err(|_| CanonicalError::IntegerRange)?;
        write_u64(value, self.buffer);
        Ok(())
    }

    fn serialize_bool(self, value: bool) -> Result<(), CanonicalError> {
        self.buffer
            .extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), CanonicalError> {
        write_f64(f64::from(value), self.buffer)
    }

    fn serialize_f64(self, value: f64) -> Result<(), CanonicalError> {
        write_f64(value, self.buffer)
    }

    fn serialize_char(self, value: char) -> Result<(), CanonicalError> {
        write_str(value.encode_utf8(&mut [0; 4]), self.buffer);
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), CanonicalError> {
        write_str(value, self.buffer);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), CanonicalError> {
        let mut sequence = self.sequence(false)?;
        for byte in value {
            sequence.item(byte)?;
        }
        sequence.close();
        Ok(())
    }

    fn serialize_none(self) -> Result<(), CanonicalError> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), CanonicalError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), CanonicalError> {
        self.buffer.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), CanonicalError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<(), CanonicalError> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        mut self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        self.variant(variant)?;
        value.serialize(Encoder {
            buffer: &mut *self.buffer,
            depth: self.depth,
        })?;
        self.buffer.push(b'}');
        Ok(())
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Sequence<'buffer>, CanonicalError> {
        self.sequence(false)
    }

    fn serialize_tuple(self, _length: usize) -> Result<Sequence<'buffer>, CanonicalError> {
        self.sequence(false)
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<Sequence<'buffer>, CanonicalError> {
        self.sequence(false)
    }

    fn serialize_tuple_variant(
        mut self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Sequence<'buffer>, CanonicalError> {
        self.variant(variant)?;
        self.sequence(true)
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Members<'buffer>, CanonicalError> {
        self.members(false)
    }

    fn serialize_struct(
        self,
        name: &'static str,
        _length: usize,
    ) -> Result<Fields<'buffer>, CanonicalError> {
        if name == NUMBER_TOKEN || name == RAW_VALUE_TOKEN {
            return Ok(Fields::Literal(self));
        }
        self.members(false).map(Fields::Members)
    }

    fn serialize_struct_variant(
        mut self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Members<'buffer>, CanonicalError> {
        self.variant(variant)?;
        self.members(true)
    }
}

struct Sequence<'buffer> {
    buffer: &'buffer mut Vec<u8>,
    depth: usize,
    started: bool,
    in_variant: bool,
}

impl Sequence<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        if self.started {
            self.buffer.push(b',');
        }
        self.started = true;
        value.serialize(Encoder {
            buffer: &mut *self.buffer,
            depth: self.depth,
        })
    }

    fn close(self) {
        self.buffer.push(b']');
        if self.in_variant {
            self.buffer.push(b'}');
        }
    }
}

macro_rules! sequences {
    ($($trait:ident $method:ident),* $(,)?) => {$(
        impl ser::$trait for Sequence<'_> {
            type Ok = ();
            type Error = CanonicalError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
                self.item(value)
            }

            fn end(self) -> Result<(), CanonicalError> {
                self.close();
                Ok(())
            }
        }
    )*};
}

sequences! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}

/// One member that has been written: its key, and where its bytes `"key":value` stand in the buffer.
struct Part {
    key: Cow<'static, str>,
    start: usize,
    end: usize,
}

/// Members of an object, written as they come and put in order at the end if they were not.
struct Members<'buffer> {
    buffer: &'buffer mut Vec<u8>,
    depth: usize,
    start: usize,
    in_order: bool,
    parts: Vec<Part>,
    in_variant: bool,
}

impl Members<'_> {
    fn key(&mut self, key: Cow<'static, str>) {
        if let Some(last) = self.parts.last() {
            self.buffer.push(b',');
            self.in_order &= last.key < key;
        }
        let start = self.buffer.len();
        write_str(&key, self.buffer);
        self.buffer.push(b':');
        self.parts.push(Part {
            key,
            start,
            end: start,
        });
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        value.serialize(Encoder {
            buffer: &mut *self.buffer,
            depth: self.depth,
        })?;
        let end = self.buffer.len();
        if let Some(part) = self.parts.last_mut() {
            part.end = end;
        }
        Ok(())
    }

    fn close(mut self) -> Result<(), CanonicalError> {
        if !self.in_order {
            self.parts
                .sort_unstable_by(|left, right| left.key.cmp(&right.key));
            let same = |pair: &[Part]| matches!(pair, [left, right] if left.key == right.key);
            if self.parts.windows(2).any(same) {
                return Err(CanonicalError::DuplicateKey);
            }
            let mut sorted = Vec::with_capacity(self.buffer.len() - self.start);
            for part in &self.parts {
                if !sorted.is_empty() {
                    sorted.push(b',');
                }
                sorted.extend_from_slice(self.buffer.get(part.start..part.end).unwrap_or_default());
            }
            self.buffer.truncate(self.start);
            self.buffer.extend_from_slice(&sorted);
        }
        self.buffer.push(b'}');
        if self.in_variant {
            self.buffer.push(b'}');
        }
        Ok(())
    }
}

impl ser::SerializeMap for Members<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), CanonicalError> {
        let key = key.serialize(KeyText)?;
        self.key(Cow::Owned(key));
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        self.value(value)
    }

    fn end(self) -> Result<(), CanonicalError> {
        self.close()
    }
}

impl ser::SerializeStructVariant for Members<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        self.key(Cow::Borrowed(key));
        self.value(value)
    }

    fn end(self) -> Result<(), CanonicalError> {
        self.close()
    }
}

/// A struct, or a number or raw text that `serde_json` dresses up as one.
enum Fields<'buffer> {
    Members(Members<'buffer>),
    Literal(Encoder<'buffer>),
}

impl ser::SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        match self {
            Fields::Members(members) => {
                members.key(Cow::Borrowed(key));
                members.value(value)
            }
            Fields::Literal(encoder) => {
                let text = value.serialize(KeyText)?;
                let value =
                    read(text.as_bytes(), ReadLimits::DEFAULT).map_err(|error| {
                        match error.reason {
                            ReadReason::IntegerRange => CanonicalError::IntegerRange,
                            ReadReason::NotFinite => CanonicalError::NotFinite,
                            ReadReason::TooDeep => CanonicalError::TooDeep,
                            ReadReason::DuplicateKey => CanonicalError::DuplicateKey,
                            _ => CanonicalError::Custom,
                        }
                    })?;
                write_value(&value, encoder.buffer, encoder.depth)
            }
        }
    }

    fn end(self) -> Result<(), CanonicalError> {
        match self {
            Fields::Members(members) => members.close(),
            Fields::Literal(_) => Ok(()),
        }
    }
}

/// Turns a map key into its text.
struct KeyText;

macro_rules! key_from_display {
    ($($method:ident $type:ty),* $(,)?) => {$(
        fn $method(self, value: $type) -> Result<String, CanonicalError> {
            Ok(value.to_string())
        }
    )*};
}

impl ser::Serializer for KeyText {
    type Ok = String;
    type Error = CanonicalError;
    type SerializeSeq = ser::Impossible<String, CanonicalError>;
    type SerializeTuple = ser::Impossible<String, CanonicalError>;
    type SerializeTupleStruct = ser::Impossible<String, CanonicalError>;
    type SerializeTupleVariant = ser::Impossible<String, CanonicalError>;
    type SerializeMap = ser::Impossible<String, CanonicalError>;
    type SerializeStruct = ser::Impossible<String, CanonicalError>;
    type SerializeStructVariant = ser::Impossible<String, CanonicalError>;

    key_from_display! {
        serialize_bool bool,
        serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64,
        serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64,
        serialize_char char, serialize_str &str,
    }

    fn serialize_f32(self, _value: f32) -> Result<String, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_f64(self, _value: f64) -> Result<String, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_bytes(self, _value: &[u8]) -> Result<String, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_none(self) -> Result<String, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _value: &T) -> Result<String, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_unit(self) -> Result<String, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<String, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<String, CanonicalError> {
        Ok(variant.to_owned())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<String, CanonicalError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<String, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Self::SerializeSeq, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_tuple(self, _length: usize) -> Result<Self::SerializeTuple, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleStruct, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleVariant, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Self::SerializeMap, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeStruct, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeStructVariant, CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }
}
