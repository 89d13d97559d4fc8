//! What one request reads and writes inside the writer's transaction (section 18, steps c to h).

use qitos_contracts::checkpoint::decide_commit::{
    CommitFacts, Placement, Recorded, SessionFact, Verdict, decide_closure, decide_commit,
};
use qitos_contracts::checkpoint::decide_fork::{ForkFacts, ForkVerdict, decide_fork};
use qitos_contracts::checkpoint::inbox::decide_append;
use qitos_contracts::checkpoint::verify_snapshot::known_references;
use qitos_contracts::checkpoint::{
    Commit, DurabilityClass, ForkReceipt, ForkRequest, InboxAppend, InboxReceipt, Layer, Receipt,
    StoreError,
};
use qitos_contracts::ids::{ForkOperationId, SessionId, SnapshotId};
use qitos_contracts::snapshot::{Chunk, KnownReferences, Root};
use rusqlite::{Connection, OptionalExtension, params};

use crate::fault_point::{Faults, InjectedFault, Point};
use crate::keys::{self, Keys};
use crate::map_error::map_error;
use crate::pack::pack;
use crate::reference_cache::ReferenceCache;
use crate::rows::{self, ReceiptNote, SessionNumbers};

/// The word for this kind of store in receipts.
pub(crate) const STORE_KIND: &str = "sqlite";

/// What a request needs besides its own data.
#[derive(Debug)]
pub(crate) struct Context<'writer> {
    pub(crate) connection: &'writer Connection,
    pub(crate) class: DurabilityClass,
    pub(crate) references: &'writer mut ReferenceCache,
    pub(crate) keys: &'writer mut Keys,
    pub(crate) faults: &'writer Faults,
}

/// An answer, and whether it is true only once the transaction has committed.
#[derive(Debug)]
pub(crate) struct Applied<T> {
    pub(crate) answer: T,
    pub(crate) wrote: bool,
}

impl<T> Applied<T> {
    pub(crate) fn map<U>(self, with: impl FnOnce(T) -> U) -> Applied<U> {
        Applied {
            answer: with(self.answer),
            wrote: self.wrote,
        }
    }
}

fn write_error(error: rusqlite::Error) -> StoreError {
    map_error("write", &error)
}

impl Context<'_> {
    /// One commit.
    pub(crate) fn commit(&mut self, commit: &Commit) -> Result<Applied<Receipt>, StoreError> {
        self.keys.refresh(self.connection)?;
        let (facts, numbers) = self.commit_facts(commit)?;
        let placement = match decide_commit(commit, &facts)? {
            Verdict::Replay(receipt) => {
                return Ok(Applied {
                    answer: receipt,
                    wrote: false,
                });
            }
            Verdict::Persist(placement) => placement,
        };
        let parent = match (&facts.session, numbers) {
            (SessionFact::Known { head, root_digest }, Some(numbers)) => {
                match self.references.take(root_digest) {
                    Some(known) => known,
                    None => {
                        let (stored, _) =
                            rows::snapshot(self.connection, self.keys, &head.snapshot_id)?
                                .ok_or_else(|| StoreError::CorruptSnapshot {
                                    snapshot: Some(head.snapshot_id.clone()),
                                    layer: Layer::Root,
                                    reason: "the head points to a snapshot that is not there",
                                    digest: None,
                                })?;
                        self.known_references(&stored.verified()?, numbers.family_no)
                            .map_err(|error| needed(error, &head.snapshot_id))?
                    }
                }
            }
            _ => KnownReferences::default(),
        };
        let receipt = self.persist(commit, &placement, &parent, numbers, None)?;
        Ok(Applied {
            answer: receipt,
            wrote: true,
        })
    }

    /// One fork.
    pub(crate) fn fork(
        &mut self,
        request: &ForkRequest,
    ) -> Result<Applied<ForkReceipt>, StoreError> {
        self.keys.refresh(self.connection)?;
        let recorded = fork_receipt(self.connection, &request.operation_id)?;
        let source = rows::snapshot(self.connection, self.keys, &request.source_snapshot_id)?;
        let family_no = source.as_ref().map(|(_, family_no)| *family_no);
        let (child, _) = self.commit_facts(&request.child_commit)?;
        let facts = ForkFacts {
            recorded,
            source: source.map(|(stored, _)| stored),
            child,
        };
        let placement = match decide_fork(request, &facts)? {
            ForkVerdict::Found(receipt) => {
                return Ok(Applied {
                    answer: receipt,
                    wrote: false,
                });
            }
            ForkVerdict::Create(placement) => placement,
        };
        let (Some(stored), Some(family_no)) = (&facts.source, family_no) else {
            return Err(StoreError::SnapshotNotFound {
                snapshot: request.source_snapshot_id.clone(),
            });
        };
        let parent = self
            .known_references(&stored.verified()?, family_no)
            .map_err(|error| needed(error, &request.source_snapshot_id))?;
        self.persist(
            &request.child_commit,
            &placement,
            &parent,
            None,
            Some(family_no),
        )?;
        let receipt = request.receipt(self.class.is_durable(), STORE_KIND);
        let written =
            serde_json::to_string(&receipt).map_err(|_| StoreError::PersistenceFailed {
                operation: "write a fork receipt",
                detail: String::new(),
            })?;
        self.run(
            "INSERT INTO fork (operation_id, declaration_digest, source_session_id, source_snapshot_id,
                 source_checkpoint_id, source_work_item_id, child_session_no, receipt)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6,
                 (SELECT session_no FROM session WHERE session_id = ?7), ?8)",
            params![
                request.operation_id.as_str(),
                request.declaration_digest().as_bytes(),
                request.source_session_id.as_str(),
                request.source_snapshot_id.as_str(),
                request.source_checkpoint_id.as_str(),
                request.source_work_item_id.as_str(),
                request.child_commit.session_id().as_str(),
                written,
            ],
        )?;
        Ok(Applied {
            answer: receipt,
            wrote: true,
        })
    }

    /// One inbox entry.
    pub(crate) fn append(
        &mut self,
        session: &SessionId,
        entry: &InboxAppend,
    ) -> Result<Applied<InboxReceipt>, StoreError> {
        let (fact, numbers) = rows::session_fact(self.connection, session)?;
        let session_no = numbers.map(|numbers| numbers.session_no);
        let earlier: Option<(i64, String, Vec<u8>)> = self
            .connection
            .prepare_cached(
                "SELECT seq, kind, payload FROM inbox WHERE session_no = ?1 AND item_id = ?2",
            )
            .and_then(|mut statement| {
                statement
                    .query_row(params![session_no, entry.item_id().as_str()], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                    })
                    .optional()
            })
            .map_err(write_error)?;
        let waiting = self.number(
            "SELECT count(*) FROM inbox WHERE session_no = ?1 AND consumed_generation IS NULL",
            session_no,
        )?;
        let earlier = earlier.map(|(sequence, kind, payload)| {
            let same = kind == entry.kind().as_str() && payload == entry.payload();
            (u64::try_from(sequence).unwrap_or_default(), same)
        });
        let length = self.inbox_length(session_no)?;
        let receipt = decide_append(session, &fact, earlier, waiting, length)?;
        if receipt.replayed {
            return Ok(Applied {
                answer: receipt,
                wrote: false,
            });
        }
        self.run(
            "INSERT INTO inbox (session_no, seq, item_id, kind, payload) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                session_no,
                signed(receipt.sequence),
                entry.item_id().as_str(),
                entry.kind().as_str(),
                entry.payload()
            ],
        )?;
        Ok(Applied {
            answer: receipt,
            wrote: true,
        })
    }

    fn commit_facts(
        &self,
        commit: &Commit,
    ) -> Result<(CommitFacts, Option<SessionNumbers>), StoreError> {
        let by_snapshot: Option<Recorded> =
            rows::recorded(self.connection, self.keys, commit.snapshot_id(), STORE_KIND)?;
        let checkpoint_id_taken = by_snapshot.is_none()
            && rows::checkpoint_taken(self.connection, self.keys, commit.checkpoint_id())?;
        let (session, numbers) = rows::session_fact(self.connection, commit.session_id())?;
        let inbox_length = match commit.consumed_inbox() {
            None => Some(0),
            Some(_) => Some(self.inbox_length(numbers.map(|numbers| numbers.session_no))?),
        };
        let facts = CommitFacts {
            by_snapshot,
            checkpoint_id_taken,
            session,
            inbox_length,
        };
        Ok((facts, numbers))
    }

    fn inbox_length(&self, session_no: Option<i64>) -> Result<u64, StoreError> {
        self.number(
            "SELECT coalesce(max(seq) + 1, 0) FROM inbox WHERE session_no = ?1",
            session_no,
        )
    }

    fn number(&self, sql: &str, session_no: Option<i64>) -> Result<u64, StoreError> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([session_no], |row| row.get::<_, i64>(0)))
            .map(|value| u64::try_from(value).unwrap_or_default())
            .map_err(write_error)
    }

    fn run(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<usize, StoreError> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(parameters))
            .map_err(write_error)
    }

    /// What a stored root, its maps and its logs reference, read from the family's chunks.
    fn known_references(&self, root: &Root, family_no: i64) -> Result<KnownReferences, StoreError> {
        known_references(root, |digest| {
            rows::required_chunk(self.connection, self.keys, family_no, digest)
        })
    }

    /// Inserts chunks and snapshot and moves the head; `family_no` is given for a fork child.
    fn persist(
        &mut self,
        commit: &Commit,
        placement: &Placement,
        parent: &KnownReferences,
        numbers: Option<SessionNumbers>,
        family_no: Option<i64>,
    ) -> Result<Receipt, StoreError> {
        let family = numbers.map(|numbers| numbers.family_no).or(family_no);
        let known = decide_closure(commit, parent, |digest| {
            rows::required_chunk(
                self.connection,
                self.keys,
                family.unwrap_or_default(),
                digest,
            )
        })?;
        let root = commit.root();
        let numbers = match numbers {
            Some(numbers) => numbers,
            None => self.create_session(commit, family_no)?,
        };
        let mut bytes_written = commit.root_bytes().len() as u64;
        let mut chunks_written = 0;
        let mut added = Vec::with_capacity(commit.chunks().len() + 2);
        for chunk in commit.chunks() {
            if let Some(entry) = self.insert_chunk(numbers.family_no, chunk)? {
                added.push(entry);
                bytes_written += chunk.bytes().len() as u64;
                chunks_written += 1;
            }
        }
        self.fault(Point::AfterChunks)?;
        let note = ReceiptNote {
            bytes_written,
            chunks_written,
            class: self.class,
        };
        let (codec, packed) = pack(commit.root_bytes());
        let root_digest = root.digest();
        self.run(
            "INSERT INTO snapshot (snapshot_id, checkpoint_id, session_no, generation, parent_checkpoint_id,
                 owner_run_id, lifecycle, schema_version, captured_at, root_digest, request_digest, receipt,
                 root_codec, root)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 3, ?8, ?9, ?10, ?11, ?12, ?13)",
            params![
                commit.snapshot_id().as_str(),
                commit.checkpoint_id().as_str(),
                numbers.session_no,
                signed(placement.generation),
                placement
                    .parent_checkpoint_id
                    .as_ref()
                    .map(|checkpoint| checkpoint.as_str()),
                commit.owner_run_id().as_str(),
                commit.lifecycle().as_str(),
                root.timing().captured_at.as_micros(),
                root_digest.as_bytes(),
                commit.request_digest().as_bytes(),
                note.to_text(),
                signed(codec),
                packed,
            ],
        )?;
        let snapshot_no = self.connection.last_insert_rowid();
        for key in [
            keys::of_snapshot(commit.snapshot_id()),
            keys::of_checkpoint(commit.checkpoint_id()),
        ] {
            self.keys.add(key, snapshot_no);
            added.push((key, snapshot_no));
        }
        self.keys.log(self.connection, &added)?;
        self.fault(Point::AfterSnapshot)?;
        self.run(
            "INSERT INTO head (session_no, snapshot_no, snapshot_id, checkpoint_id, generation, owner_run_id,
                 lifecycle)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (session_no) DO UPDATE SET snapshot_no = excluded.snapshot_no,
                 snapshot_id = excluded.snapshot_id, checkpoint_id = excluded.checkpoint_id,
                 generation = excluded.generation, owner_run_id = excluded.owner_run_id,
                 lifecycle = excluded.lifecycle, lease_until_ms = NULL",
            params![
                numbers.session_no,
                snapshot_no,
                commit.snapshot_id().as_str(),
                commit.checkpoint_id().as_str(),
                signed(placement.generation),
                commit.owner_run_id().as_str(),
                commit.lifecycle().as_str(),
            ],
        )?;
        if let Some(consumed) = commit.consumed_inbox() {
            self.run(
                "UPDATE inbox SET consumed_generation = ?3
                 WHERE session_no = ?1 AND seq <= ?2 AND consumed_generation IS NULL",
                params![
                    numbers.session_no,
                    signed(consumed),
                    signed(placement.generation)
                ],
            )?;
        }
        self.fault(Point::AfterHead)?;
        self.references.put(root_digest, known);
        Ok(Receipt {
            session_id: commit.session_id().clone(),
            snapshot_id: commit.snapshot_id().clone(),
            checkpoint_id: commit.checkpoint_id().clone(),
            generation: placement.generation,
            owner_run_id: commit.owner_run_id().clone(),
            lifecycle: commit.lifecycle(),
            durable: self.class.is_durable(),
            store_kind: STORE_KIND.into(),
            durability_class: self.class,
            root_digest,
            replayed: false,
            bytes_written,
            chunks_written,
        })
    }

    fn create_session(
        &self,
        commit: &Commit,
        family_no: Option<i64>,
    ) -> Result<SessionNumbers, StoreError> {
        self.run(
            "INSERT INTO session (session_id, family_no, created_at) VALUES (?1, ?2, ?3)",
            params![
                commit.session_id().as_str(),
                family_no.unwrap_or_default(),
                commit.root().created_at().as_micros()
            ],
        )?;
        let session_no = self.connection.last_insert_rowid();
        if let Some(family_no) = family_no {
            return Ok(SessionNumbers {
                session_no,
                family_no,
            });
        }
        // A session that is no fork is the root of its own family.
        self.run(
            "UPDATE session SET family_no = session_no WHERE session_no = ?1",
            [session_no],
        )?;
        Ok(SessionNumbers {
            session_no,
            family_no: session_no,
        })
    }

    /// Where the chunk now stands, or nothing when the family held it already.
    fn insert_chunk(
        &mut self,
        family_no: i64,
        chunk: &Chunk,
    ) -> Result<Option<(i64, i64)>, StoreError> {
        let length = chunk.bytes().len() as u64;
        let digest = chunk.digest();
        match rows::chunk_length(self.connection, self.keys, family_no, &digest)? {
            Some(held) if held == length => return Ok(None),
            Some(_) => {
                return Err(StoreError::CorruptSnapshot {
                    snapshot: None,
                    layer: Layer::Chunk,
                    reason: "the stored chunk has another length",
                    digest: Some(digest),
                });
            }
            None => {}
        }
        let (codec, packed) = pack(chunk.bytes());
        self.run(
            "INSERT INTO chunk (family_no, digest, kind, codec, raw_len, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                family_no,
                digest.as_bytes(),
                chunk.kind().as_str(),
                signed(codec),
                signed(length),
                packed
            ],
        )?;
        let key = keys::of_chunk(family_no, &digest);
        let chunk_no = self.connection.last_insert_rowid();
        self.keys.add(key, chunk_no);
        Ok(Some((key, chunk_no)))
    }

    fn fault(&self, point: Point) -> Result<(), StoreError> {
        match self.faults.reached(point) {
            Some(InjectedFault::DiskFull) => Err(StoreError::StorageFull),
            _ => Ok(()),
        }
    }
}

/// What a commit needs of its parent and the store lost is a missing chunk (F18); other damage keeps its name.
fn needed(error: StoreError, snapshot: &SnapshotId) -> StoreError {
    match error {
        StoreError::CorruptSnapshot {
            reason: rows::NOT_HELD,
            digest: Some(digest),
            ..
        } => StoreError::MissingChunk {
            digests: vec![digest],
        },
        other => other.in_snapshot(snapshot),
    }
}

/// SQLite's integers are signed; every number stored here was checked to fit when it came in.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The stored receipt of a fork operation.
pub(crate) fn fork_receipt(
    connection: &Connection,
    operation: &ForkOperationId,
) -> Result<Option<ForkReceipt>, StoreError> {
    let Some(written) = rows::fork_receipt_text(connection, operation.as_str())? else {
        return Ok(None);
    };
    serde_json::from_str(&written)
        .map(Some)
        .map_err(|_| StoreError::StoreCorrupt {
            detail: "a fork receipt does not decode".into(),
        })
}
