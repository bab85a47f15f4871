// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a recording: its records in order, one at a time.

use super::column::Cells;
use super::table::{self, Presence};
use super::{companion, reason, uri};
use deburr_core::recording::Record;
use rusqlite::config::DbConfig;
use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use tempfile::TempDir;

/// The first bytes of every SQLite file.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";
/// Maximum length of a cell. The longest that is written are lists of some thousand bins.
const MAX_CELL_BYTES: i32 = 16 << 20;

/// Why a file cannot be read as a recording. The text names the file and, if there is one, a way out.
#[derive(Debug)]
pub(crate) struct OpenError(String);

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

/// A recording that is open for reading. Nothing is ever written to it.
#[derive(Debug)]
pub(crate) struct Reader {
    connection: Connection,
    shown: String,
    /// The directory of the copy that is read instead of the file itself, if there is one.
    _copy: Option<TempDir>,
}

impl Reader {
    /// Opens a recording, which may be complete or cut short.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let shown = path.display().to_string();
        check_head(path).map_err(|what| OpenError(format!("`{shown}` {what}")))?;
        let has_log = companion(path, "-wal").metadata().is_ok_and(|log| log.len() > 0);
        let reader = if has_log {
            Self::open_with_log(path, &shown)
        } else {
            // Without a log no session writes to it: it can be read in place, from any medium.
            connect(path, true)
                .map(|connection| Self { connection, shown: shown.clone(), _copy: None })
                .map_err(Into::into)
        };
        let reader =
            reader.map_err(|error| OpenError(format!("cannot read `{shown}`: {error}")))?;
        reader.check_version()?;
        Ok(reader)
    }

    /// Opens a recording that is still written to, or whose session was killed: its last part is in the log. To read a
    /// log, SQLite needs its index beside it, which cannot be created on a read-only or full medium: then a private
    /// copy is read.
    fn open_with_log(path: &Path, shown: &str) -> Result<Self, Box<dyn std::error::Error>> {
        if let Ok(connection) = connect(path, false)
            && connection.query_row("SELECT count(*) FROM meta", [], |_| Ok(())).is_ok()
        {
            return Ok(Self { connection, shown: shown.into(), _copy: None });
        }
        let directory = tempfile::tempdir()?;
        let copy = directory.path().join("recording");
        std::fs::copy(path, &copy)?;
        std::fs::copy(companion(path, "-wal"), companion(&copy, "-wal"))?;
        let connection = connect(&copy, false)?;
        Ok(Self { connection, shown: shown.into(), _copy: Some(directory) })
    }

    fn pragma(&self, name: &str) -> Result<i32, OpenError> {
        let value = self.connection.pragma_query_value(None, name, |row| row.get(0));
        value.map_err(|error| self.unreadable(&error))
    }

    fn check_version(&self) -> Result<(), OpenError> {
        let shown = &self.shown;
        let application = self.pragma("application_id")?;
        if application != table::APPLICATION_ID {
            return Err(OpenError(format!(
                "`{shown}` is a SQLite file, but not a recording of deburr"
            )));
        }
        let version = self.pragma("user_version")?;
        if version > table::VERSION {
            return Err(OpenError(format!(
                "`{shown}` has format version {version}, this deburr reads up to {}; use a newer deburr",
                table::VERSION
            )));
        }
        if version < 1 {
            return Err(OpenError(format!(
                "`{shown}` has format version {version}, which never was"
            )));
        }
        Ok(())
    }

    /// Passes every record to `take`, in the order in which they were written.
    pub(crate) fn for_each(&self, mut take: impl FnMut(&Record)) -> Result<(), OpenError> {
        // One transaction, because a session may be writing to the file.
        self.connection.execute_batch("BEGIN").map_err(|error| self.unreadable(&error))?;
        let result = self.merge(&mut take);
        // Nothing was changed, so a failure here does not matter.
        let _ = self.connection.execute_batch("ROLLBACK");
        result
    }

    /// Merges the tables by `seq`.
    fn merge(&self, take: &mut dyn FnMut(&Record)) -> Result<(), OpenError> {
        let fail = |error: rusqlite::Error| self.unreadable(&error);
        let mut statements = Vec::new();
        let version = self.pragma("user_version")?;
        for table in table::all().filter(|table| table.since_version <= version) {
            let mut from = table.stored();
            self.check_table(&from)?;
            let mut there = self.columns(&from).map_err(fail)?;
            if there.is_empty() {
                // A recording from before lists were packed.
                from = table.name.into();
                self.check_table(&from)?;
                there = self.columns(&from).map_err(fail)?;
            }
            if table.presence != Presence::Always && there.is_empty() {
                continue;
            }
            let select = table.select(&from, &there);
            statements.push((table, self.connection.prepare(&select).map_err(fail)?));
        }
        let mut tables = Vec::with_capacity(statements.len());
        for (table, statement) in &mut statements {
            let mut rows = statement.query([]).map_err(fail)?;
            let head = next_seq(&mut rows).map_err(fail)?;
            tables.push((head, *table, rows));
        }
        loop {
            let next = tables.iter_mut().filter(|(head, ..)| head.is_some());
            let Some((head, table, rows)) = next.min_by_key(|(head, ..)| *head) else {
                return Ok(());
            };
            if let Some(row) = rows.get() {
                let record = (table.read)(&mut Cells::new(table.name, row));
                take(&record.map_err(|damage| {
                    OpenError(format!("`{}` is damaged: {}", self.shown, damage.message))
                })?);
            }
            *head = next_seq(rows).map_err(fail)?;
        }
    }

    /// Rejects what computes its rows instead of holding them: a view, or a virtual table.
    fn check_table(&self, name: &str) -> Result<(), OpenError> {
        let held = self.connection.query_row(
            "SELECT type = 'table' AND sql LIKE 'CREATE TABLE %' FROM sqlite_schema WHERE name = ?1",
            [name],
            |row| row.get::<_, Option<bool>>(0),
        );
        match held.optional().map_err(|error| self.unreadable(&error))? {
            None | Some(Some(true)) => Ok(()),
            Some(_) => {
                Err(OpenError(format!("`{}` is damaged: `{name}` is not a table", self.shown)))
            }
        }
    }

    /// Names of a table's columns.
    fn columns(&self, table: &str) -> rusqlite::Result<Vec<String>> {
        let mut names = self.connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        names.query_map([table], |row| row.get(0))?.collect()
    }

    fn unreadable(&self, error: &rusqlite::Error) -> OpenError {
        let (shown, reason) = (&self.shown, reason(error));
        OpenError(match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                format!("`{shown}` is damaged or cut off: {reason}")
            }
            _ => format!("cannot read `{shown}`: {reason}"),
        })
    }
}

/// Steps to the next row and returns its `seq`; `None` at the end.
fn next_seq(rows: &mut rusqlite::Rows<'_>) -> rusqlite::Result<Option<i64>> {
    rows.advance()?;
    rows.get().map(|row| row.get(0)).transpose()
}

/// Opens the file read-only. `immutable` promises that no process writes to it: then no locks and no index of a log
/// are needed, and neither the file nor its directory has to be writable.
fn connect(path: &Path, immutable: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let query = if immutable { "immutable=1" } else { "mode=ro" };
    let connection = Connection::open_with_flags(uri(path, query), flags)?;
    // The file may be anybody's: only its tables are read, and a cell has a bounded size.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES)?;
    connection.busy_timeout(std::time::Duration::from_secs(1))?;
    Ok(connection)
}

/// Checks the type, size and first bytes of the file, so that the error for other files says what they are.
fn check_head(path: &Path) -> Result<(), String> {
    let fail = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => "does not exist".to_owned(),
        _ => format!("cannot be opened: {error}"),
    };
    // Checked before it is opened: opening would wait for the other end of a FIFO, and may start a device.
    let meta = path.metadata().map_err(fail)?;
    if meta.is_dir() {
        return Err("is a directory, not a recording".into());
    }
    if !meta.is_file() {
        return Err("is not a regular file".into());
    }
    if meta.len() == 0 {
        return Err("is empty: no recording".into());
    }
    let mut head = [0; MAGIC.len()];
    match File::open(path).map_err(fail)?.read_exact(&mut head) {
        Ok(()) if head == MAGIC => Ok(()),
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
            Err(format!("cannot be read: {error}"))
        }
        _ => Err("is not a recording of deburr".into()),
    }
}
