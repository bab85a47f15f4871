// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs work on a thread that is given up and replaced if a read does not end.
//!
//! The thread works on one item after the other. If it hangs, another thread starts the same item again and leaves the
//! file out.

use super::files::{Files, SharedState};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often it is checked whether the worker hangs.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a worker has done.
#[derive(Debug)]
struct WorkerProgress<T> {
    results: Vec<T>,
    /// Whether the worker ended, normally or by a panic.
    ended: bool,
}

/// Marks the worker as ended when it is dropped, also in a panic.
struct EndedOnDrop<T>(Arc<(Mutex<WorkerProgress<T>>, Condvar)>);

impl<T> Drop for EndedOnDrop<T> {
    fn drop(&mut self) {
        let (done, changed) = &*self.0;
        done.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        changed.notify_all();
    }
}

/// Does `work` for `0..count`, in order. `None` stands for work that ended in a panic.
pub(super) fn each<T: Send + 'static>(
    shared: &Arc<SharedState>,
    count: usize,
    work: impl Fn(usize, &mut Files) -> T + Send + Sync + 'static,
) -> Vec<Option<T>> {
    let work = Arc::new(work);
    let mut results: Vec<Option<T>> = Vec::new();
    while results.len() < count {
        let done = Arc::new((
            Mutex::new(WorkerProgress { results: Vec::new(), ended: false }),
            Condvar::new(),
        ));
        let (from, worker) = (results.len(), shared.new_worker());
        let (its_work, its_shared, ended) =
            (Arc::clone(&work), Arc::clone(shared), EndedOnDrop(Arc::clone(&done)));
        let spawned = thread::Builder::new().name("deburr-read".into()).spawn(move || {
            let mut files = Files::new(its_shared, worker);
            for index in from..count {
                files.begin_entry();
                let result = its_work(index, &mut files);
                ended.0.0.lock().unwrap_or_else(PoisonError::into_inner).results.push(result);
            }
        });
        let hung = spawned.is_ok() && wait(shared, &done);
        let mut done = done.0.lock().unwrap_or_else(PoisonError::into_inner);
        results.extend(std::mem::take(&mut done.results).into_iter().map(Some));
        if !hung && results.len() < count {
            results.push(None);
        }
    }
    results
}

/// Waits until the worker ends or hangs. Returns whether it hangs.
fn wait<T>(shared: &SharedState, done: &(Mutex<WorkerProgress<T>>, Condvar)) -> bool {
    let (done, changed) = done;
    let mut state = done.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if state.ended {
            return false;
        }
        state = changed.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        if !state.ended && shared.give_up() {
            return true;
        }
    }
}
