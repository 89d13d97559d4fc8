//! Making the root and the chunks of a commit, at the cost of what changed (STO-47, STO-52).

mod component_state;

use std::collections::HashSet;
use std::sync::Arc;

use self::component_state::{Component, MapState, State, Stored, check_new_pointer};
pub(super) use self::component_state::{Continued, LogState, Part};
use super::artifact_refs::{ArtifactRefs, ArtifactRefsWriter};
use super::chunk::{Chunk, ChunkKind};
use super::component::ComponentSpec;
use super::cursor::{TOO_DEEP, depth_of};
use super::envelope::EnvelopeHeader;
use super::error::SnapshotError;
use super::keyed_log::{KeyedChange, KeyedWriter, LiveRecords};
use super::limits::{
    ENVELOPE_DEPTH, MAXIMUM_CHUNK_BYTES, MAXIMUM_COMMIT_BYTES, MAXIMUM_COMPONENTS, MAXIMUM_DEPTH,
    MAXIMUM_INLINE_BYTES, MAXIMUM_ITEM_BYTES, MAXIMUM_REST_BYTES, MAXIMUM_ROOT_BYTES,
};
use super::log_tree::{LogCut, LogFrontier, LogWriter};
use super::map::depth_left;
use super::root::write_root;
use crate::digest::Digest;

/// What a commit stores: the root record and every chunk that is new.
#[derive(Clone, Debug)]
pub struct SealedSnapshot {
    /// The canonical root record.
    pub root: Arc<[u8]>,
    /// Its digest.
    pub root_digest: Digest,
    /// New chunks, those that others name before those that name them.
    pub chunks: Vec<Chunk>,
    /// Whether a log was cut or replaced since the last seal (STO-48).
    pub log_rewritten: bool,
}

impl SealedSnapshot {
    /// Bytes of the root and all chunks.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|chunk| chunk.bytes().len()).sum();
        self.root.len() + chunks
    }
}

/// Makes the snapshots of one session, each from the one before.
///
/// Owners tell what changed since the last seal; what they do not mention keeps its descriptor without being
/// serialised again (STO-47). Of logs only the frontier is held (STO-52), of keyed logs the live records.
///
/// All bytes given are canonical JSON; that is checked, as are the bounds, before anything is taken. After an
/// error of [`SnapshotWriter::seal`] the writer is of no further use: make a new one from the last root.
#[derive(Clone, Debug)]
pub struct SnapshotWriter {
    /// Sorted by owner and slot.
    components: Vec<Component>,
    artifact_refs: ArtifactRefsWriter,
    /// Bytes taken since the last seal; an upper bound of what it gives out, but for small change.
    taken_bytes: usize,
    log_rewritten: bool,
    broken: bool,
}

impl Default for SnapshotWriter {
    fn default() -> Self {
        SnapshotWriter::new()
    }
}

impl SnapshotWriter {
    /// A writer for a session that has no snapshot yet.
    #[must_use]
    pub fn new() -> Self {
        SnapshotWriter {
            components: Vec::new(),
            artifact_refs: ArtifactRefsWriter::new(),
            taken_bytes: 0,
            log_rewritten: false,
            broken: false,
        }
    }

    /// Replaces the whole payload: in the root up to 4 KiB, else as a blob.
    ///
    /// # Errors
    /// `corrupt_snapshot` if the payload is not a canonical object; `size_limit_exceeded`.
    pub fn replace(
        &mut self,
        spec: &ComponentSpec,
        canonical_payload: Vec<u8>,
    ) -> Result<(), SnapshotError> {
        check_object(&canonical_payload, MAXIMUM_DEPTH - ENVELOPE_DEPTH)?;
        SnapshotError::bound(
            "bytes of a chunk",
            canonical_payload.len(),
            MAXIMUM_CHUNK_BYTES,
        )?;
        self.take(canonical_payload.len())?;
        let component = self.component(spec)?;
        if let State::Inline(payload) = &component.state
            && !component.entry.is_empty()
            && payload.as_ref() == canonical_payload
        {
            return Ok(());
        }
        component.dirty = true;
        component.state = if canonical_payload.len() <= MAXIMUM_INLINE_BYTES {
            State::Inline(canonical_payload.into())
        } else {
            let sealed = match &component.state {
                State::Blob(blob) => blob.sealed,
                _ => None,
            };
            let chunk = Chunk::new(ChunkKind::Blob, canonical_payload.into());
            State::Blob(Stored::new(chunk, sealed))
        };
        Ok(())
    }

    /// Replaces what a mapped component holds besides its parts.
    ///
    /// The first change of a mapped component turns any other layout into a map without parts.
    ///
    /// # Errors
    /// `corrupt_snapshot` if it is not a canonical object; `size_limit_exceeded` above 16 KiB.
    pub fn map_rest(
        &mut self,
        spec: &ComponentSpec,
        canonical_rest: Vec<u8>,
    ) -> Result<(), SnapshotError> {
        check_object(&canonical_rest, MAXIMUM_DEPTH - ENVELOPE_DEPTH)?;
        SnapshotError::bound(
            "bytes of a map's rest",
            canonical_rest.len(),
            MAXIMUM_REST_BYTES,
        )?;
        self.take(canonical_rest.len())?;
        let map = self.map(spec)?;
        map.rest = canonical_rest;
        Ok(())
    }

    /// Replaces the value at `pointer`, stored as a blob.
    ///
    /// # Errors
    /// `corrupt_snapshot` for bytes that are not canonical, or a pointer that is not valid, holds a log, or
    /// stands above or below another part; `size_limit_exceeded`.
    pub fn map_blob(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
        canonical: Arc<[u8]>,
    ) -> Result<(), SnapshotError> {
        check_value(&canonical, depth_left(pointer, ChunkKind::Blob))?;
        SnapshotError::bound("bytes of a chunk", canonical.len(), MAXIMUM_CHUNK_BYTES)?;
        self.take(canonical.len())?;
        let chunk = Chunk::new(ChunkKind::Blob, canonical);
        let map = self.map(spec)?;
        match map.parts.get_mut(pointer) {
            Some(Part::Blob(blob)) => *blob = Stored::new(chunk, blob.sealed),
            Some(Part::Log { .. }) => {
                return Err(SnapshotError::component(
                    "the part at this pointer is a log",
                ));
            }
            None => {
                check_new_pointer(&map.parts, pointer)?;
                map.parts
                    .insert(pointer.to_owned(), Part::Blob(Stored::new(chunk, None)));
            }
        }
        Ok(())
    }

    /// Appends the canonical bytes of items to the log at `pointer`; with no item, makes an empty log.
    ///
    /// On an error the items before the refused one are taken.
    ///
    /// # Errors
    /// `corrupt_snapshot` for an item that is not canonical, or a pointer that is not valid, is keyed, holds a
    /// blob, or stands above or below another part; `size_limit_exceeded`.
    pub fn append<Item: AsRef<[u8]>>(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
        items: impl IntoIterator<Item = Item>,
    ) -> Result<(), SnapshotError> {
        if spec.is_keyed(pointer) {
            return Err(SnapshotError::component("a keyed log takes upserts"));
        }
        let depth = depth_left(pointer, ChunkKind::Log);
        self.log(spec, pointer)?;
        for item in items {
            let item = item.as_ref();
            SnapshotError::bound("bytes of a log item", item.len(), MAXIMUM_ITEM_BYTES)?;
            check_value(item, depth)?;
            self.take(item.len())?;
            if let LogState::Plain(log) = self.log(spec, pointer)? {
                log.push(item);
            }
        }
        Ok(())
    }

    /// Changes records of the keyed log at `pointer`; with no change, makes an empty log.
    ///
    /// A change that changes nothing is not stored. The log rewrites itself when its history outgrows its live
    /// records (section 18), as long as they are known: see [`SnapshotWriter::load_keyed`].
    ///
    /// # Errors
    /// As [`SnapshotWriter::append`]; `corrupt_snapshot` if the log is not keyed.
    pub fn upsert<'text>(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
        changes: impl IntoIterator<Item = KeyedChange<'text>>,
    ) -> Result<(), SnapshotError> {
        if !spec.is_keyed(pointer) {
            return Err(SnapshotError::component("a plain log takes appended items"));
        }
        let depth = depth_left(pointer, ChunkKind::Log);
        self.log(spec, pointer)?;
        for (key, record) in changes {
            if let Some(record) = record {
                check_value(record, depth)?;
            }
            self.take(key.len() + record.map_or(0, <[u8]>::len))?;
            if let LogState::Keyed(keyed) = self.log(spec, pointer)? {
                keyed.upsert(key, record)?;
            }
        }
        Ok(())
    }

    /// Whether the live records of the keyed log at `pointer` are known, so that it can rewrite itself.
    ///
    /// True for logs that this writer began; after [`SnapshotWriter::from_root`] false until they are loaded.
    #[must_use]
    pub fn keyed_is_loaded(&self, spec: &ComponentSpec, pointer: &str) -> bool {
        match self.find(spec).map(|component| &component.state) {
            Some(State::Map(map)) => match map.parts.get(pointer) {
                Some(Part::Log { state, .. }) => {
                    matches!(state.as_ref(), LogState::Keyed(keyed) if keyed.is_complete())
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Tells the live records of a keyed log that the restoring process has read anyway.
    ///
    /// `records` are those of the root that this writer was made from, in their order; it must be called
    /// before the first change of that log.
    ///
    /// # Errors
    /// `corrupt_snapshot` if there is no such keyed log.
    pub fn load_keyed<'text>(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
        records: impl IntoIterator<Item = (&'text str, &'text [u8])>,
    ) -> Result<(), SnapshotError> {
        let missing = SnapshotError::component("there is no keyed log at this pointer");
        let component = self
            .components
            .iter_mut()
            .find(|component| component.spec.place() == spec.place())
            .ok_or_else(|| missing.clone())?;
        let State::Map(map) = &mut component.state else {
            return Err(missing);
        };
        let Some(Part::Log { state, .. }) = map.parts.get_mut(pointer) else {
            return Err(missing);
        };
        let LogState::Keyed(keyed) = state.as_mut() else {
            return Err(missing);
        };
        keyed.load(LiveRecords::of(records));
        Ok(())
    }

    /// Begins a cut of the log at `pointer` after its first `keep` items (STO-48).
    ///
    /// Feed the cut what it needs, give it to [`SnapshotWriter::apply_cut`], and append the new suffix.
    ///
    /// # Errors
    /// `corrupt_snapshot` if there is no plain log, or items of it are not sealed yet.
    pub fn begin_cut(
        &self,
        spec: &ComponentSpec,
        pointer: &str,
        keep: u64,
    ) -> Result<LogCut, SnapshotError> {
        if let Some(State::Map(map)) = self.find(spec).map(|component| &component.state)
            && let Some(Part::Log {
                state,
                dirty: false,
                ..
            }) = map.parts.get(pointer)
            && let LogState::Plain(log) = state.as_ref()
        {
            return Ok(LogCut::new(log.frontier(), keep));
        }
        Err(SnapshotError::component(
            "there is no sealed plain log at this pointer",
        ))
    }

    /// Puts the log up to the cut in place of the log at `pointer`.
    ///
    /// # Errors
    /// `missing_chunk` if the cut still needs one.
    pub fn apply_cut(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
        cut: LogCut,
    ) -> Result<(), SnapshotError> {
        let cut = cut.finish()?;
        *self.log(spec, pointer)? = LogState::Plain(cut);
        self.log_rewritten = true;
        Ok(())
    }

    /// Drops the part at `pointer`; none is no error.
    ///
    /// # Errors
    /// `corrupt_snapshot` in a writer whose seal failed.
    pub fn remove_part(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
    ) -> Result<(), SnapshotError> {
        self.take(0)?;
        if let Some(component) = self
            .components
            .iter_mut()
            .find(|component| component.spec.place() == spec.place())
            && let State::Map(map) = &mut component.state
            && map.parts.remove(pointer).is_some()
        {
            component.dirty = true;
        }
        Ok(())
    }

    /// Drops a component; none is no error.
    ///
    /// # Errors
    /// `corrupt_snapshot` in a writer whose seal failed.
    pub fn remove(&mut self, spec: &ComponentSpec) -> Result<(), SnapshotError> {
        self.take(0)?;
        self.components
            .retain(|component| component.spec.place() != spec.place());
        Ok(())
    }

    /// Forgets every artifact reference, for a child with content of its own (WRK-47).
    ///
    /// # Errors
    /// `corrupt_snapshot` in a writer whose seal failed.
    pub fn clear_artifact_refs(&mut self) -> Result<(), SnapshotError> {
        self.take(0)?;
        self.artifact_refs = ArtifactRefsWriter::new();
        Ok(())
    }

    /// Items of the log at `pointer`, those not sealed yet included; `None` if there is no log.
    #[must_use]
    pub fn log_count(&self, spec: &ComponentSpec, pointer: &str) -> Option<u64> {
        match &self.find(spec)?.state {
            State::Map(map) => match map.parts.get(pointer)? {
                Part::Log { state, .. } => Some(state.log().count()),
                Part::Blob(_) => None,
            },
            _ => None,
        }
    }

    /// Makes the snapshot; O(root and what changed). The writer then stands at the new snapshot.
    ///
    /// # Errors
    /// `size_limit_exceeded` if the root or the whole commit is too large; `corrupt_snapshot` for an artifact
    /// reference that is not one, or after an earlier error of this method.
    pub fn seal(&mut self, header: &EnvelopeHeader) -> Result<SealedSnapshot, SnapshotError> {
        self.take(0)?;
        self.broken = true;
        let mut chunks = Vec::with_capacity(8);
        for reference in &header.artifact_refs {
            self.artifact_refs.add(reference)?;
        }
        for component in &mut self.components {
            component.seal(&mut chunks);
        }
        let artifact_refs = self.artifact_refs.seal(&mut chunks);
        let (root, root_digest) = self.fit_root(header, &artifact_refs, &mut chunks)?;
        let mut sealed = SealedSnapshot {
            root: root.into(),
            root_digest,
            chunks,
            log_rewritten: std::mem::take(&mut self.log_rewritten),
        };
        drop_repeated(&mut sealed.chunks);
        check_commit_bytes(sealed.total_bytes())?;
        self.taken_bytes = 0;
        self.broken = false;
        Ok(sealed)
    }

    /// Writes the root; moves the largest inline payloads into blobs while it is too large.
    fn fit_root(
        &mut self,
        header: &EnvelopeHeader,
        artifact_refs: &[u8],
        chunks: &mut Vec<Chunk>,
    ) -> Result<(Vec<u8>, Digest), SnapshotError> {
        loop {
            let length: usize = self
                .components
                .iter()
                .map(|component| component.entry.len() + 1)
                .sum();
            let mut entries = Vec::with_capacity(length);
            for component in &self.components {
                if !entries.is_empty() {
                    entries.push(b',');
                }
                entries.extend_from_slice(&component.entry);
            }
            let (root, digest) = write_root(header, &entries, artifact_refs);
            if root.len() <= MAXIMUM_ROOT_BYTES {
                return Ok((root, digest));
            }
            let largest =
                self.components
                    .iter_mut()
                    .max_by_key(|component| match &component.state {
                        State::Inline(payload) => payload.len(),
                        _ => 0,
                    });
            let (component, payload) = match largest {
                Some(component) => match &component.state {
                    // A smaller payload is hardly longer than the descriptor of its blob.
                    State::Inline(payload) if payload.len() > 64 => {
                        let payload = Arc::clone(payload);
                        (component, payload)
                    }
                    _ => return Err(root_too_large(root.len())),
                },
                None => return Err(root_too_large(root.len())),
            };
            component.state = State::Blob(Stored::new(Chunk::new(ChunkKind::Blob, payload), None));
            component.dirty = true;
            component.seal(chunks);
        }
    }

    /// Counts bytes taken; refuses them all once the commit must exceed its bound.
    fn take(&mut self, bytes: usize) -> Result<(), SnapshotError> {
        if self.broken {
            return Err(SnapshotError::root("an earlier seal of this writer failed"));
        }
        let taken = self.taken_bytes.saturating_add(bytes);
        check_commit_bytes(taken)?;
        self.taken_bytes = taken;
        Ok(())
    }

    fn find(&self, spec: &ComponentSpec) -> Option<&Component> {
        self.components
            .iter()
            .find(|component| component.spec.place() == spec.place())
    }

    fn component(&mut self, spec: &ComponentSpec) -> Result<&mut Component, SnapshotError> {
        let found = self
            .components
            .binary_search_by(|component| component.spec.place().cmp(&spec.place()));
        let at = match found {
            Ok(at) => at,
            Err(at) => {
                SnapshotError::bound("components", self.components.len() + 1, MAXIMUM_COMPONENTS)?;
                self.components.insert(
                    at,
                    Component {
                        spec: *spec,
                        state: State::Inline(Arc::from(&b"{}"[..])),
                        entry: Vec::new(),
                        dirty: true,
                    },
                );
                at
            }
        };
        let component = self
            .components
            .get_mut(at)
            .ok_or(SnapshotError::component("a component has no place"))?;
        if component.spec != *spec {
            component.spec = *spec;
            component.dirty = true;
        }
        Ok(component)
    }

    /// The map of a component that is about to change.
    fn map(&mut self, spec: &ComponentSpec) -> Result<&mut MapState, SnapshotError> {
        let component = self.component(spec)?;
        component.dirty = true;
        if !matches!(component.state, State::Map(_)) {
            component.state = State::Map(Box::new(MapState::empty()));
        }
        match &mut component.state {
            State::Map(map) => Ok(map),
            _ => Err(SnapshotError::component("a component is not a map")),
        }
    }

    /// The log at `pointer`, about to change; made if there is none.
    fn log(&mut self, spec: &ComponentSpec, pointer: &str) -> Result<&mut LogState, SnapshotError> {
        self.take(0)?;
        let keyed = spec.is_keyed(pointer);
        let map = self.map(spec)?;
        if !map.parts.contains_key(pointer) {
            check_new_pointer(&map.parts, pointer)?;
            let state = if keyed {
                LogState::Keyed(KeyedWriter::new())
            } else {
                LogState::Plain(LogWriter::default())
            };
            map.parts.insert(
                pointer.to_owned(),
                Part::Log {
                    state: Box::new(state),
                    sealed: None,
                    dirty: true,
                },
            );
        }
        match map.parts.get_mut(pointer) {
            Some(Part::Log { state, dirty, .. }) => {
                *dirty = true;
                Ok(state)
            }
            _ => Err(SnapshotError::component(
                "the part at this pointer is a blob",
            )),
        }
    }
}

impl SnapshotWriter {
    /// Continues stored components and artifact references.
    pub(super) fn continuing<'root>(
        components: impl IntoIterator<Item = Continued<'root>>,
        artifact_refs: &ArtifactRefs,
        artifact_log: Option<(Digest, LogFrontier)>,
    ) -> Self {
        SnapshotWriter {
            components: components
                .into_iter()
                .map(Continued::into_component)
                .collect(),
            artifact_refs: ArtifactRefsWriter::continuing(artifact_refs, artifact_log),
            ..SnapshotWriter::new()
        }
    }
}

/// Checks the bytes of a root and its chunks together (section 17).
///
/// # Errors
/// `size_limit_exceeded` above 64 MiB.
pub fn check_commit_bytes(total: usize) -> Result<(), SnapshotError> {
    SnapshotError::bound("bytes of a commit", total, MAXIMUM_COMMIT_BYTES)
}

fn root_too_large(actual: usize) -> SnapshotError {
    SnapshotError::SizeLimitExceeded {
        what: "bytes of a root record",
        limit: MAXIMUM_ROOT_BYTES as u64,
        actual: actual as u64,
    }
}

fn check_value(canonical: &[u8], allowed_depth: usize) -> Result<(), SnapshotError> {
    let depth = match depth_of(canonical) {
        Ok(depth) => depth,
        Err(TOO_DEEP) => MAXIMUM_DEPTH + 1,
        Err(malformed) => return Err(SnapshotError::component(malformed.0)),
    };
    SnapshotError::bound("levels of nesting", depth, allowed_depth)
}

pub(super) fn check_object(canonical: &[u8], allowed_depth: usize) -> Result<(), SnapshotError> {
    if canonical.first() != Some(&b'{') {
        return Err(SnapshotError::component("a payload is not an object"));
    }
    check_value(canonical, allowed_depth)
}

/// Two logs may have the same leaf; it is sent once.
fn drop_repeated(chunks: &mut Vec<Chunk>) {
    let mut seen = HashSet::with_capacity(chunks.len());
    chunks.retain(|chunk| seen.insert(chunk.digest()));
}
