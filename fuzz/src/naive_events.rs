//! A second reading of an event stream: slow, on the whole input, sharing no code with the decoder.

/// One event: its kind and its data.
pub(crate) type Event = (String, String);

/// What a whole body holds.
pub(crate) struct Reading {
    /// Events ended by a blank line, up to the first line that is not UTF-8.
    pub(crate) events: Vec<Event>,
    /// The event that the end of the body left open.
    pub(crate) open: Option<Event>,
    /// A line ended by a line end is not UTF-8.
    pub(crate) invalid: bool,
}

/// Reads `body` (PRV-58).
pub(crate) fn read(body: &[u8]) -> Reading {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let mut reading = Reading {
        events: Vec::new(),
        open: None,
        invalid: false,
    };
    let mut kind = String::new();
    let mut data: Option<String> = None;
    let (mut lines, last) = lines(body);
    let ended = lines.len();
    lines.push(last);
    for (number, line) in lines.into_iter().enumerate() {
        let Ok(line) = String::from_utf8(line) else {
            reading.invalid = number < ended;
            // A rest that is no text has no event: what it would have said is unknown.
            data = None;
            break;
        };
        if line.is_empty() {
            if number < ended {
                let data = data.take().unwrap_or_default();
                let kind = std::mem::take(&mut kind);
                if !data.is_empty() {
                    reading.events.push((kind, data));
                }
            }
        } else if let Some(value) = value_of(&line, "data") {
            data = Some(match data {
                None => value.to_owned(),
                Some(earlier) => format!("{earlier}\n{value}"),
            });
        } else if let Some(value) = value_of(&line, "event") {
            kind = value.to_owned();
        }
    }
    reading.open = data.map(|data| (kind, data));
    reading
}

/// The value of the line if it is the field `name`.
fn value_of<'line>(line: &'line str, name: &str) -> Option<&'line str> {
    let rest = line.strip_prefix(name)?;
    if rest.is_empty() {
        return Some("");
    }
    let value = rest.strip_prefix(':')?;
    Some(value.strip_prefix(' ').unwrap_or(value))
}

/// The ended lines and what follows the last line end.
fn lines(body: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut ended = Vec::new();
    let mut line = Vec::new();
    let mut previous = 0;
    for &byte in body {
        match byte {
            b'\n' if previous == b'\r' => {}
            b'\n' | b'\r' => ended.push(std::mem::take(&mut line)),
            _ => line.push(byte),
        }
        previous = byte;
    }
    (ended, line)
}
