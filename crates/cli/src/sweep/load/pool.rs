// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connection pool: one connection for each request in flight, up to a limit. The most recently used one is reused
//! first, so that a service under light load sees few connections.

use super::client::{Connection, Target};
use std::cell::{Cell, RefCell};
use tokio::sync::Semaphore;

pub(super) struct Pool {
    target: Target,
    idle: RefCell<Vec<Connection>>,
    permits: Semaphore,
    open: Cell<u32>,
    most_open: Cell<u32>,
    exhausted: Cell<bool>,
}

impl Pool {
    pub(super) fn new(target: Target, max_connections: u32) -> Self {
        Self {
            target,
            idle: RefCell::default(),
            permits: Semaphore::new(max_connections as usize),
            open: Cell::default(),
            most_open: Cell::default(),
            exhausted: Cell::default(),
        }
    }

    /// Makes one request; waits for a connection if all are in use. An error is the failure's kind, in words.
    pub(super) async fn request(&self) -> Result<(), String> {
        if self.permits.available_permits() == 0 {
            self.exhausted.set(true);
        }
        let Ok(_permit) = self.permits.acquire().await else { return Err("shut down".into()) };
        loop {
            let reused = self.idle.borrow_mut().pop();
            let was_reused = reused.is_some();
            let mut connection = match reused {
                Some(connection) if connection.is_closed() => {
                    self.closed();
                    continue;
                }
                Some(connection) => connection,
                None => self.open().await?,
            };
            let result = connection.request(&self.target).await;
            match result {
                Ok(status) => {
                    self.idle.borrow_mut().push(connection);
                    return status;
                }
                Err(broken) => {
                    drop(connection);
                    self.closed();
                    // A server may close an idle connection just as it is reused. Retry on another one before
                    // counting a failure.
                    if !(was_reused && broken.before_answer) {
                        return Err(broken.why);
                    }
                }
            }
        }
    }

    async fn open(&self) -> Result<Connection, String> {
        let connection = self.target.connect().await?;
        self.open.set(self.open.get() + 1);
        self.most_open.set(self.most_open.get().max(self.open.get()));
        Ok(connection)
    }

    fn closed(&self) {
        self.open.set(self.open.get().saturating_sub(1));
    }

    /// Greatest number of connections open at a time.
    pub(super) fn most_open(&self) -> u32 {
        self.most_open.get()
    }

    /// Whether a request had to wait because all connections were in use.
    pub(super) fn was_exhausted(&self) -> bool {
        self.exhausted.get()
    }
}
