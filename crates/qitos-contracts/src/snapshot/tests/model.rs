//! K59: whatever the sequence of changes, the materialised root is the flat form of a plain model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

#[derive(Clone, Debug)]
enum Part {
    Blob(Value),
    Log(Vec<Value>),
    Keyed(Vec<(String, Value)>),
}

#[derive(Clone, Debug)]
enum Payload {
    Whole(Value),
    Mapped(Value, BTreeMap<&'static str, Part>),
}

/// The content of a snapshot as plain values.
#[derive(Clone, Debug, Default)]
struct Model {
    components: BTreeMap<(&'static str, &'static str), (ComponentSpec, Payload)>,
    artifacts: Vec<(String, Value)>,
}

impl Model {
    fn mapped(&mut self, spec: &ComponentSpec) -> (&mut Value, &mut BTreeMap<&'static str, Part>) {
        let (_, payload) = self
            .components
            .entry((spec.owner, spec.slot))
            .or_insert_with(|| (*spec, Payload::Whole(Value::Null)));
        if let Payload::Whole(_) = payload {
            *payload = Payload::Mapped(json!({}), BTreeMap::new());
        }
        match payload {
            Payload::Mapped(rest, parts) => (rest, parts),
            Payload::Whole(_) => unreachable!(),
        }
    }

    fn payload(payload: &Payload) -> Value {
        match payload {
            Payload::Whole(value) => value.clone(),
            Payload::Mapped(rest, parts) => {
                let mut value = rest.clone();
                for (pointer, part) in parts {
                    let content = match part {
                        Part::Blob(value) => value.clone(),
                        Part::Log(items) => Value::Array(items.clone()),
                        Part::Keyed(records) => {
                            records.iter().map(|(_, record)| record.clone()).collect()
                        }
                    };
                    let (above, last) = pointer.rsplit_once('/').unwrap();
                    let mut at = &mut value;
                    for token in above.split('/').skip(1) {
                        at = at
                            .as_object_mut()
                            .unwrap()
                            .entry(token)
                            .or_insert_with(|| Value::Object(Map::new()));
                    }
                    at.as_object_mut()
                        .unwrap()
                        .insert(last.replace("~1", "/").replace("~0", "~"), content);
                }
                value
            }
        }
    }

    /// Envelope schema 2, written without the code under test.
    fn flat(&self, header: &EnvelopeHeader) -> Vec<u8> {
        let components: Vec<Value> = self
            .components
            .values()
            .map(|(spec, payload)| {
                let payload = Model::payload(payload);
                json!({
                    "digest": canonical_json::digest(&payload).unwrap().to_hex(),
                    "owner": spec.owner,
                    "payload": payload,
                    "required": spec.required,
                    "schema_version": spec.schema,
                    "slot": spec.slot,
                })
            })
            .collect();
        let artifacts: Vec<&Value> = self.artifacts.iter().map(|(_, value)| value).collect();
        let mut flat = json!({
            "artifact_refs": artifacts,
            "components": components,
            "created_at": header.created_at.to_string(),
            "head_generation": header.head_generation,
            "lifecycle": header.lifecycle.as_str(),
            "resolver_references": [],
            "schema_version": 2,
            "session_id": {"kind": "session", "value": header.session_id.as_str()},
            "snapshot_id": {"kind": "snapshot", "value": header.snapshot_id.as_str()},
            "timing": {
                "captured_at": header.timing.captured_at.to_string(),
                "pause_requested_at": null,
                "safe_boundary_at": null,
            },
        });
        let digest = canonical_json::digest(&flat).unwrap().to_hex();
        flat["integrity"] = json!({"algorithm": "sha256", "digest": digest});
        canonical(&flat)
    }
}

/// What an owner may do to a snapshot, and what may happen to its process.
#[derive(Clone, Debug)]
enum Change {
    Replace(usize, u32),
    Rest(usize, u16),
    Blob(usize, usize, u32),
    Append(usize, usize, Vec<u16>),
    Upsert(usize, usize, Vec<(u8, Option<u8>)>),
    Cut(usize, usize, u8),
    RemovePart(usize, usize),
    Remove(usize),
    Artifacts(u8, u8),
    Commit,
    Restore(bool),
}

/// One whole component, one with plain logs, one with keyed logs alone, one with both.
const SPECS: [ComponentSpec; 4] = [
    ComponentSpec::ENGINE_PROGRESS,
    ComponentSpec::AGENT_STATE,
    ComponentSpec::WORK_GRAPH,
    ComponentSpec::CONVERSATION,
];
const BLOBS: [&str; 3] = ["/task", "/nested/deeper/blob", "/nested/other"];
const LOGS: [&str; 2] = ["/exchange_log/items", "/log~1~0"];
const KEYED: [&str; 2] = ["/steering_receipts", "/graph/edges"];

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => (0..SPECS.len(), any::<u32>()).prop_map(|(spec, value)| Change::Replace(spec, value)),
        2 => (0..SPECS.len(), any::<u16>()).prop_map(|(spec, value)| Change::Rest(spec, value)),
        2 => (0..SPECS.len(), 0..BLOBS.len(), any::<u32>())
            .prop_map(|(spec, part, value)| Change::Blob(spec, part, value)),
        6 => (0..SPECS.len(), 0..LOGS.len(), prop::collection::vec(any::<u16>(), 0..6))
            .prop_map(|(spec, part, items)| Change::Append(spec, part, items)),
        6 => (
            0..SPECS.len(),
            0..KEYED.len(),
            prop_oneof![9 => 0..10usize, 1 => 60..90usize].prop_flat_map(|count| {
                prop::collection::vec((0..5u8, any::<Option<u8>>()), count)
            }),
        )
            .prop_map(|(spec, part, changes)| Change::Upsert(spec, part, changes)),
        2 => (0..SPECS.len(), 0..LOGS.len(), 0..12u8)
            .prop_map(|(spec, part, keep)| Change::Cut(spec, part, keep)),
        1 => (0..SPECS.len(), 0..5usize).prop_map(|(spec, part)| Change::RemovePart(spec, part)),
        1 => (0..SPECS.len()).prop_map(Change::Remove),
        2 => (0..20u8, 1..9u8).prop_map(|(first, count)| Change::Artifacts(first, count)),
        3 => Just(Change::Commit),
        2 => any::<bool>().prop_map(Change::Restore),
    ]
}

struct Run {
    store: TestStore,
    writer: SnapshotWriter,
    model: Model,
    /// The model at the last commit, for a process that forgets the rest.
    committed: Model,
    new_artifacts: Vec<NewArtifactRef>,
}

impl Run {
    fn commit(&mut self) {
        let mut header = self.store.header();
        header.artifact_refs = std::mem::take(&mut self.new_artifacts);
        let sealed = self.writer.seal(&header).unwrap();
        self.store.accept(&sealed).unwrap();
        self.committed = self.model.clone();
        let flat = self.store.flat();
        let bytes = flat.to_bytes();
        let expected = self.model.flat(&header);
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            String::from_utf8_lossy(&expected)
        );
        assert_eq!(FlatSnapshot::parse(&bytes), Ok(flat));
    }

    fn restore(&mut self, load: bool) {
        if self.store.roots.is_empty() {
            return;
        }
        self.model = self.committed.clone();
        self.new_artifacts.clear();
        self.writer = self.store.writer();
        let mut reader = self.store.reader();
        self.store.known = self
            .store
            .resolve(&mut reader, SnapshotReader::known_references)
            .unwrap();
        for spec in &SPECS {
            for pointer in KEYED.iter().filter(|pointer| spec.is_keyed(pointer)) {
                if load && self.writer.log_count(spec, pointer).is_some() {
                    let records = self
                        .store
                        .resolve(&mut reader, |reader| reader.keyed_records(spec, pointer))
                        .unwrap();
                    let records = records
                        .iter()
                        .map(|(key, record)| (key.as_str(), record.as_ref()));
                    self.writer.load_keyed(spec, pointer, records).unwrap();
                    assert!(self.writer.keyed_is_loaded(spec, pointer));
                }
            }
        }
    }

    fn cut(&mut self, spec: &ComponentSpec, pointer: &'static str, keep: u64) {
        let Ok(mut cut) = self.writer.begin_cut(spec, pointer, keep) else {
            return;
        };
        while let Some((_, digest)) = cut.need() {
            cut.feed(&self.store.chunks[&digest].clone()).unwrap();
        }
        self.writer.apply_cut(spec, pointer, cut).unwrap();
        let (_, parts) = self.model.mapped(spec);
        if let Some(Part::Log(items)) = parts.get_mut(pointer) {
            items.truncate(keep as usize);
        }
    }

    fn upsert(
        &mut self,
        spec: &ComponentSpec,
        pointer: &'static str,
        changes: &[(u8, Option<u8>)],
    ) {
        let changes: Vec<(String, Option<Value>)> = changes
            .iter()
            .map(|(key, record)| {
                let record = record.map(|value| json!({"record": value, "key": "own"}));
                (format!("k\"{key}"), record)
            })
            .collect();
        let bytes: Vec<(&str, Option<Vec<u8>>)> = changes
            .iter()
            .map(|(key, record)| (key.as_str(), record.as_ref().map(canonical)))
            .collect();
        let given = bytes.iter().map(|(key, record)| (*key, record.as_deref()));
        self.writer.upsert(spec, pointer, given).unwrap();
        let (_, parts) = self.model.mapped(spec);
        let Part::Keyed(records) = parts.entry(pointer).or_insert(Part::Keyed(Vec::new())) else {
            unreachable!()
        };
        for (key, record) in changes {
            let known = records.iter().position(|(known, _)| *known == key);
            match (known, record) {
                (Some(at), Some(record)) => records[at].1 = record,
                (Some(at), None) => {
                    records.remove(at);
                }
                (None, Some(record)) => records.push((key, record)),
                (None, None) => {}
            }
        }
    }

    fn artifacts(&mut self, first: u8, count: u8) {
        for index in first..first + count {
            let id = format!("sha256:{index}");
            let value = json!({"artifact_id": id, "byte_length": index});
            self.new_artifacts.push(NewArtifactRef {
                artifact_id: id.as_str().into(),
                canonical: canonical(&value).into(),
            });
            if !self.model.artifacts.iter().any(|(known, _)| *known == id) {
                self.model.artifacts.push((id, value));
            }
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Commit => self.commit(),
            Change::Restore(load) => self.restore(load),
            Change::Replace(spec, value) => {
                let spec = SPECS[spec];
                // Some are longer than an inline payload may be.
                let length = if value % 16 == 0 {
                    4_080 + value % 100
                } else {
                    3
                };
                let payload = json!({"n": value, "s": "x".repeat(length as usize)});
                self.writer.replace(&spec, canonical(&payload)).unwrap();
                let place = (spec.owner, spec.slot);
                self.model
                    .components
                    .insert(place, (spec, Payload::Whole(payload)));
            }
            Change::Rest(spec, value) => {
                let spec = SPECS[spec];
                let rest = json!({"n": value, "nested": {"kept": true}});
                self.writer.map_rest(&spec, canonical(&rest)).unwrap();
                *self.model.mapped(&spec).0 = rest;
            }
            Change::Blob(spec, part, value) => {
                let (spec, pointer) = (SPECS[spec], BLOBS[part]);
                let blob = json!([value % 3]);
                self.writer
                    .map_blob(&spec, pointer, canonical(&blob).into())
                    .unwrap();
                self.model.mapped(&spec).1.insert(pointer, Part::Blob(blob));
            }
            Change::Append(spec, part, items) => {
                let (spec, pointer) = (SPECS[spec], LOGS[part]);
                let items: Vec<Value> = items.iter().map(|value| json!({"v": value})).collect();
                let result = self
                    .writer
                    .append(&spec, pointer, items.iter().map(canonical));
                if spec.is_keyed(pointer) {
                    assert_eq!(code(result), "corrupt_snapshot");
                    return;
                }
                result.unwrap();
                let (_, parts) = self.model.mapped(&spec);
                if let Part::Log(log) = parts.entry(pointer).or_insert(Part::Log(Vec::new())) {
                    log.extend(items);
                }
            }
            Change::Upsert(spec, part, changes) => {
                let (spec, pointer) = (SPECS[spec], KEYED[part]);
                if spec.is_keyed(pointer) {
                    self.upsert(&spec, pointer, &changes);
                } else {
                    let result = self.writer.upsert(&spec, pointer, []);
                    assert_eq!(code(result), "corrupt_snapshot");
                }
            }
            Change::Cut(spec, part, keep) => self.cut(&SPECS[spec], LOGS[part], keep.into()),
            Change::RemovePart(spec, part) => {
                let pointer = [LOGS[0], LOGS[1], BLOBS[0], KEYED[0], KEYED[1]][part];
                self.writer.remove_part(&SPECS[spec], pointer).unwrap();
                let place = (SPECS[spec].owner, SPECS[spec].slot);
                if let Some((_, Payload::Mapped(_, parts))) = self.model.components.get_mut(&place)
                {
                    parts.remove(pointer);
                }
            }
            Change::Remove(spec) => {
                self.writer.remove(&SPECS[spec]).unwrap();
                let place = (SPECS[spec].owner, SPECS[spec].slot);
                self.model.components.remove(&place);
            }
            Change::Artifacts(first, count) => self.artifacts(first, count),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn k59_materialise_equals_the_flat_form_of_a_plain_model(
        changes in prop::collection::vec(change(), 1..10)
    ) {
        let mut run = Run {
            store: TestStore::new(),
            writer: SnapshotWriter::new(),
            model: Model::default(),
            committed: Model::default(),
            new_artifacts: Vec::new(),
        };
        for change in changes {
            run.apply(change);
        }
        run.commit();
        run.store.deep_verify().unwrap();
    }
}
