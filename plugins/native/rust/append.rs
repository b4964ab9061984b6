//! Appends one message or a batch, as `Appender.put` and `CommitLog.append` do, with the same
//! section, page and table of queue ends, beside processes and threads that append in plain Python.
//!
//! Unusual cases are left to Python before a byte is written: a roll, more blocks, a new queue,
//! a repair, a refusal.

use std::collections::HashMap;
use std::sync::atomic::{compiler_fence, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::batch::{Batch, Shared};
use crate::memory;
use crate::message::{self, now_ms, Held, HostPair, Messages, Read, Topic, NO_QUEUE};
use crate::names;
use crate::page::{monotonic_ms, AppendLock, WordPositions, Words, LONGEST_WAIT};
use crate::record::{self, Fields, Hosts, Properties, PREPARED};
use crate::window::Window;

/// Longer records are left to Python, where copying dominates the cost.
const MOST_BYTES: usize = 16 << 10;
const HIDDEN_STEP_MS: i64 = 1_000;
const MOST_TOPICS: usize = 4096;

/// A topic, and the places of its queue ends in the table.
struct Known {
    topic: Topic,
    ends: Vec<usize>,
}

#[derive(Default)]
struct State {
    window: Window,
    table: Option<(u64, Words)>,
    topics: HashMap<Box<str>, usize>,
    known: Vec<Known>,
    last: usize,
    /// The hosts of the last message that named one.
    hosts: Option<Arc<HostPair>>,
    record: Vec<u8>,
}

#[pyclass(module = "lakelog_native", frozen)]
pub struct Putter {
    shared: Arc<Shared>,
    messages: Messages,
    places: WordPositions,
    words: Words,
    lock: Py<AppendLock>,
    is_durable: bool,
    pid: u64,
    state: Mutex<State>,
    section: Py<PyAny>,
    take: Py<PyAny>,
    at_once: Py<PyTuple>,
    release: Py<PyAny>,
    is_mine: Py<PyAny>,
    health: Py<PyAny>,
    segments: Py<PyAny>,
    table: Py<PyAny>,
    positions: Py<PyAny>,
    failed: Py<PyAny>,
    choose: Py<PyAny>,
    topic_block: Py<PyAny>,
    placed: Py<PyAny>,
}

/// The result of an append.
struct Done {
    queue_offset: i64,
    place: i64,
    size: i64,
    now: i64,
}

/// The result of a put; nothing was done if there is none.
enum Put {
    Done(Done),
    /// Nothing was done except the choice of a queue; its number.
    Chosen(i32),
}

#[pymethods]
impl Putter {
    #[new]
    fn new(
        encoder: &Bound<'_, PyAny>,
        classes: &Bound<'_, PyAny>,
        log: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let places = WordPositions::of(&log.getattr("layout")?)?;
        let words = Words::of(&log.getattr("memory")?)?;
        let section = log.getattr("section")?;
        let local = section.getattr("local")?;
        Ok(Putter {
            shared: Arc::new(Shared::of(encoder, classes)?),
            messages: Messages::of(encoder, classes)?,
            is_durable: words.get(places.flags) & places.durable != 0,
            places,
            words,
            lock: log.getattr("lock")?.cast::<AppendLock>()?.clone().unbind(),
            pid: std::process::id() as u64,
            state: Mutex::default(),
            take: local.getattr("take")?.unbind(),
            at_once: (false,).into_pyobject(log.py())?.unbind(), // of bounded length
            release: local.getattr("release")?.unbind(),
            is_mine: local.getattr("is_mine")?.unbind(),
            section: section.unbind(),
            health: log.getattr("health")?.unbind(),
            segments: log.getattr("segments")?.unbind(),
            table: log.getattr("table")?.unbind(),
            positions: log.getattr("positions")?.unbind(),
            failed: log.getattr("not_written")?.unbind(),
            choose: encoder.getattr("queues")?.getattr("choose")?.unbind(),
            topic_block: classes.getattr("topic_block")?.unbind(),
            placed: classes.getattr("PUT_OK")?.unbind(),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for object in [
            &self.section,
            &self.take,
            &self.release,
            &self.is_mine,
            &self.health,
            &self.segments,
            &self.table,
            &self.positions,
            &self.failed,
            &self.choose,
            &self.topic_block,
        ] {
            visit.call(object)?;
        }
        self.messages.unusual.visit(&visit)
    }

    /// Append `message`, without waiting for durability.
    ///
    /// Returns its result; `None` if nothing was done and Python must put it; or the number of
    /// the queue chosen for it, if Python must put it there.
    fn put(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let Ok(state) = self.state.try_lock() else {
            return Ok(None); // a signal handler puts while another put is under way
        };
        let Some(mut read) = self.messages.read(message, now_ms()) else {
            return Ok(None);
        };
        self.put_read(py, state, &mut read)
    }

    /// Append an encoded batch, without waiting for durability; the offset behind it.
    ///
    /// `None` if nothing was done and Python must append it.
    fn append_batch(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
        let Ok(batch) = batch.cast_exact::<Batch>() else {
            return Ok(None);
        };
        let (Ok(mut batch), Ok(mut state)) = (batch.try_borrow_mut(), self.state.try_lock()) else {
            return Ok(None);
        };
        let state = &mut *state;
        for queue in &batch.queues {
            if self.topic(py, state, &queue.name(py)?)?.is_none() {
                return Ok(None);
            }
        }
        let size = batch.bytes(py).len() as i64;
        let end = self.in_section(py, state, size, |state, position| {
            self.write_batch(py, state, &mut batch, position)
        })?;
        if end.is_some() && !self.is_durable {
            self.moved(py)?;
        }
        Ok(end)
    }

    /// A function that puts messages of one topic from body and keys; `None` if Python must put
    /// them.
    fn bound(
        slf: Bound<'_, Self>,
        topic: &Bound<'_, PyAny>,
        tags: Bound<'_, PyAny>,
        queue_id: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let py = slf.py();
        let Ok(topic) = topic.cast_exact::<PyString>() else {
            return Ok(None);
        };
        let queue = match queue_id.is_none() {
            true => Some(NO_QUEUE),
            false => unsafe { message::queue_id(queue_id.as_ptr()) },
        };
        let (Some(queue), Some(_)) = (queue, unsafe { message::text(tags.as_ptr()) }) else {
            return Ok(None);
        };
        let (topic, tags) = (topic.clone().unbind(), tags.unbind());
        let putter = slf.unbind();
        let made = BoundPutter { putter, topic, tags, queue };
        Ok(Some(Bound::new(py, made)?.getattr("put")?.unbind()))
    }
}

/// Puts messages of one topic.
#[pyclass(module = "lakelog_native", frozen)]
pub struct BoundPutter {
    putter: Py<Putter>,
    topic: Py<PyString>,
    tags: Py<PyAny>,
    queue: i32,
}

#[pymethods]
impl BoundPutter {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.putter)
    }

    /// As `Putter.put`.
    fn put(
        &self,
        py: Python<'_>,
        body: &Bound<'_, PyAny>,
        keys: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let putter = self.putter.get();
        let Ok(state) = putter.state.try_lock() else {
            return Ok(None);
        };
        let tags = self.tags.bind(py);
        // The caller holds body and keys, and this holds the tags.
        let texts = unsafe { (message::text(tags.as_ptr()), message::text(keys.as_ptr())) };
        let Some((bytes, buffer)) = (unsafe { message::body_of(body) }) else {
            return Ok(None);
        };
        let mut held = Held { body: buffer, ..Held::default() };
        let properties = match texts {
            (Some(tags), Some(keys)) => Properties::Plain { tags, keys },
            _ => {
                let none = py.None().into_bound(py);
                let Some(made) = putter.messages.unusual.properties(py, tags, keys, &none) else {
                    return Ok(None);
                };
                let text = unsafe { message::held(made.as_bytes()) };
                held.properties = Some(made);
                Properties::Encoded(text)
            }
        };
        let fields = Fields {
            body: bytes,
            properties,
            queue: self.queue,
            flag: 0,
            sys_flag: 0,
            born: now_ms(),
            reconsumed: 0,
            prepared: 0,
        };
        let topic = self.topic.bind(py).clone();
        let mut read = Read { topic, fields, wait: true, hosts: None, held };
        putter.put_read(py, state, &mut read)
    }
}

impl Putter {
    /// Append, and make the result.
    #[inline(always)]
    fn put_read(
        &self,
        py: Python<'_>,
        mut state: MutexGuard<'_, State>,
        read: &mut Read<'_>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let pair = match &read.hosts {
            None => self.shared.own.clone(),
            Some(pair) => match state.hosts.as_ref().filter(|last| last.is_of(pair)) {
                Some(last) => last.clone(),
                None => state.hosts.insert(Arc::new(HostPair::of(pair)?)).clone(), // of bounded length
            },
        };
        let put = self.append(py, &mut state, read, &pair)?;
        drop(state);
        match put {
            None => Ok(None),
            Some(Put::Chosen(queue)) => Ok(Some(queue.into_pyobject(py)?.into_any().unbind())), // of bounded length
            Some(Put::Done(done)) => {
                if !self.is_durable {
                    self.moved(py)?;
                }
                let numbers = [done.queue_offset, done.place, done.size, done.now];
                let status = self.placed.bind(py);
                let queue = read.fields.queue;
                let (topic, host) = (read.topic.as_ptr(), &pair.store_host);
                let made = self.shared.result(py, status, topic, queue, numbers, host)?;
                Ok(Some(made))
            }
        }
    }

    /// Wake waiters for a position.
    #[inline(always)]
    fn moved(&self, py: Python<'_>) -> PyResult<()> {
        let positions = self.positions.bind(py);
        let sleeps = !positions.getattr(names::SLEEPER.get(py))?.is_none();
        if sleeps || positions.getattr(names::ASKED.get(py))?.get_item(0)?.is_truthy()? {
            let name = names::MOVED.get(py);
            if let Err(error) = positions.call_method0(name) {
                positions.call_method0(name)?; // a signal handler raised, maybe before the wake
                return Err(error);
            }
        }
        Ok(())
    }

    /// Encode, then append in the section.
    fn append(
        &self,
        py: Python<'_>,
        state: &mut State,
        read: &mut Read<'_>,
        pair: &HostPair,
    ) -> PyResult<Option<Put>> {
        let Some(topic) = self.topic(py, state, &read.topic)? else {
            return Ok(None);
        };
        let hosts = &pair.hosts;
        let of = &state.known[topic].topic;
        let (Some(size), Some(flags)) =
            (self.shared.size(read, hosts, of), read.fields.flags(hosts))
        else {
            return Ok(None);
        };
        if size >= MOST_BYTES {
            return Ok(None);
        }
        if memory::resize(&mut state.record, size).is_none() {
            return Ok(None);
        }
        let (magic, sealed) = (of.magic, self.shared.sealed);
        record::write(&mut state.record, &read.fields, flags, hosts, magic, &of.block, sealed);
        self.in_section(py, state, size as i64, |state, position| {
            self.write_one(py, state, read, hosts, topic, flags & PREPARED == 0, position)
        })
    }

    #[inline(always)]
    fn topic(
        &self,
        py: Python<'_>,
        state: &mut State,
        name: &Bound<'_, PyString>,
    ) -> PyResult<Option<usize>> {
        if let Some(last) = state.known.get(state.last) {
            if last.topic.name.as_ptr() == name.as_ptr() {
                return Ok(Some(state.last));
            }
        }
        let Ok(text) = name.to_str() else {
            return Ok(None);
        };
        if let Some(&at) = state.topics.get(text) {
            state.known[at].topic.name = name.clone().unbind();
            state.last = at;
            return Ok(Some(at));
        }
        let Some(topic) = Topic::of(name, self.topic_block.bind(py))? else {
            return Ok(None);
        };
        if state.known.len() >= MOST_TOPICS {
            state.known.clear();
            state.topics.clear();
        }
        state.last = state.known.len();
        if state.topics.try_reserve(1).is_err() {
            return Ok(None);
        }
        let added = memory::push(&mut state.known, Known { topic, ends: Vec::new() });
        Ok(added.map(|()| {
            state.topics.insert(text.into(), state.last); // there is room
            state.last
        }))
    }

    /// Call `work` with the end of the log in the section, if `size` bytes fit there.
    #[inline(always)]
    fn in_section<T>(
        &self,
        py: Python<'_>,
        state: &mut State,
        size: i64,
        work: impl FnOnce(&mut State, i64) -> PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        if self.is_mine.bind(py).call0()?.is_truthy()?
            || !self.take.bind(py).call1(self.at_once.bind(py))?.is_truthy()?
        {
            return Ok(None);
        }
        let done = self.alone(py, state, size, work);
        self.release.bind(py).call0()?;
        done
    }

    /// As `in_section`, with the section taken: its local lock excludes other threads of this
    /// process.
    #[inline(always)]
    fn alone<T>(
        &self,
        py: Python<'_>,
        state: &mut State,
        size: i64,
        work: impl FnOnce(&mut State, i64) -> PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        let (words, at) = (&self.words, &self.places);
        if !self.health.bind(py).getattr(names::REFUSAL.get(py))?.is_none() {
            return Ok(None);
        }
        // Held to the end: calls below may run Python code, and the window's memory must stay.
        let Some(_window) = self.window(py, state)? else {
            return Ok(None);
        };
        if !self.is_durable {
            state.window.warm(size);
        }
        let (section, lock) = (self.section.bind(py), self.lock.get());
        let mut is_shared = words.get(at.several) != 0;
        if !is_shared {
            // A process that joins has this thread execute a barrier between the two steps.
            words.set(at.append_alone, lock.number);
            compiler_fence(Ordering::SeqCst);
            is_shared = words.get(at.several) != 0;
            if is_shared {
                words.set(at.append_alone, 0);
            }
        }
        if is_shared {
            let is_settled = section.getattr(names::IS_SETTLED.get(py))?.is_truthy()?;
            if !is_settled || !lock.acquire(py, LONGEST_WAIT)? {
                return Ok(None);
            }
            words.set(at.appender_since, monotonic_ms());
        }
        words.set(at.appender_pid, self.pid);
        let stop = words.get(at.failed) | words.get(at.intent_end) | words.get(at.paused);
        let position = words.get(at.appended) as i64;
        let done = match stop == 0 && state.window.has_room(position, size, self.is_durable) {
            true => self.with_table(py, state).and_then(|has| match has {
                true => work(state, position),
                false => Ok(None),
            }),
            false => Ok(None),
        };
        if is_shared {
            lock.release();
        } else {
            words.set(at.append_alone, 0);
        }
        done
    }

    /// Place the record, and write it.
    #[allow(clippy::too_many_arguments)] // parts of a borrowed state: a struct would borrow it whole
    fn write_one(
        &self,
        py: Python<'_>,
        state: &mut State,
        read: &mut Read<'_>,
        hosts: &Hosts,
        topic: usize,
        is_queued: bool,
        position: i64,
    ) -> PyResult<Option<Put>> {
        let chosen = read.is_any_queue();
        if chosen {
            let name = &state.known[topic].topic.name;
            read.fields.queue = self.choose.bind(py).call1((name,))?.extract()?;
            record::set_queue(&mut state.record, read.fields.queue);
        }
        let mut end_at = 0;
        if is_queued {
            end_at = self.queue_end(py, state, topic, read.fields.queue)?;
            if end_at == 0 {
                return Ok(chosen.then_some(Put::Chosen(read.fields.queue)));
            }
        }
        let ends = state.table.as_ref().map(|(_, table)| table).filter(|_| is_queued);
        let queue_offset = ends.map_or(0, |table| table.get(end_at) as i64);
        let now = self.now();
        record::place(&mut state.record, hosts, queue_offset, position, now, self.shared.sealed);
        let end = self.write(py, &mut state.window, &state.record, position, now)?;
        if let Some(table) = ends {
            table.set(end_at, queue_offset as u64 + 1);
        }
        self.words.set(self.places.intent_end, 0);
        Ok(Some(Put::Done(Done { queue_offset, place: position, size: end - position, now })))
    }

    /// Place the records, and write them; the offset behind them.
    fn write_batch(
        &self,
        py: Python<'_>,
        state: &mut State,
        batch: &mut Batch,
        position: i64,
    ) -> PyResult<Option<i64>> {
        let Some(mut ends) = memory::with_room(batch.queues.len()) else {
            return Ok(None);
        };
        for queue in batch.queues.iter().filter(|queue| queue.queued > 0) {
            let Some(topic) = self.topic(py, state, &queue.name(py)?)? else {
                return Ok(None);
            };
            match self.queue_end(py, state, topic, queue.id)? {
                0 => return Ok(None),
                at => ends.push(at), // there is room
            }
        }
        let Some((_, table)) = &state.table else {
            return Ok(None);
        };
        for (queue, &at) in batch.queues.iter_mut().filter(|queue| queue.queued > 0).zip(&ends) {
            queue.first = table.get(at) as i64;
        }
        let now = self.now();
        batch.place_at(py, position, now);
        let end = self.write(py, &mut state.window, batch.bytes(py), position, now)?;
        for (queue, &at) in batch.queues.iter().filter(|queue| queue.queued > 0).zip(&ends) {
            table.set(at, (queue.first + queue.queued) as u64);
        }
        self.words.set(self.places.intent_end, 0);
        Ok(Some(end))
    }

    /// The store time of the next record; see `HIDDEN_STEP_MS` in `commit_log.py`.
    fn now(&self) -> i64 {
        let (now, last) = (now_ms(), self.words.get(self.places.last_timestamp) as i64);
        if now < last && last - now <= HIDDEN_STEP_MS {
            last
        } else {
            now
        }
    }

    /// Write placed records: from here on nothing is left to Python. The caller raises the queue
    /// ends, and then clears the intent.
    #[inline(always)]
    fn write(
        &self,
        py: Python<'_>,
        window: &mut Window,
        records: &[u8],
        position: i64,
        now: i64,
    ) -> PyResult<i64> {
        let (words, at) = (&self.words, &self.places);
        let end = position + records.len() as i64;
        words.set(at.intent_start, position as u64);
        words.set(at.intent_end, end as u64);
        if let Err(error) = window.write(py, records, position, self.is_durable) {
            return Err(self.fail(py, &error));
        }
        words.set(at.appended, end as u64);
        words.set(at.last_timestamp, now as u64);
        Ok(end)
    }

    /// Fail the store for all processes; return the error to raise.
    #[cold]
    fn fail(&self, py: Python<'_>, error: &std::io::Error) -> PyErr {
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        let why = std::io::Error::from_raw_os_error(code).to_string(); // of bounded length
        let why = why.split(" (os error").next().unwrap_or_default();
        let cause = PyOSError::new_err((code, format!("cannot write to the log: {why}"))); // of bounded length
        match self.failed.bind(py).call1((cause.value(py),)) {
            Ok(made) => {
                let raised = PyErr::from_value(made);
                raised.set_cause(py, Some(cause));
                raised
            }
            Err(other) => other,
        }
    }

    /// Set the window of `state`; returns the tuple that keeps its memory alive, `None` without
    /// one.
    #[inline(always)]
    fn window<'py>(
        &self,
        py: Python<'py>,
        state: &mut State,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let found = self.segments.bind(py).getattr(names::WINDOW.get(py))?;
        let Ok(found) = found.cast_into_exact::<PyTuple>() else {
            return Ok(None);
        };
        let number: i64 = found.get_borrowed_item(0)?.extract()?;
        if number != state.window.number {
            state.window = Window::of(&found, number)?;
        }
        Ok(Some(found))
    }

    /// Set the table of queue ends of `state`; `false` if Python must follow the current table
    /// first.
    #[inline(always)]
    fn with_table(&self, py: Python<'_>, state: &mut State) -> PyResult<bool> {
        let wanted = self.words.get(self.places.table_generation);
        if state.table.as_ref().is_some_and(|(generation, _)| *generation == wanted) {
            return Ok(true);
        }
        let table = self.table.bind(py);
        if table.getattr("generation")?.extract::<u64>()? != wanted {
            return Ok(false); // Python follows first
        }
        state.table = Some((wanted, Words::of(&table.getattr("memory")?)?));
        for known in &mut state.known {
            known.ends.clear();
        }
        Ok(true)
    }

    /// The word of the table with the queue's end; 0 if the queue is not in it.
    #[inline(always)]
    fn queue_end(
        &self,
        py: Python<'_>,
        state: &mut State,
        topic: usize,
        queue: i32,
    ) -> PyResult<usize> {
        const DENSE: usize = 4096;
        let known = &mut state.known[topic];
        if let Some(&at) = known.ends.get(queue as usize).filter(|&&at| at != 0) {
            return Ok(at);
        }
        let key = (&known.topic.name, queue);
        let at: usize = self.table.bind(py).call_method1("word_of", (key,))?.extract()?;
        let count = state.table.as_ref().map_or(0, |(_, table)| table.count());
        if at >= count {
            return Ok(0);
        }
        if (queue as usize) < DENSE {
            let length = known.ends.len().max(queue as usize + 1);
            if memory::resize(&mut known.ends, length).is_some() {
                known.ends[queue as usize] = at;
            }
        }
        Ok(at)
    }
}
