//! Whole payloads, artifact references, and the flat form of a snapshot.

use std::collections::HashMap;

use serde_json::Value;

use super::items::live_records;
use super::{Read, SnapshotReader};
use crate::canonical_json;
use crate::digest::Digest;
use crate::snapshot::artifact_refs::{ArtifactRefs, artifact_id};
use crate::snapshot::chunk::ChunkKind;
use crate::snapshot::component::ComponentSpec;
use crate::snapshot::error::SnapshotError;
use crate::snapshot::flat::{FlatComponent, FlatSnapshot};
use crate::snapshot::map::insert_part;
use crate::snapshot::root::{ComponentEntry, Layout};

impl SnapshotReader {
    /// The payload of a component; `None` if the snapshot has none.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn component(
        &mut self,
        spec: &ComponentSpec,
    ) -> Result<Read<Option<Value>>, SnapshotError> {
        let place = self.entry(spec).cloned();
        let spec = *spec;
        self.ask(|reader| match place {
            None => Ok(Some(None)),
            Some(entry) => Ok(reader.payload(&spec, &entry)?.map(Some)),
        })
    }

    /// The whole payload of a component.
    fn payload(
        &mut self,
        spec: &ComponentSpec,
        entry: &ComponentEntry,
    ) -> Result<Option<Value>, SnapshotError> {
        match entry.layout {
            Layout::Inline => {
                let payload = self.root.inline_payload(entry).unwrap_or_default();
                parse_value(payload, None).map(Some)
            }
            Layout::Blob => {
                let Some(blob) = self.blob(entry.digest, entry.bytes)? else {
                    return Ok(None);
                };
                if blob.first() != Some(&b'{') {
                    return Err(SnapshotError::component("a payload is not an object"));
                }
                parse_value(&blob, Some(entry.digest)).map(Some)
            }
            Layout::Map => self.mapped_payload(spec, entry),
        }
    }

    fn mapped_payload(
        &mut self,
        spec: &ComponentSpec,
        entry: &ComponentEntry,
    ) -> Result<Option<Value>, SnapshotError> {
        let Some(map) = self.map_of(entry)? else {
            return Ok(None);
        };
        let Value::Object(mut payload) = parse_value(&map.rest, Some(entry.digest))? else {
            return Err(SnapshotError::component("a payload is not an object"));
        };
        let mut whole = true;
        for (pointer, part) in &map.parts {
            let value = if part.kind == ChunkKind::Blob {
                match self.blob(part.digest, part.bytes)? {
                    Some(blob) => Some(parse_value(&blob, Some(part.digest))?),
                    None => None,
                }
            } else {
                self.log_value(spec.is_keyed(pointer), part.digest, part.bytes)?
            };
            match value {
                Some(value) => insert_part(&mut payload, pointer, value)?,
                None => whole = false,
            }
        }
        Ok(whole.then_some(Value::Object(payload)))
    }

    /// The array that a log stands for.
    fn log_value(
        &mut self,
        keyed: bool,
        digest: Digest,
        bytes: u64,
    ) -> Result<Option<Value>, SnapshotError> {
        let Some(log) = self.frontier(digest, bytes)? else {
            return Ok(None);
        };
        let Some(items) = self.items(&log, 0..log.count())? else {
            return Ok(None);
        };
        let values: Result<Vec<Value>, SnapshotError> = if keyed {
            live_records(&items)?
                .iter()
                .map(|(_, record)| parse_value(record, None))
                .collect()
        } else {
            items.iter().map(|item| parse_value(item, None)).collect()
        };
        values.map(Value::Array).map(Some)
    }

    /// The canonical bytes of every artifact reference, in the order of their first appearance.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn artifact_refs(&mut self) -> Result<Read<Vec<Box<[u8]>>>, SnapshotError> {
        self.ask(SnapshotReader::all_artifact_refs)
    }

    fn all_artifact_refs(&mut self) -> Result<Option<Vec<Box<[u8]>>>, SnapshotError> {
        let reference = match self.root.artifact_refs() {
            ArtifactRefs::Inline(references) => return Ok(Some(references.clone())),
            ArtifactRefs::Log(reference) => *reference,
        };
        let Some(log) = self.frontier(reference.digest, reference.bytes)? else {
            return Ok(None);
        };
        let Some(items) = self.items(&log, 0..log.count())? else {
            return Ok(None);
        };
        let mut first: HashMap<String, usize> = HashMap::new();
        let mut references: Vec<Box<[u8]>> = Vec::new();
        for item in &items {
            let id =
                artifact_id(item).ok_or(SnapshotError::chunk("an artifact reference has no id"))?;
            match first.get(&id).and_then(|at| references.get(*at)) {
                None => {
                    first.insert(id, references.len());
                    references.push(item.as_ref().into());
                }
                // A process that did not know the log may have named the artifact again.
                Some(known) if **known == **item => {}
                Some(_) => {
                    return Err(SnapshotError::chunk("an artifact id names two references"));
                }
            }
        }
        Ok(Some(references))
    }

    /// The same snapshot in envelope schema 2 (STO-49); reads everything.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn materialise(&mut self) -> Result<Read<FlatSnapshot>, SnapshotError> {
        self.check_registered()?;
        let places: Vec<_> = self
            .specs
            .iter()
            .copied()
            .zip(self.root.components().to_vec())
            .collect();
        self.ask(|reader| {
            let mut components = Vec::with_capacity(places.len());
            for (spec, entry) in &places {
                if let Some(payload) = reader.payload(spec, entry)? {
                    let canonical = canonical_json::to_bytes(&payload)
                        .map_err(|_| SnapshotError::component("a payload is nested too deep"))?;
                    components.push(FlatComponent::new(spec, canonical));
                }
            }
            let Some(artifact_refs) = reader.all_artifact_refs()? else {
                return Ok(None);
            };
            Ok((components.len() == places.len())
                .then(|| FlatSnapshot::of_root(&reader.root, artifact_refs, components)))
        })
    }
}

fn parse_value(canonical: &[u8], digest: Option<Digest>) -> Result<Value, SnapshotError> {
    canonical_json::read_canonical(canonical).map_err(|_| {
        let error = SnapshotError::component("its bytes are not canonical");
        match digest {
            Some(digest) => error.at(digest),
            None => error,
        }
    })
}
