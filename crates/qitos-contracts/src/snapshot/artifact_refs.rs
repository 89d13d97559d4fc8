//! The artifact references of a session: in the root record while they are few, then a log.

use std::collections::HashSet;
use std::sync::Arc;

use super::chunk::{Chunk, ChunkKind};
use super::cursor::Cursor;
use super::envelope::NewArtifactRef;
use super::error::SnapshotError;
use super::limits::{
    MAXIMUM_INLINE_ARTIFACT_REF_BYTES, MAXIMUM_INLINE_ARTIFACT_REFS, MAXIMUM_ITEM_BYTES,
};
use super::log_tree::{LogFrontier, LogWriter};
use super::map::{PartReference, depth_left};
use super::writer::{LogState, Part, check_object};
use crate::digest::Digest;

/// The artifact references of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactRefs {
    /// In the root record: the canonical bytes of each.
    Inline(Vec<Box<[u8]>>),
    /// In a log.
    Log(PartReference),
}

/// The `artifact_id` of a canonical reference; its key sorts before all others of the schema.
pub(super) fn artifact_id(reference: &[u8]) -> Option<String> {
    let mut cursor = Cursor::new(reference).ok()?;
    cursor.literal("{\"artifact_id\":").ok()?;
    let id = cursor.string().ok()?.into_owned();
    (!id.is_empty()).then_some(id)
}

pub(super) fn read_artifact_refs(cursor: &mut Cursor<'_>) -> Result<ArtifactRefs, SnapshotError> {
    if cursor.starts_with("[\"") {
        let log = PartReference::read(cursor)?;
        if log.kind != ChunkKind::Log {
            return Err(SnapshotError::root("its artifact references are no log"));
        }
        return Ok(ArtifactRefs::Log(log));
    }
    let references = read_inline_artifact_refs(cursor)?;
    if references.len() > MAXIMUM_INLINE_ARTIFACT_REFS {
        return Err(SnapshotError::root(
            "it holds more than 16 artifact references",
        ));
    }
    Ok(ArtifactRefs::Inline(references))
}

/// An array of references, each artifact id once.
pub(super) fn read_inline_artifact_refs(
    cursor: &mut Cursor<'_>,
) -> Result<Vec<Box<[u8]>>, SnapshotError> {
    cursor.literal("[")?;
    let mut references = Vec::new();
    let mut ids = std::collections::HashSet::new();
    if cursor.take_if("]") {
        return Ok(references);
    }
    loop {
        let (reference, _) = cursor.value()?;
        let id =
            artifact_id(reference).ok_or(SnapshotError::root("an artifact reference has no id"))?;
        if !ids.insert(id) {
            return Err(SnapshotError::root("an artifact reference stands twice"));
        }
        references.push(reference.into());
        if !cursor.another(b']')? {
            return Ok(references);
        }
    }
}

/// The artifact references that a writer has named.
#[derive(Clone, Debug)]
pub(super) struct ArtifactRefsWriter {
    state: State,
    /// Ids named since this writer was made; a reader ignores repeated ones in the log.
    ids: HashSet<Arc<str>>,
}

#[derive(Clone, Debug)]
enum State {
    Inline(Vec<Arc<[u8]>>),
    Log(Part),
}

impl ArtifactRefsWriter {
    pub(super) fn new() -> Self {
        ArtifactRefsWriter {
            state: State::Inline(Vec::new()),
            ids: HashSet::new(),
        }
    }

    /// Goes on from the references of a root, or from its log.
    pub(super) fn continuing(
        references: &ArtifactRefs,
        log: Option<(Digest, LogFrontier)>,
    ) -> Self {
        let inline: Vec<Arc<[u8]>> = match references {
            ArtifactRefs::Inline(references) => references
                .iter()
                .map(|reference| Arc::from(reference.as_ref()))
                .collect(),
            ArtifactRefs::Log(_) => Vec::new(),
        };
        let ids = inline
            .iter()
            .filter_map(|reference| artifact_id(reference).map(Arc::from))
            .collect();
        let state = match log {
            None => State::Inline(inline),
            Some((digest, frontier)) => State::Log(Part::Log {
                state: Box::new(LogState::Plain(LogWriter::from_frontier(frontier))),
                sealed: Some(digest),
                dirty: false,
            }),
        };
        ArtifactRefsWriter { state, ids }
    }

    /// Adds a reference whose id is new to this writer.
    pub(super) fn add(&mut self, reference: &NewArtifactRef) -> Result<(), SnapshotError> {
        let canonical = &reference.canonical;
        check_object(canonical, depth_left("/artifact_refs", ChunkKind::Log))?;
        if artifact_id(canonical).as_deref() != Some(reference.artifact_id.as_ref()) {
            return Err(SnapshotError::root("an artifact reference has another id"));
        }
        SnapshotError::bound("bytes of a log item", canonical.len(), MAXIMUM_ITEM_BYTES)?;
        if !self.ids.insert(Arc::clone(&reference.artifact_id)) {
            return Ok(());
        }
        match &mut self.state {
            State::Log(Part::Log { state, dirty, .. }) => {
                *dirty = true;
                state.log_mut().push(canonical);
            }
            State::Log(Part::Blob(_)) => {}
            State::Inline(references) => {
                references.push(Arc::clone(canonical));
                let bytes: usize = references.iter().map(|reference| reference.len()).sum();
                if references.len() > MAXIMUM_INLINE_ARTIFACT_REFS
                    || bytes > MAXIMUM_INLINE_ARTIFACT_REF_BYTES
                {
                    let mut log = LogWriter::default();
                    for reference in references {
                        log.push(reference);
                    }
                    self.state = State::Log(Part::Log {
                        state: Box::new(LogState::Plain(log)),
                        sealed: None,
                        dirty: true,
                    });
                }
            }
        }
        Ok(())
    }

    /// Gives out what is new; the value of the root's field.
    pub(super) fn seal(&mut self, chunks: &mut Vec<Chunk>) -> Vec<u8> {
        let mut value = Vec::new();
        match &mut self.state {
            State::Inline(references) => {
                value.push(b'[');
                for (index, reference) in references.iter().enumerate() {
                    if index > 0 {
                        value.push(b',');
                    }
                    value.extend_from_slice(reference);
                }
                value.push(b']');
            }
            State::Log(part) => part.seal(chunks).write(&mut value),
        }
        value
    }
}
