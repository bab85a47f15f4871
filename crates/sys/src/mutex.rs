// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mutex of the C library (`pthread_mutex_lock`), whose futex tells that it is one. That of Rust does not.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

/// A mutex that protects nothing but time.
#[derive(Debug)]
pub struct Mutex {
    // In a place of its own: it must not move while threads wait for it.
    raw: Box<UnsafeCell<libc::pthread_mutex_t>>,
}

// SAFETY: the functions of the C library may be called from all threads.
unsafe impl Send for Mutex {}
// SAFETY: as above.
unsafe impl Sync for Mutex {}

/// A mutex that is held by this thread until the guard is dropped.
#[derive(Debug)]
pub struct Guard<'a> {
    mutex: &'a Mutex,
    // Whoever locks it must unlock it: the guard stays in its thread.
    stays: PhantomData<*const ()>,
}

impl Default for Mutex {
    fn default() -> Self {
        Self { raw: Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)) }
    }
}

impl Mutex {
    /// Waits for it.
    pub fn lock(&self) -> Guard<'_> {
        // SAFETY: an initialised mutex at a fixed address, of the default kind: locking it does not fail.
        let failed = unsafe { libc::pthread_mutex_lock(self.raw.get()) };
        assert_eq!(failed, 0, "a mutex of the default kind can be locked");
        Guard { mutex: self, stays: PhantomData }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread has locked it, since guards do not leave their thread.
        unsafe { libc::pthread_mutex_unlock(self.mutex.raw.get()) };
    }
}

impl Drop for Mutex {
    fn drop(&mut self) {
        // SAFETY: nobody holds it or waits for it any more.
        unsafe { libc::pthread_mutex_destroy(self.raw.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_thread_at_a_time_has_it() {
        let (mutex, inside) = (Mutex::default(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _held = mutex.lock();
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
    }
}
