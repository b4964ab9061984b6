//! The shared page, and the lock on a byte of the file `lock`: as `lakelog.files.pages.shared_page`,
//! `lakelog.files.shared.append_section` and `lakelog.files.shared.byte_lock` have them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// As long as this waits for another append; Python then waits on, and says when it takes too long.
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// No sleep is longer: a holder that dies wakes nobody.
const LONGEST_SLEEP: Duration = Duration::from_millis(2);
const TRIES: usize = 5;

/// Where the words of the page stand, as Python says.
pub struct Places {
    pub appender_pid: usize,
    pub appender_since: usize,
    pub several: usize,
    pub appended: usize,
    pub last_timestamp: usize,
    pub intent_start: usize,
    pub intent_end: usize,
    pub table_generation: usize,
    pub failed: usize,
    pub paused: usize,
    pub flags: usize,
    pub durable: u64,
    append_lock_at: usize,
}

impl Places {
    pub fn of(layout: &Bound<'_, PyAny>) -> PyResult<Places> {
        let at = |name| layout.getattr(name)?.extract::<usize>();
        Ok(Places {
            appender_pid: at("APPENDER_PID")?,
            appender_since: at("APPENDER_SINCE")?,
            several: at("SEVERAL")?,
            appended: at("APPENDED")?,
            last_timestamp: at("LAST_TIMESTAMP")?,
            intent_start: at("INTENT_START")?,
            intent_end: at("INTENT_END")?,
            table_generation: at("TABLE_GENERATION")?,
            failed: at("FAILED")?,
            paused: at("PAUSED")?,
            flags: at("FLAGS")?,
            durable: layout.getattr("DURABLE")?.extract()?,
            append_lock_at: at("APPEND_LOCK_AT")?,
        })
    }
}

/// Memory that other processes change at any time; words of 8 bytes, each loaded and stored at once.
pub struct Words {
    memory: PyBuffer<u8>,
}

impl Words {
    /// # Errors
    /// Where `memory` cannot be written, or is not aligned.
    pub fn of(memory: &Bound<'_, PyAny>) -> PyResult<Words> {
        let memory = PyBuffer::<u8>::get(memory)?;
        if memory.readonly() || memory.buf_ptr() as usize % 8 != 0 {
            return Err(PyValueError::new_err("words must be aligned, and writable"));
        }
        Ok(Words { memory })
    }

    pub fn count(&self) -> usize {
        self.memory.len_bytes() / 8
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.count());
        // Inside of the buffer, which is aligned, writable, and held for as long as this lives.
        unsafe { AtomicU64::from_ptr((self.memory.buf_ptr() as *mut u64).add(at)) }
    }

    #[inline(always)]
    pub fn get(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    #[inline(always)]
    pub fn set(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    #[inline(always)]
    fn half(&self, byte: usize) -> &AtomicU32 {
        assert!(byte % 4 == 0 && byte + 4 <= self.memory.len_bytes());
        unsafe { AtomicU32::from_ptr((self.memory.buf_ptr() as *mut u8).add(byte).cast()) }
    }
}

/// The byte of `lock` that whoever appends has locked; see `ByteLock`.
pub struct AppendLock {
    descriptor: i32,
    byte: i64,
    waited_at: usize,
}

/// What became of the wait for the lock.
pub enum Taken {
    Yes,
    /// Not in time, or the system gave an error: Python asks again, and says which.
    No,
}

impl AppendLock {
    pub fn new(descriptor: i32, byte: i64, places: &Places) -> AppendLock {
        AppendLock { descriptor, byte, waited_at: places.append_lock_at }
    }

    #[inline(always)]
    fn set(&self, kind: i32) -> bool {
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = self.byte;
        lock.l_len = 1;
        unsafe { libc::fcntl(self.descriptor, libc::F_OFD_SETLK, &lock) == 0 }
    }

    fn take(&self) -> bool {
        self.set(libc::F_WRLCK)
    }

    /// Wait for it, for a while.
    ///
    /// # Errors
    /// What the handler of a signal raises; the lock is not held then.
    #[inline(always)]
    pub fn acquire(&self, py: Python<'_>, words: &Words) -> PyResult<Taken> {
        for _ in 0..TRIES {
            if self.take() {
                return Ok(Taken::Yes);
            }
        }
        self.wait(py, words)
    }

    #[cold]
    fn wait(&self, py: Python<'_>, words: &Words) -> PyResult<Taken> {
        let (waited, sequence) = (words.half(self.waited_at), words.half(self.waited_at + 4));
        let begun = Instant::now();
        loop {
            let seen = sequence.load(Ordering::SeqCst);
            waited.store(1, Ordering::SeqCst);
            if self.take() {
                return Ok(Taken::Yes);
            }
            if begun.elapsed() >= LONGEST_WAIT {
                return Ok(Taken::No);
            }
            py.detach(|| sleep(sequence, seen));
            py.check_signals()?;
            if self.take() {
                waited.store(1, Ordering::SeqCst); // whoever woke us took it for all
                return Ok(Taken::Yes);
            }
        }
    }

    /// Let it go, and wake one who waits.
    #[inline(always)]
    pub fn release(&self, words: &Words) {
        self.set(libc::F_UNLCK);
        let waited = words.half(self.waited_at);
        if waited.load(Ordering::SeqCst) != 0 {
            let sequence = words.half(self.waited_at + 4);
            waited.store(0, Ordering::SeqCst);
            sequence.fetch_add(1, Ordering::SeqCst);
            unsafe { libc::syscall(libc::SYS_futex, sequence.as_ptr(), libc::FUTEX_WAKE, 1) };
        }
    }
}

/// Sleep while the word is `seen`. Without futex it returns at once, and who waits asks again.
fn sleep(word: &AtomicU32, seen: u32) {
    let longest = libc::timespec { tv_sec: 0, tv_nsec: LONGEST_SLEEP.as_nanos() as _ };
    let result =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &longest) };
    let refused = [Some(libc::ENOSYS), Some(libc::EPERM), Some(libc::EACCES)];
    if result != 0 && refused.contains(&std::io::Error::last_os_error().raw_os_error()) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

pub fn monotonic_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
