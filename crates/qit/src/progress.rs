//! What a run shows on stderr while it works (CLI-7).

use std::error::Error;
use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use qitos::contracts::ids::AttemptId;
use qitos::kernel::ProgressSink;
use qitos::models::DeltaSink;
use serde_json::{Value, json};

use crate::answer::write_out;
use crate::args::{Format, Progress};

/// Text of a model or guest as it may be shown: control characters are written out, line ends and tabs stay.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let is_direction = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if (character.is_control() && character != '\n' && character != '\t') || is_direction {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Where streamed text and tool notes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Lines on stderr.
    Stderr,
    /// One event per line on stdout.
    Events,
    /// Nowhere: requests are streamed all the same, so that an answer that is cut is seen as cut (PRV-50).
    Nowhere,
}

/// Shows a run as it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watcher {
    place: Place,
    started: Instant,
}

impl Watcher {
    /// What the options ask for.
    pub(crate) fn new(progress: Progress, format: Format) -> Self {
        let place = match (format, progress) {
            (Format::Jsonl, _) => Place::Events,
            (_, Progress::None) => Place::Nowhere,
            // Without a person at the terminal a log wants facts, and the facts are in the result.
            (Format::Json, Progress::Auto) if !std::io::stderr().is_terminal() => Place::Nowhere,
            _ => Place::Stderr,
        };
        Watcher {
            place,
            started: Instant::now(),
        }
    }

    /// Ends the streamed text with its own line.
    pub(crate) fn end(&self) {
        if self.place == Place::Stderr {
            show("\n");
        }
    }

    /// Tells one thing about the run.
    pub(crate) fn tell(&self, event: &str, facts: &Value) {
        match self.place {
            Place::Nowhere => {}
            Place::Events => {
                let mut line = json!({"event": event});
                if let (Some(line), Some(facts)) = (line.as_object_mut(), facts.as_object()) {
                    line.extend(facts.clone());
                }
                write_out(&format!("{line}\n"));
            }
            Place::Stderr => {
                let mut text = format!("[{:.1}s] {event}", self.started.elapsed().as_secs_f64());
                for (key, value) in facts.as_object().into_iter().flatten() {
                    let value = value.as_str().map_or_else(|| value.to_string(), escaped);
                    text.push_str(&format!(" {key}={value}"));
                }
                show(&format!("{text}\n"));
            }
        }
    }

    /// The consumer of streamed text.
    pub(crate) fn deltas(&self) -> Box<dyn DeltaSink> {
        Box::new(Deltas { place: self.place })
    }
}

fn show(text: &str) {
    let mut output = std::io::stderr().lock();
    let _ = output.write_all(text.as_bytes());
    let _ = output.flush();
}

#[derive(Debug)]
struct Deltas {
    place: Place,
}

impl DeltaSink for Deltas {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self.place {
            Place::Nowhere => {}
            Place::Stderr => show(&escaped(text)),
            Place::Events => write_out(&format!("{}\n", json!({"event": "text", "text": text}))),
        }
        Ok(())
    }
}

impl ProgressSink for Watcher {
    fn tool_progress(&self, slot: u32, attempt: &AttemptId, note: &Value) {
        self.tell(
            "tool_progress",
            &json!({"slot": slot, "attempt_id": attempt, "note": note}),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_text_cannot_command_the_terminal() {
        // CLI-7
        assert_eq!(escaped("a\u{1b}[2J\tb\n"), "a\\u{1b}[2J\tb\n");
        assert_eq!(escaped("x\u{202e}y\r"), "x\\u{202e}y\\u{d}");
    }
}
