//! What a writer remembers of one component between two commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::digest::Digest;
use crate::snapshot::chunk::{Chunk, ChunkKind};
use crate::snapshot::component::ComponentSpec;
use crate::snapshot::error::SnapshotError;
use crate::snapshot::keyed_log::KeyedWriter;
use crate::snapshot::log_tree::LogWriter;
use crate::snapshot::map::{PartReference, has_other_above, pointer_tokens, write_map};
use crate::snapshot::reader::MapWithLogs;
use crate::snapshot::root::{Layout, write_entry};

/// A blob or map whose chunk is written once.
#[derive(Clone, Debug)]
pub(in crate::snapshot) struct Stored {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
    /// The chunk, until a seal has given it out.
    unsent: Option<Chunk>,
    /// The digest that the last sealed snapshot named.
    pub(super) sealed: Option<Digest>,
}

impl Stored {
    pub(super) fn new(chunk: Chunk, sealed: Option<Digest>) -> Self {
        Stored {
            digest: chunk.digest(),
            bytes: chunk.bytes().len() as u64,
            unsent: Some(chunk).filter(|chunk| sealed != Some(chunk.digest())),
            sealed,
        }
    }

    pub(super) fn known(digest: Digest, bytes: u64) -> Self {
        Stored {
            digest,
            bytes,
            unsent: None,
            sealed: Some(digest),
        }
    }

    pub(super) fn seal(&mut self, out: &mut Vec<Chunk>) {
        out.extend(self.unsent.take());
        self.sealed = Some(self.digest);
    }
}

#[derive(Clone, Debug)]
pub(in crate::snapshot) enum LogState {
    Plain(LogWriter),
    Keyed(KeyedWriter),
}

impl LogState {
    pub(in crate::snapshot) fn log_mut(&mut self) -> &mut LogWriter {
        match self {
            LogState::Plain(log) => log,
            LogState::Keyed(keyed) => &mut keyed.log,
        }
    }

    pub(super) fn log(&self) -> &LogWriter {
        match self {
            LogState::Plain(log) => log,
            LogState::Keyed(keyed) => &keyed.log,
        }
    }
}

#[derive(Clone, Debug)]
pub(in crate::snapshot) enum Part {
    Blob(Stored),
    Log {
        state: Box<LogState>,
        /// The chunk that the last sealed snapshot named.
        sealed: Option<Digest>,
        dirty: bool,
    },
}

impl Part {
    /// Gives out what is new and tells what the map says of this part.
    pub(in crate::snapshot) fn seal(&mut self, out: &mut Vec<Chunk>) -> PartReference {
        match self {
            Part::Blob(blob) => {
                blob.seal(out);
                PartReference {
                    kind: ChunkKind::Blob,
                    digest: blob.digest,
                    bytes: blob.bytes,
                }
            }
            Part::Log {
                state,
                sealed,
                dirty,
            } => {
                if *dirty {
                    let chunk = state.log_mut().seal(out);
                    if *sealed != Some(chunk.digest()) {
                        *sealed = Some(chunk.digest());
                        out.push(chunk);
                    }
                    *dirty = false;
                }
                PartReference {
                    kind: ChunkKind::Log,
                    digest: sealed.unwrap_or(Digest::ZERO),
                    bytes: state.log().frontier().bytes(),
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct MapState {
    pub(super) rest: Vec<u8>,
    pub(super) parts: BTreeMap<String, Part>,
    pub(super) sealed: Option<Digest>,
}

impl MapState {
    pub(super) fn empty() -> Self {
        MapState {
            rest: b"{}".to_vec(),
            parts: BTreeMap::new(),
            sealed: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum State {
    Inline(Arc<[u8]>),
    Blob(Stored),
    Map(Box<MapState>),
}

#[derive(Clone, Debug)]
pub(super) struct Component {
    pub(super) spec: ComponentSpec,
    pub(super) state: State,
    /// The canonical descriptor; used again while the component is unchanged.
    pub(super) entry: Vec<u8>,
    pub(super) dirty: bool,
}

impl Component {
    /// Gives out what is new and writes the descriptor again.
    pub(super) fn seal(&mut self, out: &mut Vec<Chunk>) {
        if !self.dirty {
            return;
        }
        self.dirty = false;
        self.entry = match &mut self.state {
            State::Inline(payload) => write_entry(
                &self.spec,
                Layout::Inline,
                &Digest::of(payload),
                payload.len() as u64,
                Some(payload),
            ),
            State::Blob(blob) => {
                blob.seal(out);
                write_entry(&self.spec, Layout::Blob, &blob.digest, blob.bytes, None)
            }
            State::Map(map) => {
                let parts: Vec<(&str, PartReference)> = map
                    .parts
                    .iter_mut()
                    .map(|(pointer, part)| (pointer.as_str(), part.seal(out)))
                    .collect();
                let below: u64 = parts.iter().map(|(_, part)| part.bytes).sum();
                let bytes = write_map(parts.into_iter(), &map.rest);
                let chunk = Chunk::new(ChunkKind::Map, bytes.into());
                let digest = chunk.digest();
                let bytes = below + chunk.bytes().len() as u64;
                if map.sealed != Some(digest) {
                    map.sealed = Some(digest);
                    out.push(chunk);
                }
                write_entry(&self.spec, Layout::Map, &digest, bytes, None)
            }
        };
    }
}

/// What a writer continues after a restore or fork; made by a reader.
pub(in crate::snapshot) struct Continued<'root> {
    pub(in crate::snapshot) spec: ComponentSpec,
    pub(in crate::snapshot) layout: Layout,
    pub(in crate::snapshot) digest: Digest,
    pub(in crate::snapshot) bytes: u64,
    pub(in crate::snapshot) payload: Option<&'root [u8]>,
    pub(in crate::snapshot) map: Option<MapWithLogs>,
}

impl Continued<'_> {
    pub(super) fn into_component(self) -> Component {
        let entry = write_entry(
            &self.spec,
            self.layout,
            &self.digest,
            self.bytes,
            self.payload,
        );
        let state = match (self.map, self.payload) {
            (Some((chunk, mut frontiers)), _) => {
                let parts = chunk
                    .parts
                    .into_iter()
                    .map(|(pointer, part)| {
                        let part = match frontiers.remove(&pointer) {
                            Some(frontier) => Part::Log {
                                state: Box::new(if self.spec.is_keyed(&pointer) {
                                    LogState::Keyed(KeyedWriter::from_frontier(frontier))
                                } else {
                                    LogState::Plain(LogWriter::from_frontier(frontier))
                                }),
                                sealed: Some(part.digest),
                                dirty: false,
                            },
                            None => Part::Blob(Stored::known(part.digest, part.bytes)),
                        };
                        (pointer, part)
                    })
                    .collect();
                State::Map(Box::new(MapState {
                    rest: chunk.rest,
                    parts,
                    sealed: Some(self.digest),
                }))
            }
            (None, Some(payload)) => State::Inline(payload.into()),
            (None, None) => State::Blob(Stored::known(self.digest, self.bytes)),
        };
        Component {
            spec: self.spec,
            state,
            entry,
            dirty: false,
        }
    }
}

pub(super) fn check_new_pointer(
    parts: &BTreeMap<String, Part>,
    pointer: &str,
) -> Result<(), SnapshotError> {
    let below = format!("{pointer}/");
    let overlaps = has_other_above(parts, pointer)
        || parts
            .range(below.clone()..)
            .next()
            .is_some_and(|(other, _)| other.starts_with(&below));
    if overlaps || pointer_tokens(pointer).is_none() {
        return Err(SnapshotError::component(
            "a pointer is not valid, or overlaps another part",
        ));
    }
    Ok(())
}
