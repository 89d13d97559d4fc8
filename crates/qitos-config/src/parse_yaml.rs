//! YAML text to a document, over the parser's events (CFG-1 to CFG-3, CFG-8).
//!
//! The events show what deserialisation hides: quotes, anchors, tags, positions. Anchors, aliases, merge keys, tags
//! and directives are refused where they stand; nothing is ever expanded.

use serde_saphyr::granit_parser::{self, Event, Marker, Parser, ScalarStyle};

use crate::describe_error::{ConfigError, ConfigErrorCode, ErrorList};
use crate::document::{Entry, Kind, Node, Position};
use crate::limits::{MAX_DEPTH, MAX_NODES, MAX_SCALAR_BYTES};
use crate::scalar::{self, Scalar};

/// An open mapping or sequence.
#[derive(Debug)]
enum Open {
    Sequence(Position, Vec<Node>),
    Mapping {
        position: Position,
        entries: Vec<Entry>,
        pending: Option<Key>,
    },
}

/// A key whose value has not been read yet; `name` is none when the key was refused.
#[derive(Debug)]
struct Key {
    name: Option<String>,
    position: Position,
}

struct Builder<'a> {
    errors: &'a mut ErrorList,
    open: Vec<Open>,
    root: Option<Node>,
    nodes: usize,
}

fn position_of(mark: &Marker) -> Position {
    let clamp = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position {
        line: clamp(mark.line()),
        column: clamp(mark.col()).saturating_add(1),
    }
}

/// A syntax error at `position`.
pub(crate) fn syntax_error(position: Position, message: &str, remediation: &str) -> ConfigError {
    ConfigError::new(
        ConfigErrorCode::ConfigSyntaxInvalid,
        "",
        Some(position),
        message,
        remediation,
    )
}

/// Reads one document.
///
/// Returns nothing when the text cannot be read to its end; whatever was refused is in `errors`.
pub(crate) fn parse(text: &str, errors: &mut ErrorList) -> Option<Node> {
    let options = granit_parser::options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH + 2,
        block_nesting_limit: MAX_DEPTH + 2,
    };
    let mut builder = Builder {
        errors,
        open: Vec::new(),
        root: None,
        nodes: 0,
    };
    let mut documents = 0usize;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = match event {
            Ok(next) => next,
            Err(error) => {
                builder.errors.push(describe_scan_error(&error));
                return None;
            }
        };
        let at = position_of(&span.start);
        if matches!(event, Event::DocumentStart(..)) {
            documents += 1;
            if documents > 1 {
                builder.errors.push(syntax_error(
                    at,
                    "a second document begins here",
                    "keep one document per file",
                ));
                return None;
            }
        }
        if let Err(error) = builder.event(event, at, span.is_empty_source()) {
            builder.errors.push(error);
            return None;
        }
    }
    Some(builder.root.unwrap_or(Node {
        position: Some(Position { line: 1, column: 1 }),
        kind: Kind::Missing,
    }))
}

/// Whether an event stands for no character of the text.
trait EmptySource {
    fn is_empty_source(&self) -> bool;
}

impl EmptySource for granit_parser::Span {
    fn is_empty_source(&self) -> bool {
        self.byte_range().is_some_and(|range| range.is_empty())
    }
}

/// The parser's own description quotes no text beyond single characters; only the kind is used here.
fn describe_scan_error(error: &granit_parser::ScanError) -> ConfigError {
    use granit_parser::ErrorKind;
    let at = position_of(error.marker());
    let (message, remediation) = match error.kind() {
        ErrorKind::DirectiveDisallowed => (
            "directives are not allowed",
            "remove the line that starts with %",
        ),
        ErrorKind::TabInPlainScalar => (
            "a tab stands where only spaces may",
            "indent and separate with spaces",
        ),
        ErrorKind::UnclosedFlowCollection { .. } => (
            "a bracket or brace is never closed",
            "close what was opened here",
        ),
        _ => (
            "not well-formed YAML",
            "check indentation, quotes, brackets and the colon with a space after each key",
        ),
    };
    syntax_error(at, message, remediation)
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, at: Position, empty: bool) -> Result<(), ConfigError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(at)?;
                if text.len() > MAX_SCALAR_BYTES {
                    return Err(syntax_error(
                        at,
                        "a scalar is longer than 64 KiB",
                        "move long texts into files of the workspace",
                    ));
                }
                let refused = self.refuse_properties(at, anchor != 0, tag.is_some());
                let kind = match style {
                    _ if refused => Kind::Reported,
                    ScalarStyle::Plain if empty => Kind::Missing,
                    ScalarStyle::Plain => Kind::Plain(text.into_owned()),
                    _ => Kind::Quoted(text.into_owned()),
                };
                self.node(Node {
                    position: Some(at),
                    kind,
                });
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.begin(at, anchor != 0, tag.is_some())?;
                self.open.push(Open::Sequence(at, Vec::new()));
            }
            Event::MappingStart(_, anchor, tag) => {
                self.begin(at, anchor != 0, tag.is_some())?;
                self.open.push(Open::Mapping {
                    position: at,
                    entries: Vec::new(),
                    pending: None,
                });
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.count(at)?;
                self.errors.push(syntax_error(
                    at,
                    "aliases are not allowed",
                    "write the value out",
                ));
                self.node(Node {
                    position: Some(at),
                    kind: Kind::Reported,
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, at: Position) -> Result<(), ConfigError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(syntax_error(
                at,
                "more than 20000 nodes",
                "move data out of the configuration",
            ));
        }
        Ok(())
    }

    fn begin(&mut self, at: Position, anchor: bool, tag: bool) -> Result<(), ConfigError> {
        self.count(at)?;
        if self.open.len() >= MAX_DEPTH {
            return Err(syntax_error(
                at,
                "nested deeper than 32 levels",
                "flatten the value",
            ));
        }
        self.refuse_properties(at, anchor, tag);
        Ok(())
    }

    fn refuse_properties(&mut self, at: Position, anchor: bool, tag: bool) -> bool {
        if anchor {
            self.errors.push(syntax_error(
                at,
                "anchors are not allowed",
                "remove the word that starts with &",
            ));
        }
        if tag {
            self.errors.push(syntax_error(
                at,
                "tags are not allowed",
                "remove the word that starts with !; quote a value that must be a string",
            ));
        }
        anchor || tag
    }

    fn end(&mut self) {
        let node = match self.open.pop() {
            Some(Open::Sequence(position, items)) => Node {
                position: Some(position),
                kind: Kind::Sequence(items),
            },
            Some(Open::Mapping {
                position, entries, ..
            }) => Node {
                position: Some(position),
                kind: Kind::Mapping(entries),
            },
            None => return,
        };
        self.node(node);
    }

    /// Puts a finished node where it belongs.
    fn node(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::Sequence(_, items)) => items.push(node),
            Some(Open::Mapping {
                entries, pending, ..
            }) => match pending.take() {
                None => *pending = Some(read_key(node, entries, self.errors)),
                Some(Key {
                    name: Some(key),
                    position,
                }) => entries.push(Entry {
                    key,
                    position: Some(position),
                    value: node,
                }),
                Some(Key { name: None, .. }) => {}
            },
        }
    }
}

/// Reads a key; a refused one is reported and its value will be dropped.
fn read_key(node: Node, entries: &[Entry], errors: &mut ErrorList) -> Key {
    let position = node.position.unwrap_or(Position { line: 1, column: 1 });
    let refuse = |errors: &mut ErrorList, message: &str, remediation: &str| {
        errors.push(syntax_error(position, message, remediation));
        Key {
            name: None,
            position,
        }
    };
    let name = match node.kind {
        Kind::Plain(text) if text == "<<" => {
            return refuse(errors, "merge keys are not allowed", "write the values out");
        }
        Kind::Plain(text) => match scalar::read(&text) {
            Scalar::Text(_) => text,
            _ => {
                return refuse(
                    errors,
                    "a key is not a string",
                    "quote a key that looks like a number, a boolean or null",
                );
            }
        },
        Kind::Quoted(text) => text,
        Kind::Missing => return refuse(errors, "a key is empty", "name the key before the colon"),
        Kind::Reported => {
            return Key {
                name: None,
                position,
            };
        }
        Kind::Sequence(_) | Kind::Mapping(_) | Kind::TooDeep => {
            return refuse(
                errors,
                "a key is not a string",
                "use plain words as keys; quote a value that starts with [ or {",
            );
        }
    };
    if let Some(error) = duplicate_key(&name, position, entries) {
        errors.push(error);
        return Key {
            name: None,
            position,
        };
    }
    Key {
        name: Some(name),
        position,
    }
}

/// Both positions of a key that stands twice in one mapping (CFG-3).
pub(crate) fn duplicate_key(
    name: &str,
    position: Position,
    entries: &[Entry],
) -> Option<ConfigError> {
    let first = entries.iter().find(|entry| entry.key == name)?.position?;
    Some(syntax_error(
        position,
        &format!(
            "a key is given twice: first at line {} column {}, again at line {} column {}",
            first.line, first.column, position.line, position.column
        ),
        "keep one of the two",
    ))
}
