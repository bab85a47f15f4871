// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a recording while the session runs.

use super::column::Cell;
use super::create::{self, Claim};
use super::table::{self, OnDemand};
use super::{companion, reason, records, uri};
use crate::failure::{Exit, Failure};
use deburr_core::recording::Record;
use deburr_sys::signal;
use rusqlite::types::{ToSqlOutput, Value as Owned, ValueRef};
use rusqlite::{Connection, OpenFlags, params_from_iter};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The end of a session whose log's index is cut short.
const CUT_SHORT: &str = "deburr: the recording ends here: a file of it (its `-shm`) was truncated while it was used; \
                         what is in it can be read\n";

/// A recording that is being written. Dropped without [`Self::finish`], it stays as the last
/// [`Self::commit`] left it, like after a SIGKILL.
#[derive(Debug)]
pub(crate) struct Writer {
    connection: Connection,
    path: PathBuf,
    /// Name of a table -> the statement that adds a row, and the group of tables that it is created with on demand.
    tables: HashMap<&'static str, (String, Option<OnDemand>)>,
    /// `seq` of the last row.
    seq: i64,
    /// Number of the last row of `tick`, and its range.
    tick: i64,
    tick_range: Option<(u64, u64)>,
    in_transaction: bool,
    /// Groups of tables that were created on demand.
    added: Vec<OnDemand>,
    /// Sizes of the file and of its log at the last look. SQLite never makes either shorter before the end.
    sizes: [u64; 2],
    /// The file itself. Dropped last: closing it releases the locks that SQLite holds on it.
    file: File,
}

impl Writer {
    /// Replaces what is at the claimed path by an empty recording.
    pub(super) fn begin(claim: &Claim) -> anyhow::Result<Self> {
        let path = claim.path();
        let failed = |error: rusqlite::Error| {
            let (shown, reason) = (path.display(), reason(&error));
            Failure::error(Exit::Output, format!("cannot write a recording to `{shown}`: {reason}"))
        };
        // SQLite maps the log's index, which others who may write to the file can cut short at any time.
        signal::exit_on_bus_error(CUT_SHORT, Exit::Output as i32).map_err(|error| {
            Failure::error(Exit::Missing, format!("cannot handle a signal: {error}"))
        })?;
        let temporary = claim.destination.temporary()?;
        Self::create(temporary.path()).map_err(failed)?;
        claim.remove_stale()?;
        let file = claim.destination.put(temporary)?;
        if !create::is_at(&file, path) {
            return Err(create::in_use(path));
        }
        let connection = Self::open(path);
        // From here on SQLite holds a lock that other processes respect. Before, another process may have replaced the
        // file: then the file at the path is its own.
        if !create::is_at(&file, path) {
            return Err(create::in_use(path));
        }
        Ok(Self {
            connection: connection.map_err(failed)?,
            path: path.to_owned(),
            tables: table::all()
                .map(|table| (table.name, (table.insert(), table.on_demand())))
                .collect(),
            seq: 0,
            tick: 0,
            tick_range: None,
            in_transaction: false,
            added: Vec::new(),
            sizes: [0; 2],
            file,
        })
    }

    fn connect(path: &Path) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(uri(&without_links(path), "mode=rw"), flags)?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        // In KiB. Rows are only added, at the end of their table: 2 MB, as is usual, would be kept for nothing.
        connection.pragma_update(None, "cache_size", -512)?;
        Ok(connection)
    }

    /// Writes the schema straight into an empty file, so that the file is a recording from its first moment even if it
    /// is parted from its log.
    fn create(path: &Path) -> rusqlite::Result<()> {
        let connection = Self::connect(path)?;
        connection.pragma_update(None, "journal_mode", "MEMORY")?;
        connection.pragma_update(None, "application_id", table::APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", table::VERSION)?;
        connection.execute_batch(&format!("BEGIN; {} COMMIT;", table::create()))
    }

    fn open(path: &Path) -> rusqlite::Result<Connection> {
        let connection = Self::connect(path)?;
        connection.set_prepared_statement_cache_capacity(table::all().count() + 4);
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // The first transaction in this mode takes the lock that is held until the end.
        connection.query_row("SELECT count(*) FROM meta", [], |_| Ok(()))?;
        connection.busy_timeout(std::time::Duration::from_secs(1))?;
        Ok(connection)
    }

    /// The path of the recording.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a record. It survives a SIGKILL only after the next [`Self::commit`].
    pub(crate) fn push(&mut self, record: &Record) -> rusqlite::Result<()> {
        if !self.in_transaction {
            self.connection.prepare_cached("BEGIN")?.execute([])?;
            self.in_transaction = true;
        }
        let row = records::row(record);
        let (_, on_demand) = self.tables[row.table];
        if let Some(which) = on_demand.filter(|which| !self.added.contains(which)) {
            self.connection.execute_batch(&table::create_on_demand(which))?;
            self.added.push(which);
        }
        let tick = row.tick.map(|range| self.tick_of(range)).transpose()?;
        self.seq += 1;
        let head = [Some(self.seq), tick].into_iter().flatten().map(Cell::Integer);
        self.connection
            .prepare_cached(&self.tables[row.table].0)?
            .execute(params_from_iter(head.chain(row.cells)))?;
        Ok(())
    }

    /// Number of that time range in the table `tick`. Ticks come in groups of the same range, so only the last range is
    /// remembered.
    fn tick_of(&mut self, range: (u64, u64)) -> rusqlite::Result<i64> {
        if self.tick_range != Some(range) {
            self.connection.prepare_cached("INSERT INTO tick VALUES (?, ?, ?)")?.execute((
                self.tick + 1,
                range.0.cast_signed(),
                range.1.cast_signed(),
            ))?;
            self.tick += 1;
            self.tick_range = Some(range);
        }
        Ok(self.tick)
    }

    /// Commits the records pushed so far, so that they survive a SIGKILL.
    pub(crate) fn commit(&mut self) -> rusqlite::Result<()> {
        if self.in_transaction {
            self.connection.prepare_cached("COMMIT")?.execute([])?;
            self.in_transaction = false;
        }
        Ok(())
    }

    /// What somebody did to the file while it was written, after which it is not what this writer believes.
    pub(crate) fn harm(&mut self) -> Option<&'static str> {
        let log = companion(&self.path, "-wal");
        let (own, log) = (self.file.metadata(), log.symlink_metadata());
        if own.as_ref().is_ok_and(|own| own.nlink() == 0) {
            return Some("it was deleted");
        }
        if !create::is_at(&self.file, &self.path) {
            return Some("it was moved, or replaced by another file");
        }
        let Ok(log) = log else { return Some("its log was deleted") };
        let sizes = [own.map_or(0, |own| own.len()), log.len()];
        let shrunk = sizes.iter().zip(self.sizes).any(|(now, before)| *now < before);
        self.sizes = sizes;
        shrunk.then_some("it was truncated")
    }

    /// Ends the recording after a failed write: drops what was not committed, and adds `last` to the rest, if there is
    /// room for it.
    pub(crate) fn abandon(mut self, last: &Record) {
        // SQLite rolls some failures back by itself, so an error here does not matter.
        let _ = self.connection.execute_batch("ROLLBACK");
        self.in_transaction = false;
        self.tick_range = None;
        let _ = self.push(last).and_then(|()| self.commit());
    }

    /// Ends the recording: a single file is left, without SQLite's companion files. Returns what somebody did to the
    /// file, if it is not whole.
    pub(crate) fn finish(mut self) -> rusqlite::Result<Option<&'static str>> {
        self.commit()?;
        if let Some(harm) = self.harm() {
            return Ok(Some(harm));
        }
        self.connection.flush_prepared_statement_cache();
        // Fails while another process reads the file; then the log stays, and the recording is complete nevertheless.
        let mode = "PRAGMA journal_mode=DELETE";
        match self.connection.query_row(mode, [], |row| row.get::<_, String>(0)) {
            Err(error) if error.sqlite_error_code() != Some(rusqlite::ErrorCode::DatabaseBusy) => {
                Err(error)
            }
            _ if !create::is_at(&self.file, &self.path) => Ok(Some("its file is gone")),
            _ => Ok(None),
        }
    }

    /// Simulates a full disk once the file has that many pages.
    #[cfg(test)]
    pub(super) fn limit_to_pages(&self, pages: u32) {
        self.connection.pragma_update(None, "max_page_count", pages).unwrap();
    }
}

impl rusqlite::ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(Owned::Null),
            Self::Integer(integer) => ToSqlOutput::Owned(Owned::Integer(*integer)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

/// The path with its directory resolved. Where another user may write to the directory, a link in place of the new file
/// must not be followed; links above are the caller's choice.
fn without_links(path: &Path) -> PathBuf {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new(".")).canonicalize();
    match (directory, path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => path.to_owned(),
    }
}
