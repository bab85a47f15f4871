// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a recording while the session runs.

use super::column::Cell;
use super::place::{self, CreateError};
use super::table::{self, OnDemand};
use super::{reason, records, uri};
use deburr_core::recording::Record;
use rusqlite::{Connection, OpenFlags, params_from_iter};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

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
    /// The file itself. Dropped last: closing it releases the locks that SQLite holds on it.
    _file: File,
}

impl Writer {
    /// Creates an empty recording. An existing file is replaced only with `force`.
    pub(crate) fn create(path: &Path, force: bool) -> Result<Self, CreateError> {
        let file = place::claim(path, force)?;
        if !place::is_at(&file, path) {
            return Err(place::in_use(path));
        }
        let connection = Self::set_up(path);
        // From here on SQLite holds a lock that `claim` of other processes respects. Before, another process may have
        // replaced the file: then the file at the path is its own.
        if !place::is_at(&file, path) {
            return Err(place::in_use(path));
        }
        let connection = connection.map_err(|error| {
            place::remove(path);
            let (shown, reason) = (path.display(), reason(&error));
            CreateError(format!("cannot write a recording to `{shown}`: {reason}"))
        })?;
        Ok(Self {
            connection,
            path: path.to_owned(),
            tables: table::all()
                .map(|table| (table.name, (table.insert(), table.on_demand())))
                .collect(),
            seq: 0,
            tick: 0,
            tick_range: None,
            in_transaction: false,
            added: Vec::new(),
            _file: file,
        })
    }

    fn set_up(path: &Path) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(uri(&without_links(path), "mode=rw"), flags)?;
        connection.set_prepared_statement_cache_capacity(table::all().count() + 4);
        // The schema goes straight into the file, so that the file is a recording from its first moment
        // even if it is parted from its log.
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.pragma_update(None, "application_id", table::APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", table::VERSION)?;
        connection.execute_batch(&format!("BEGIN; {} COMMIT;", table::create()))?;
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

    /// Ends the recording after a failed write: drops what was not committed, and adds `last` to the rest, if there is
    /// room for it.
    pub(crate) fn abandon(mut self, last: &Record) {
        // SQLite rolls some failures back by itself, so an error here does not matter.
        let _ = self.connection.execute_batch("ROLLBACK");
        self.in_transaction = false;
        self.tick_range = None;
        let _ = self.push(last).and_then(|()| self.commit());
    }

    /// Ends the recording: a single file is left, without SQLite's companion files.
    pub(crate) fn finish(mut self) -> rusqlite::Result<()> {
        self.commit()?;
        self.connection.flush_prepared_statement_cache();
        // Fails while another process reads the file; then the log stays, and the recording is complete nevertheless.
        let mode = "PRAGMA journal_mode=DELETE";
        match self.connection.query_row(mode, [], |row| row.get::<_, String>(0)) {
            Err(error) if error.sqlite_error_code() != Some(rusqlite::ErrorCode::DatabaseBusy) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Simulates a full disk once the file has that many pages.
    #[cfg(test)]
    pub(super) fn limit_to_pages(&self, pages: u32) {
        self.connection.pragma_update(None, "max_page_count", pages).unwrap();
    }

    /// Removes a recording that holds nothing yet.
    pub(crate) fn discard(self) {
        let path = self.path.clone();
        drop(self);
        place::remove(&path);
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
