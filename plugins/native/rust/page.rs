//! The shared page, and the lock of the append section: as `lakelog.processes.shared_page`,
//! `lakelog.processes.append_section` and `lakelog.processes.locks` have them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Longest wait for another append; Python then continues to wait, and raises the timeout error.
pub const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// Longest sleep: a holder that dies wakes no other process.
const LONGEST_SLEEP: Duration = Duration::from_millis(2);
/// Some microseconds.
const SPINS: usize = 100;
const TRIES: usize = 5;
/// Leaves 40 bits.
const NUMBER_SHIFT: u32 = 24;

/// The positions of words in the page, given by Python.
pub struct WordPositions {
    pub appender_pid: usize,
    pub appender_since: usize,
    pub several: usize,
    pub append_alone: usize,
    pub appended: usize,
    pub last_timestamp: usize,
    pub intent_start: usize,
    pub intent_end: usize,
    pub table_generation: usize,
    pub failed: usize,
    pub paused: usize,
    pub flags: usize,
    pub durable: u64,
}

impl WordPositions {
    pub fn of(layout: &Bound<'_, PyAny>) -> PyResult<WordPositions> {
        let at = |name| layout.getattr(name)?.extract::<usize>();
        Ok(WordPositions {
            appender_pid: at("APPENDER_PID")?,
            appender_since: at("APPENDER_SINCE")?,
            several: at("SEVERAL")?,
            append_alone: at("APPEND_ALONE")?,
            appended: at("APPENDED")?,
            last_timestamp: at("LAST_TIMESTAMP")?,
            intent_start: at("INTENT_START")?,
            intent_end: at("INTENT_END")?,
            table_generation: at("TABLE_GENERATION")?,
            failed: at("FAILED")?,
            paused: at("PAUSED")?,
            flags: at("FLAGS")?,
            durable: layout.getattr("DURABLE")?.extract()?,
        })
    }
}

/// Memory shared with other processes, as words of 8 bytes with atomic loads and stores.
pub struct Words {
    memory: PyBuffer<u8>,
}

impl Words {
    /// # Errors
    /// If `memory` is read-only or not aligned.
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

/// The lock of the append section by a word that is swapped: see
/// `lakelog.processes.locks`, which also describes the part of plain Python. A killed holder
/// is found by the byte that it kept locked.
#[pyclass(module = "lakelog_native", frozen)]
pub struct AppendLock {
    words: Words,
    descriptor: i32,
    byte: i64,
    life_at: i64,
    #[pyo3(get)]
    pub number: u64,
    waited_at: usize,
    holder: usize,
    plain: usize,
}

#[pymethods]
impl AppendLock {
    /// # Errors
    /// If no byte can be locked.
    #[new]
    fn new(
        descriptor: i32,
        byte: i64,
        memory: &Bound<'_, PyAny>,
        layout: &Bound<'_, PyAny>,
    ) -> PyResult<AppendLock> {
        let at = |name| layout.getattr(name)?.extract::<usize>();
        let mut lock = AppendLock {
            words: Words::of(memory)?,
            descriptor,
            byte,
            life_at: layout.getattr("LIFE_AT")?.extract()?,
            number: 0,
            waited_at: at("APPEND_LOCK_AT")?,
            holder: at("APPEND_HOLDER")?,
            plain: at("APPEND_PLAIN")?,
        };
        for _ in 0..TRIES {
            lock.number = random()? >> NUMBER_SHIFT | 1;
            if lock.set(libc::F_WRLCK, lock.life_at + lock.number as i64) {
                return Ok(lock);
            }
        }
        Err(std::io::Error::last_os_error().into())
    }

    /// Take the lock without waiting; returns 0 if it was taken, as `append_lock` of plain Python.
    #[pyo3(name = "take")]
    fn take_it(&self) -> u64 {
        !self.take() as u64
    }

    #[pyo3(name = "acquire")]
    fn acquire_in(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        self.acquire(py, Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX))
    }

    /// Release the lock if it is held, and wake a waiter.
    #[inline(always)]
    pub fn release(&self) {
        self.swap(self.number, 0);
        let waited = self.words.half(self.waited_at);
        if waited.load(Ordering::SeqCst) != 0 {
            let sequence = self.words.half(self.waited_at + 4);
            waited.store(0, Ordering::SeqCst);
            sequence.fetch_add(1, Ordering::SeqCst);
            unsafe { libc::syscall(libc::SYS_futex, sequence.as_ptr(), libc::FUTEX_WAKE, 1) };
        }
    }
}

impl AppendLock {
    #[inline(always)]
    fn swap(&self, from: u64, to: u64) -> bool {
        let word = self.words.word(self.holder);
        word.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    #[inline(always)]
    fn plain(&self) -> u64 {
        self.words.word(self.plain).load(Ordering::SeqCst)
    }

    /// Take the lock without waiting; returns whether it was free.
    #[inline(always)]
    fn take(&self) -> bool {
        self.plain() == 0 && self.words.get(self.holder) == 0 && self.take_from(0)
    }

    /// Swap first, then check: plain Python stores first, then checks, and continues if both
    /// happened. It may remove the number of a dead process after this one's was swapped in, and
    /// have left before this check: so the number is checked last.
    #[inline(always)]
    fn take_from(&self, holder: u64) -> bool {
        if !self.swap(holder, self.number) {
            return false;
        }
        if self.plain() != 0 || self.words.word(self.holder).load(Ordering::SeqCst) != self.number {
            self.release();
            return false;
        }
        true
    }

    /// Take the lock, waiting for `most` at most; returns whether it was taken.
    ///
    /// # Errors
    /// The error of a signal handler; the lock is not held then.
    #[inline(always)]
    pub fn acquire(&self, py: Python<'_>, most: Duration) -> PyResult<bool> {
        // Spin briefly: the section is shorter than a sleep.
        for _ in 0..SPINS {
            if self.take() {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        self.wait(py, most)
    }

    #[cold]
    fn wait(&self, py: Python<'_>, most: Duration) -> PyResult<bool> {
        let words = &self.words;
        let (waited, sequence) = (words.half(self.waited_at), words.half(self.waited_at + 4));
        let begun = Instant::now();
        loop {
            let seen = sequence.load(Ordering::SeqCst);
            waited.store(1, Ordering::SeqCst);
            let before = (words.get(self.holder), self.plain());
            if self.take() {
                return Ok(true);
            }
            let is_late = begun.elapsed() >= most;
            if !is_late {
                py.detach(|| sleep(sequence, seen));
                py.check_signals()?;
            }
            // A dead holder is looked for even when the time is over: it delays nobody.
            if self.take() || self.take_from_dead(before) || self.take() {
                waited.store(1, Ordering::SeqCst); // the waking release cleared it for all
                return Ok(true);
            }
            if is_late {
                return Ok(false);
            }
        }
    }

    /// Take the lock from a dead holder, if the numbers seen before are unchanged.
    fn take_from_dead(&self, before: (u64, u64)) -> bool {
        let (holder, plain) = before;
        if plain != 0 && self.plain() == plain && self.set(libc::F_WRLCK, self.byte) {
            self.words.set(self.plain, 0); // only the holder of the byte changes this word
            self.set(libc::F_UNLCK, self.byte);
        }
        holder != 0
            && self.words.get(self.holder) == holder
            && self.is_dead(holder)
            && self.take_from(holder)
    }

    fn is_dead(&self, number: u64) -> bool {
        let mut lock = flock(libc::F_WRLCK, self.life_at + number as i64);
        let is_read = unsafe { libc::fcntl(self.descriptor, libc::F_OFD_GETLK, &mut lock) == 0 };
        is_read && lock.l_type == libc::F_UNLCK as libc::c_short
    }

    fn set(&self, kind: i32, byte: i64) -> bool {
        unsafe { libc::fcntl(self.descriptor, libc::F_OFD_SETLK, &flock(kind, byte)) == 0 }
    }
}

/// Random bits of the system, so that processes that were forked from one draw different ones.
fn random() -> PyResult<u64> {
    let mut bits = [0u8; 8];
    // SAFETY: the system writes at most the 8 bytes that it is given.
    let drawn = unsafe { libc::getrandom(bits.as_mut_ptr().cast(), bits.len(), 0) };
    if drawn == bits.len() as isize {
        return Ok(u64::from_ne_bytes(bits));
    }
    Err(std::io::Error::last_os_error().into())
}

fn flock(kind: i32, byte: i64) -> libc::flock {
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte;
    lock.l_len = 1;
    lock
}

/// Sleep while the word is `seen`. Without futex it returns at once, and the caller retries.
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
