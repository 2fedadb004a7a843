"""
The tables of the store's file and how the file is opened, for writing and for reading.

Owns the schema's version and what happens to a file that cannot be used: a corrupt one is moved aside, one written
by a newer release is refused. Leaves rows to ``rows.py``.
"""

import logging
import sqlite3
import time
from pathlib import Path

from stepscope_sidecar.errors import StoreError, StoreVersionError

LOG = logging.getLogger(__name__)

FILE = "stepscope.db"
"""The store's file in the attempt's folder."""

VERSION = 1
"""Of the schema, in ``user_version``; raised with every change that an older release would misread."""

PAGE_BYTES = 8192
"""Bodies of some 100 KB lie on fewer overflow pages than with 4096, and one-row commits still write little."""

CHECKPOINT_PAGES = 4000
"""About 32 MB of log between checkpoints: each one syncs the disk, and at full load the default made four a second."""

BUSY_MS = 5000
"""How long to wait for another process that holds the file, such as a person's sqlite3 shell."""

CHECKED_BYTES = 256 * 1024**2
"""Files up to this size are checked whole at start, in well under a second; larger ones only as they are read."""

BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""What SQLite says of a file that is not, or no longer, a database."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, received_unix_ns INTEGER NOT NULL, spans INTEGER NOT NULL, body BLOB NOT NULL,
    via TEXT
);
-- How far each reader of the inbox has come: all rows below inbox_id, and so many spans of that row.
CREATE TABLE cursor (name TEXT PRIMARY KEY, inbox_id INTEGER NOT NULL, spans INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO cursor VALUES ('index', 0, 0), ('forward', 0, 0);
CREATE TABLE refused (
    id INTEGER PRIMARY KEY AUTOINCREMENT, unix_ns INTEGER NOT NULL, status INTEGER NOT NULL, message TEXT NOT NULL,
    spans INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE TABLE resources (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE spans (
    id INTEGER PRIMARY KEY, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, parent_span_id TEXT NOT NULL,
    name TEXT NOT NULL, kind INTEGER NOT NULL, start_unix_ns INTEGER NOT NULL, end_unix_ns INTEGER NOT NULL,
    attributes TEXT NOT NULL, links TEXT NOT NULL, events TEXT NOT NULL, status TEXT NOT NULL,
    resource_id INTEGER NOT NULL REFERENCES resources, role TEXT, rank INTEGER, step INTEGER, param_version INTEGER
);
CREATE UNIQUE INDEX spans_by_id ON spans (span_id, trace_id);
CREATE INDEX spans_by_step ON spans (step, name);
CREATE TABLE windows (
    "window" TEXT PRIMARY KEY, run TEXT NOT NULL, attempt TEXT NOT NULL, node TEXT NOT NULL, step INTEGER NOT NULL,
    param_version INTEGER NOT NULL, version_at_close INTEGER, role TEXT NOT NULL, rank INTEGER NOT NULL,
    pid INTEGER NOT NULL, process_start INTEGER NOT NULL, tool TEXT NOT NULL, level TEXT NOT NULL,
    level_fallback TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL, complete INTEGER,
    incomplete_reason TEXT NOT NULL, incomplete_share REAL, artifact TEXT NOT NULL, folder TEXT NOT NULL,
    bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, trace_id TEXT NOT NULL, span_id TEXT NOT NULL,
    asked_unix_ns INTEGER NOT NULL, opened_unix_ns INTEGER NOT NULL, closed_unix_ns INTEGER NOT NULL,
    stall_seconds TEXT NOT NULL, other TEXT NOT NULL
);
CREATE TABLE processes (
    pid INTEGER NOT NULL, process_start INTEGER NOT NULL, node TEXT NOT NULL, role TEXT NOT NULL, rank INTEGER NOT NULL,
    run TEXT NOT NULL, attempt TEXT NOT NULL, world_size INTEGER, param_version INTEGER NOT NULL,
    resumed_from INTEGER, total_steps INTEGER, entered_step INTEGER NOT NULL, closed_step INTEGER NOT NULL,
    device_ids TEXT NOT NULL, tools TEXT NOT NULL, environment TEXT NOT NULL, registered_unix_ns INTEGER NOT NULL,
    ended_unix_ns INTEGER NOT NULL, end_reason TEXT NOT NULL,
    PRIMARY KEY (node, pid, process_start, role, rank)
);
CREATE TABLE samples (
    step INTEGER NOT NULL, mini_batch INTEGER NOT NULL, param_version INTEGER NOT NULL, sample_id TEXT NOT NULL,
    oldest_version INTEGER, newest_version INTEGER, trace_id TEXT NOT NULL, span_id TEXT NOT NULL
);
CREATE INDEX samples_by_step ON samples (step, mini_batch);
CREATE TABLE selection (
    revision INTEGER PRIMARY KEY, text TEXT NOT NULL, unix_ns INTEGER NOT NULL, source TEXT NOT NULL,
    stopped INTEGER NOT NULL
);
CREATE TABLE totals (
    name TEXT NOT NULL, labels TEXT NOT NULL, value REAL NOT NULL, exemplar TEXT, PRIMARY KEY (name, labels)
) WITHOUT ROWID;
CREATE TABLE histograms (
    name TEXT NOT NULL, labels TEXT NOT NULL, counts TEXT NOT NULL, sum REAL NOT NULL, exemplars TEXT NOT NULL,
    PRIMARY KEY (name, labels)
) WITHOUT ROWID;
"""

LATER = """
CREATE TABLE IF NOT EXISTS nodes (
    node TEXT NOT NULL, run TEXT NOT NULL, attempt TEXT NOT NULL, http TEXT NOT NULL, heard_unix_ns INTEGER NOT NULL,
    offset_ns INTEGER, error_ns INTEGER, vanished_unix_ns INTEGER NOT NULL, ended_unix_ns INTEGER NOT NULL,
    PRIMARY KEY (node, run, attempt)
) WITHOUT ROWID;
-- Windows of other nodes, as those last reported them; columns as in windows.
CREATE TABLE IF NOT EXISTS node_windows AS SELECT * FROM windows WHERE 0;
CREATE UNIQUE INDEX IF NOT EXISTS node_windows_by_id ON node_windows (node, run, attempt, "window");
-- A trace is asked for by its id, and shown from its first span on.
CREATE INDEX IF NOT EXISTS spans_by_trace ON spans (trace_id, start_unix_ns);
-- Recordings that were expected of a step and were not made, as the sidecar decided it.
CREATE TABLE IF NOT EXISTS missing (
    step INTEGER NOT NULL, role TEXT NOT NULL, rank INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (step, role, rank)
) WITHOUT ROWID;
-- Those that other nodes have decided; in the order in which they came.
CREATE TABLE IF NOT EXISTS node_missing (
    node TEXT NOT NULL, run TEXT NOT NULL, attempt TEXT NOT NULL,
    step INTEGER NOT NULL, role TEXT NOT NULL, rank INTEGER NOT NULL, reason TEXT NOT NULL,
    UNIQUE (node, run, attempt, step, role, rank)
);
-- How many spans and bytes came with a request of the inbox and all before it; only differences mean something. Kept
-- by the file, so that an older release keeps them, too.
CREATE TABLE IF NOT EXISTS inbox_sums (inbox_id INTEGER PRIMARY KEY, spans INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO inbox_sums SELECT id, sum(spans) OVER (ORDER BY id), sum(length(body)) OVER (ORDER BY id) FROM inbox
    WHERE NOT EXISTS (SELECT 1 FROM inbox_sums);
CREATE TRIGGER IF NOT EXISTS inbox_more AFTER INSERT ON inbox BEGIN
    INSERT INTO inbox_sums SELECT NEW.id,
        NEW.spans + coalesce((SELECT spans FROM inbox_sums ORDER BY inbox_id DESC LIMIT 1), 0),
        length(NEW.body) + coalesce((SELECT bytes FROM inbox_sums ORDER BY inbox_id DESC LIMIT 1), 0);
END;
CREATE TRIGGER IF NOT EXISTS inbox_less AFTER DELETE ON inbox BEGIN
    DELETE FROM inbox_sums WHERE inbox_id = OLD.id;
END;
"""
"""What came later, made in older stores too; an older release does without it and misreads nothing."""

LATER_COLUMNS = (("inbox", "via", "TEXT"),)
"""Columns that came later, likewise; SQLite cannot be told to add one only where it is missing."""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """
    The one connection that writes; makes the file where there is none, and moves a corrupt one aside.

    Raises:
        StoreError: the file cannot be opened, or a newer release has written it.
    """
    try:
        return _prepared(path)
    except sqlite3.DatabaseError as error:
        if _primary(error) not in BROKEN:
            raise StoreError(f"cannot open the store {path}: {error}") from error
        aside = path.with_name(f"{path.name}.corrupt-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
        for suffix in ("", "-wal", "-shm"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
        LOG.error("%s is damaged (%s); moved aside as %s, beginning a new store", path, error, aside.name)
    try:
        return _prepared(path)
    except sqlite3.Error as error:
        raise StoreError(f"cannot make a store at {path}: {error}") from error


def open_for_reading(path: Path) -> sqlite3.Connection:
    """
    A read-only connection, whether or not anybody writes at the time.

    Raises:
        StoreError: there is no store, it cannot be read, or a newer release has written it.
    """
    if not path.is_file():
        raise StoreError(f"no store at {path}; was a run started with STEPSCOPE_DIR at this place?")
    uri = path.absolute().as_uri()
    last: sqlite3.Error | None = None
    # In a folder that may not be written, SQLite cannot make the index of the log; then the file alone is read.
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{uri}?{mode}", uri=True, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
            version = _version(connection)
        except sqlite3.Error as error:
            connection.close()
            last = error
            if _primary(error) in BROKEN:
                break
            continue
        if version != VERSION:
            connection.close()
            raise StoreVersionError(_version_message(path, version))
        connection.row_factory = sqlite3.Row
        return connection
    raise StoreError(f"cannot read the store {path}: {last}") from last


def _prepared(path: Path) -> sqlite3.Connection:
    # Made here, used by the writer's thread alone.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    try:
        connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit={4 * CHECKPOINT_PAGES * PAGE_BYTES}")
        version = _version(connection)
        if version == 0:
            connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version={VERSION}; COMMIT;")
        elif version != VERSION:
            raise StoreVersionError(_version_message(path, version))
        else:
            _check(connection, path)
        connection.executescript(f"BEGIN IMMEDIATE; {LATER} COMMIT;")
        _widen(connection)
        connection.row_factory = sqlite3.Row
    except BaseException:
        connection.close()
        raise
    return connection


def _widen(connection: sqlite3.Connection) -> None:
    for table, column, kind in LATER_COLUMNS:
        if column not in {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if path.stat().st_size > CHECKED_BYTES:
        return
    row = connection.execute("PRAGMA quick_check(1)").fetchone()
    if row[0] != "ok":
        error = sqlite3.DatabaseError(str(row[0]))
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def _version(connection: sqlite3.Connection) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return -1
    return version


def _version_message(path: Path, version: int) -> str:
    if version < 0:
        return f"{path} is a SQLite file, but no store of stepscope"
    return f"{path} has schema {version}, this release reads {VERSION}; use the release of stepscope that wrote it"


def _primary(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
