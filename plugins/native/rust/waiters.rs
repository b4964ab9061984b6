//! Threads whose puts wait for a sync, woken one after another.
//!
//! Threads that are woken together compete for the interpreter lock: each sleeps again, for that
//! lock, and a put costs several thread switches. So a thread wakes the next one when it waits for
//! its next put. If it does not return within `PATIENCE`, the others no longer depend on it: for
//! some syncs, each thread wakes the next one at once.
//!
//! Only one of them can run at a time. So the next thread is woken on the processor of the thread
//! that wakes it, which is about to sleep. That takes 1 us; waking an idle processor takes 10 us.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyBaseException, PyMemoryError};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

const RELAXED: Ordering = Ordering::Relaxed;
/// Longest wait for the return of the thread that was woken last.
const PATIENCE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 500_000 };
/// Largest number of syncs in which each thread wakes the next one at once.
const MOST_HASTY: u32 = 64;
/// A sleep ends now and then, for signals whose handlers run in this thread.
const LONGEST_SLEEP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };

struct Waiter {
    end: u64,
    deadline: Instant,
    answer: Mutex<Option<Py<PyAny>>>,
    /// Not 0 once the thread is to wake up.
    woken: AtomicU32,
    affinity: Affinity,
}

#[derive(Default)]
struct State {
    /// Waiters without an answer, in order of arrival.
    waiting: VecDeque<Arc<Waiter>>,
    /// Waiters with an answer whose threads still sleep.
    asleep: VecDeque<Arc<Waiter>>,
    /// Whether threads with an answer are being woken.
    are_waking: bool,
    /// Syncs for which each thread wakes the next one at once.
    hasty: u32,
    /// Number of times in succession that a thread did not return, as a power of two.
    failures: u32,
    is_crowded: bool,
}

#[pyclass(module = "lakelog_native", frozen)]
pub struct Waiters {
    state: Mutex<State>,
    timeout: Duration,
    joined: Py<PyAny>,
    /// Incremented for each thread that is woken.
    steps: AtomicU32,
    /// Identifiers of the threads that answer, and so must not wait themselves.
    own: [AtomicU64; 2],
}

#[pymethods]
impl Waiters {
    #[new]
    fn new(timeout_s: f64, joined: Py<PyAny>) -> Waiters {
        let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX);
        let (state, steps, own) = <(Mutex<State>, AtomicU32, [AtomicU64; 2])>::default();
        Waiters { state, timeout, joined, steps, own }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.joined)
    }

    /// Wait for the answer to a put; `None` unless several threads put at the same time, and for
    /// a put in a callback.
    ///
    /// # Errors
    /// The answer, if it is an error; the error of a signal's handler.
    fn wait(&self, py: Python<'_>, end: u64) -> PyResult<Option<Py<PyAny>>> {
        let here = unsafe { libc::pthread_self() } as u64;
        if !self.state().is_crowded || self.own.iter().any(|own| own.load(RELAXED) == here) {
            return Ok(None);
        }
        let waiter = Arc::new(Waiter {
            end,
            deadline: Instant::now() + self.timeout,
            answer: Mutex::default(),
            woken: AtomicU32::new(0),
            affinity: Affinity::of_thread(),
        });
        {
            let mut state = self.state();
            let count = state.waiting.len() + 1;
            let has_room =
                state.waiting.try_reserve(1).and_then(|()| state.asleep.try_reserve(count));
            has_room.map_err(|_| PyMemoryError::new_err(()))?;
            state.waiting.push_back(waiter.clone()); // there is room
        }
        let slept = self.joined.call1(py, (end,)).and_then(|_| self.sleep(py, &waiter));
        if let Err(error) = slept {
            self.leave(&waiter);
            return Err(error);
        }
        let answer = waiter.answer.lock().unwrap_or_else(|dead| dead.into_inner()).take();
        match answer {
            Some(error) if error.bind(py).is_instance_of::<PyBaseException>() => {
                Err(PyErr::from_value(error.into_bound(py)))
            }
            answer => Ok(answer),
        }
    }

    /// Set the threads that call `answer` and `answer_late`.
    fn set_own(&self, flusher: u64, watcher: u64) {
        self.own[0].store(flusher, RELAXED);
        self.own[1].store(watcher, RELAXED);
    }

    /// Answer the puts whose bytes end at or before `flushed`; return their number.
    fn answer(&self, py: Python<'_>, flushed: u64, answer: Py<PyAny>) -> usize {
        let mut state = self.state();
        let mut count = 0;
        while state.waiting.front().is_some_and(|first| first.end <= flushed) {
            let Some(first) = state.waiting.pop_front() else { break };
            set(&first, answer.clone_ref(py));
            state.asleep.push_back(first); // there is room
            count += 1;
        }
        state.hasty = state.hasty.saturating_sub(1);
        state.are_waking = count > 0;
        drop(state);
        self.step();
        count
    }

    /// Answer the puts that have waited too long, and wake them; return their number.
    fn answer_late(&self, py: Python<'_>, answer: Py<PyAny>) -> usize {
        let mut state = self.state();
        let (now, mut count) = (Instant::now(), 0);
        while state.waiting.front().is_some_and(|first| first.deadline <= now) {
            let Some(first) = state.waiting.pop_front() else { break };
            set(&first, answer.clone_ref(py));
            wake(&first);
            count += 1;
        }
        count
    }

    /// Answer and wake all puts, each with an answer of its own.
    fn answer_all(&self, make: &Bound<'_, PyAny>) -> PyResult<()> {
        loop {
            let Some(first) = self.state().waiting.pop_front() else { return Ok(()) };
            set(&first, make.call0()?.unbind());
            wake(&first);
        }
    }

    /// Wake all that have an answer.
    fn wake_all(&self) {
        while self.step() {}
    }

    /// Wait until all threads with an answer are awake; if one does not return, wake the next.
    fn oversee(&self, py: Python<'_>) {
        py.detach(|| loop {
            let steps = self.steps.load(Ordering::Acquire);
            if !self.state().are_waking {
                return;
            }
            futex(libc::FUTEX_WAIT, &self.steps, steps, &PATIENCE);
            if self.steps.load(Ordering::Acquire) == steps {
                self.state().be_hasty();
                self.step();
            }
        });
    }

    fn is_waiting(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// Seconds until the first put times out; `None` if no put waits.
    fn seconds_left(&self) -> Option<f64> {
        let state = self.state();
        let first = state.waiting.front()?;
        Some(first.deadline.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    /// Set whether several threads put at the same time, according to the last sync.
    fn set_crowded(&self, is_crowded: bool) {
        self.state().is_crowded = is_crowded;
    }
}

impl Waiters {
    /// The locked state; no code calls Python while it holds this lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|dead| dead.into_inner())
    }

    fn sleep(&self, py: Python<'_>, waiter: &Arc<Waiter>) -> PyResult<()> {
        loop {
            py.detach(|| {
                self.step();
                futex(libc::FUTEX_WAIT, &waiter.woken, 0, &LONGEST_SLEEP);
                if waiter.woken.load(Ordering::Acquire) != 0 && self.state().hasty > 0 {
                    self.step();
                }
            });
            if waiter.woken.load(Ordering::Acquire) != 0 {
                waiter.affinity.restore();
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// Wake the next thread; returns whether there was one.
    fn step(&self) -> bool {
        let mut state = self.state();
        let next = state.asleep.pop_front();
        let is_over = next.is_none() && std::mem::take(&mut state.are_waking);
        if is_over && state.hasty == 0 {
            state.failures = 0;
        }
        drop(state);
        self.steps.fetch_add(1, Ordering::AcqRel);
        if is_over {
            futex(libc::FUTEX_WAKE, &self.steps, 1, std::ptr::null());
        }
        if let Some(next) = &next {
            wake(next);
        }
        next.is_some()
    }

    /// Remove a waiter whose wait an exception has ended.
    fn leave(&self, waiter: &Arc<Waiter>) {
        let mut state = self.state();
        state.waiting.retain(|each| !Arc::ptr_eq(each, waiter));
        state.asleep.retain(|each| !Arc::ptr_eq(each, waiter));
        drop(state);
        if waiter.woken.load(Ordering::Acquire) != 0 {
            waiter.affinity.restore();
        }
        self.step();
    }
}

impl State {
    /// Note that the thread woken last has not returned: for some syncs, do not depend on returns.
    fn be_hasty(&mut self) {
        if self.hasty == 0 {
            self.failures = (2 * self.failures).clamp(1, MOST_HASTY);
        }
        self.hasty = self.failures;
    }
}

/// The processors on which a thread may run.
struct Affinity {
    thread: libc::pid_t,
    /// `None` if it must not be changed.
    processors: Option<libc::cpu_set_t>,
}

const CPU_SET_BYTES: usize = std::mem::size_of::<libc::cpu_set_t>();

impl Affinity {
    fn of_thread() -> Affinity {
        unsafe {
            let mut found: libc::cpu_set_t = std::mem::zeroed();
            let is_known = libc::sched_getaffinity(0, CPU_SET_BYTES, &mut found) == 0;
            let several = is_known && libc::CPU_COUNT(&found) > 1;
            Affinity { thread: libc::gettid(), processors: several.then_some(found) }
        }
    }

    /// Let the thread wake up on this processor; it must sleep, or be about to.
    fn pin_here(&self) {
        if let Some(processors) = &self.processors {
            unsafe {
                let here = libc::sched_getcpu() as usize;
                if libc::CPU_ISSET(here, processors) {
                    let mut only: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(here, &mut only);
                    libc::sched_setaffinity(self.thread, CPU_SET_BYTES, &only);
                }
            }
        }
    }

    /// Called by the thread itself, once it is awake. If its processors were taken from the process
    /// meanwhile, it may run on all that are left.
    fn restore(&self) {
        if let Some(processors) = &self.processors {
            unsafe {
                if libc::sched_setaffinity(0, CPU_SET_BYTES, processors) != 0 {
                    let mut all: libc::cpu_set_t = std::mem::zeroed();
                    (0..8 * CPU_SET_BYTES).for_each(|each| libc::CPU_SET(each, &mut all));
                    libc::sched_setaffinity(0, CPU_SET_BYTES, &all);
                }
            }
        }
    }
}

fn set(waiter: &Waiter, answer: Py<PyAny>) {
    *waiter.answer.lock().unwrap_or_else(|dead| dead.into_inner()) = Some(answer);
}

fn wake(waiter: &Waiter) {
    waiter.affinity.pin_here();
    waiter.woken.store(1, Ordering::Release);
    futex(libc::FUTEX_WAKE, &waiter.woken, 1, std::ptr::null());
}

fn futex(what: i32, word: &AtomicU32, value: u32, timeout: *const libc::timespec) {
    let what = what | libc::FUTEX_PRIVATE_FLAG;
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), what, value, timeout) };
}
