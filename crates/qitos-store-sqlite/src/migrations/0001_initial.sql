-- Schema 1: the tables of session section 18. In `snapshot` the root stands last, so that listing a lineage
-- never walks the overflow pages of the roots.
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE session (
    session_no INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    family_no INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    deleted_at INTEGER
) STRICT;

CREATE TABLE snapshot (
    snapshot_no INTEGER PRIMARY KEY,
    snapshot_id TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    session_no INTEGER NOT NULL REFERENCES session (session_no),
    generation INTEGER NOT NULL,
    parent_checkpoint_id TEXT,
    owner_run_id TEXT NOT NULL,
    lifecycle TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    captured_at INTEGER NOT NULL,
    root_digest BLOB NOT NULL,
    request_digest BLOB NOT NULL,
    receipt TEXT NOT NULL,
    pinned INTEGER NOT NULL DEFAULT 0,
    root_codec INTEGER NOT NULL,
    root BLOB NOT NULL,
    UNIQUE (session_no, generation)
) STRICT;

CREATE TABLE head (
    session_no INTEGER PRIMARY KEY REFERENCES session (session_no),
    snapshot_no INTEGER NOT NULL REFERENCES snapshot (snapshot_no) ON DELETE RESTRICT,
    snapshot_id TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    owner_run_id TEXT NOT NULL,
    lifecycle TEXT NOT NULL,
    lease_until_ms INTEGER
) STRICT;

CREATE TABLE chunk (
    chunk_no INTEGER PRIMARY KEY,
    family_no INTEGER NOT NULL,
    digest BLOB NOT NULL,
    kind TEXT NOT NULL,
    codec INTEGER NOT NULL,
    raw_len INTEGER NOT NULL,
    touch_epoch INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL
) STRICT;

-- Rows of `snapshot` and `chunk` by id, checkpoint id and digest: a random key each, so these two tables stand in for
-- unique indexes, which would change a page per key. A commit adds one row to the log; a full log is sorted into the
-- index. Uniqueness is checked by the writer, inside its immediate transaction.
CREATE TABLE key_log (
    log_no INTEGER PRIMARY KEY,
    keys BLOB NOT NULL
) STRICT;

CREATE TABLE key_index (
    key INTEGER NOT NULL,
    row_no INTEGER NOT NULL,
    PRIMARY KEY (key, row_no)
) STRICT, WITHOUT ROWID;

CREATE TABLE fork (
    operation_id TEXT PRIMARY KEY,
    declaration_digest BLOB NOT NULL,
    source_session_id TEXT NOT NULL,
    source_snapshot_id TEXT NOT NULL,
    source_checkpoint_id TEXT NOT NULL,
    source_work_item_id TEXT NOT NULL,
    child_session_no INTEGER NOT NULL REFERENCES session (session_no),
    receipt TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
    session_no INTEGER NOT NULL REFERENCES session (session_no),
    seq INTEGER NOT NULL,
    item_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload BLOB NOT NULL,
    consumed_generation INTEGER,
    PRIMARY KEY (session_no, seq),
    UNIQUE (session_no, item_id)
) STRICT;

-- Consuming costs what waits, not what ever was appended.
CREATE INDEX inbox_waiting ON inbox (session_no, seq) WHERE consumed_generation IS NULL;

CREATE TABLE gc (
    family_no INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    phase TEXT NOT NULL,
    cursor INTEGER
) STRICT;

CREATE TABLE gc_mark (
    family_no INTEGER NOT NULL,
    chunk_no INTEGER NOT NULL,
    PRIMARY KEY (family_no, chunk_no)
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES
    ('store_uuid', lower(hex(randomblob(16)))),
    ('store_schema', '1'),
    ('reader_min', '1'),
    ('writer_min', '1');
