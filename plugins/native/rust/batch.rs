//! Encodes several messages in one pass: as `lakelog.format.encoder.Encoder`.

use std::sync::Arc;

use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyList, PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};

use crate::columns::Columns;
use crate::memory;
use crate::message::{now_ms, HostPair, Messages, Read, Topic};
use crate::names;
use crate::record::{self, Hosts, BLANK_BYTES, PREPARED};
use crate::slots::{new_ref, Slots};

const RESULT_FIELDS: usize = 8;
/// Batches of at least this many messages return results in columns, as in `codec.encoded`.
const COLUMNS_FROM: usize = 48;
const MOST_PROPERTIES: usize = 32767;

/// The state shared by all batches of an encoder.
pub struct Shared {
    pub own: Arc<HostPair>,
    pub sealed: bool,
    body_bytes: usize,
    record_bytes: usize,
    result: Slots,
    batch_result: Py<PyAny>,
    from_buffer: Py<PyAny>,
    placed: Py<PyAny>,
    end_of_file: Py<PyAny>,
}

impl Shared {
    /// Length of a record; `None` if a part of it is too large.
    pub fn size(&self, read: &Read<'_>, hosts: &Hosts, topic: &Topic) -> Option<usize> {
        let size = record::size(&read.fields, hosts, &topic.block, self.sealed);
        let rest = hosts.head_bytes() + read.fields.body.len() + topic.block.len() + 2;
        let fits = read.fields.body.len() <= self.body_bytes
            && size - rest <= MOST_PROPERTIES
            && size <= self.record_bytes;
        fits.then_some(size)
    }

    /// A `PutResult`.
    pub fn result(
        &self,
        py: Python<'_>,
        status: &Bound<'_, PyAny>,
        topic: *mut ffi::PyObject,
        queue: i32,
        numbers: [i64; 4],
        store_host: &Py<PyString>,
    ) -> PyResult<Py<PyAny>> {
        let [queue_offset, place, size, now] = numbers;
        unsafe {
            let made = Bound::from_owned_ptr_or_err(py, self.result.instance())?;
            let long = |value| ffi::PyLong_FromLongLong(value);
            let values = [
                new_ref(status.as_ptr()),
                new_ref(topic),
                long(queue as i64),
                long(queue_offset),
                long(place),
                long(size),
                long(now),
                new_ref(store_host.as_ptr()),
            ];
            for (field, value) in values.into_iter().enumerate() {
                self.result.set(made.as_ptr(), field, value);
            }
            if values.iter().any(|value| value.is_null()) {
                return Err(PyErr::fetch(py));
            }
            Ok(made.unbind())
        }
    }

    /// # Errors
    /// If `encoder` or `classes` are not those of lakelog.
    pub fn of(encoder: &Bound<'_, PyAny>, classes: &Bound<'_, PyAny>) -> PyResult<Shared> {
        let own = encoder.getattr("own_hosts")?;
        let limits = encoder.getattr("limits")?;
        let class = |name| classes.getattr(name);
        Ok(Shared {
            own: Arc::new(HostPair::of(&own)?),
            sealed: encoder.getattr("record_crc")?.extract()?,
            body_bytes: limits.getattr("body_bytes")?.extract()?,
            record_bytes: limits.getattr("record_bytes")?.extract()?,
            result: Slots::of(class("PutResult")?.cast::<PyType>()?, RESULT_FIELDS)?,
            batch_result: class("BatchResult")?.unbind(),
            from_buffer: class("from_buffer")?.unbind(),
            placed: class("PLACED")?.unbind(),
            end_of_file: class("END_OF_FILE")?.unbind(),
        })
    }
}

/// Makes batches; one object per encoder.
#[pyclass(module = "lakelog_native", frozen)]
pub struct BatchEncoder {
    shared: Arc<Shared>,
    messages: Messages,
    topic_block: Py<PyAny>,
    choose_many: Py<PyAny>,
    columns: Py<PyAny>,
}

/// A queue that records of a batch go to.
pub struct Queue {
    key: Py<PyTuple>,
    topic: usize,
    pub id: i32,
    pub queued: i64,
    pub first: i64,
    next: i64,
}

impl Queue {
    /// Its topic.
    pub fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        Ok(self.key.bind(py).get_item(0)?.cast_into()?)
    }
}

struct Entry {
    size: usize,
    queue: usize,
    pair: usize,
    is_queued: bool,
    queue_offset: i64,
}

/// As `lakelog.format.encoder.EncodedBatch`.
#[pyclass(module = "lakelog_native")]
pub struct Batch {
    shared: Arc<Shared>,
    #[pyo3(get)]
    buffer: Py<PyByteArray>,
    #[pyo3(get)]
    count: usize,
    #[pyo3(get)]
    wait: bool,
    entries: Vec<Entry>,
    pub queues: Vec<Queue>,
    pairs: Vec<Arc<HostPair>>,
    placed: Option<(i64, i64)>,
}

#[pymethods]
impl BatchEncoder {
    #[new]
    fn new(encoder: &Bound<'_, PyAny>, classes: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(BatchEncoder {
            shared: Arc::new(Shared::of(encoder, classes)?),
            messages: Messages::of(encoder, classes)?,
            topic_block: classes.getattr("topic_block")?.unbind(),
            choose_many: encoder.getattr("queues")?.getattr("choose_many")?.unbind(),
            columns: classes.getattr("MessageColumns")?.unbind(),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.topic_block)?;
        self.messages.unusual.visit(&visit)?;
        visit.call(&self.choose_many)
    }

    /// The records of a list of messages, or of columns; `None` to leave them to Python.
    fn encode(&self, py: Python<'_>, messages: &Bound<'_, PyAny>) -> PyResult<Option<Batch>> {
        if messages.get_type().is(self.columns.bind(py)) {
            return self.encode_columns(py, messages);
        }
        let list = match messages.cast_exact::<PyList>() {
            Ok(list) => list.clone(),
            Err(_) => match messages.cast_exact::<PyTuple>() {
                Ok(tuple) => memory::list(py, tuple.iter().map(Ok))?,
                Err(_) => return Ok(None),
            },
        };
        let now = now_ms();
        let mut topics: Vec<Topic> = Vec::new();
        let Some(mut reads) = memory::with_room::<(Read<'_>, usize)>(list.len()) else {
            return Ok(None);
        };
        for message in list.iter() {
            let Some(read) = self.messages.read(&message, now) else {
                return Ok(None);
            };
            let Some(topic) = self.topic(py, &mut topics, &read.topic)? else {
                return Ok(None);
            };
            reads.push((read, topic)); // there is room
        }
        self.made(py, topics, reads)
    }
}

impl BatchEncoder {
    /// The index of the topic in `topics`; `None` if Python refuses it.
    #[inline(always)]
    fn topic(
        &self,
        py: Python<'_>,
        topics: &mut Vec<Topic>,
        name: &Bound<'_, PyString>,
    ) -> PyResult<Option<usize>> {
        if let Some(at) = topics.iter().position(|known| known.name.is(name)) {
            return Ok(Some(at));
        }
        let Ok(text) = name.to_str() else {
            return Ok(None);
        };
        for (at, known) in topics.iter().enumerate() {
            if known.name.bind(py).to_str()? == text {
                return Ok(Some(at));
            }
        }
        let Some(topic) = Topic::of(name, self.topic_block.bind(py))? else {
            return Ok(None);
        };
        Ok(memory::push(topics, topic).map(|()| topics.len() - 1))
    }

    fn made(
        &self,
        py: Python<'_>,
        topics: Vec<Topic>,
        mut reads: Vec<(Read<'_>, usize)>,
    ) -> PyResult<Option<Batch>> {
        let shared = &self.shared;
        let (Some(mut sizes), Some(mut entries)) =
            (memory::with_room(reads.len()), memory::with_room(reads.len()))
        else {
            return Ok(None);
        };
        let Some(mut pairs) = memory::filled(shared.own.clone(), 1) else {
            return Ok(None);
        };
        for (read, topic) in &reads {
            let Some(pair) = pair_of(&mut pairs, read)? else {
                return Ok(None);
            };
            let hosts = &pairs[pair].hosts;
            let size = shared.size(read, hosts, &topics[*topic]);
            let (Some(size), Some(flags)) = (size, read.fields.flags(hosts)) else {
                return Ok(None);
            };
            sizes.push((size, pair, flags)); // there is room
        }
        if !self.choose(py, &topics, &mut reads)? {
            return Ok(None);
        }
        let mut queues: Vec<Queue> = Vec::new();
        let total = sizes.iter().map(|(size, ..)| size).sum();
        let buffer = unwritten(py, total)?;
        let mut rest = unsafe { buffer.as_bytes_mut() };
        for ((read, topic), &(size, pair, flags)) in reads.iter().zip(&sizes) {
            let (of, hosts) = (&topics[*topic], &pairs[pair].hosts);
            let (to, behind) = rest.split_at_mut(size);
            let sealed = shared.sealed;
            record::write(to, &read.fields, flags, hosts, of.magic, &of.block, sealed);
            let Some(queue) = queue_of(py, &mut queues, &topics, *topic, read.fields.queue)? else {
                return Ok(None);
            };
            let is_queued = flags & PREPARED == 0;
            queues[queue].queued += is_queued as i64;
            entries.push(Entry { size, queue, pair, is_queued, queue_offset: 0 }); // there is room
            rest = behind;
        }
        Ok(Some(Batch {
            shared: shared.clone(),
            buffer: buffer.unbind(),
            count: entries.len(),
            wait: reads.iter().any(|(read, _)| read.wait),
            entries,
            queues,
            pairs,
            placed: None,
        }))
    }

    /// As `encode`, of a `MessageColumns`.
    fn encode_columns(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Batch>> {
        let now = now_ms();
        let Some(columns) = Columns::of(messages, &self.messages.unusual, now)? else {
            return Ok(None);
        };
        let name = columns.topic.clone();
        let Some(topic) = Topic::of(&name, self.topic_block.bind(py))? else {
            return Ok(None);
        };
        let Some(mut reads) = memory::with_room(columns.count()) else {
            return Ok(None);
        };
        for at in 0..columns.count() {
            let Some(read) = columns.read(&self.messages.unusual, at) else {
                return Ok(None);
            };
            reads.push((read, 0)); // there is room
        }
        if reads.is_empty() {
            return Ok(None);
        }
        match memory::collected([topic].into_iter()) {
            Some(topics) => self.made(py, topics, reads),
            None => Ok(None),
        }
    }

    /// Assign queues round robin to messages without one; nothing is refused after this. `false`
    /// without memory.
    fn choose(
        &self,
        py: Python<'_>,
        topics: &[Topic],
        reads: &mut [(Read<'_>, usize)],
    ) -> PyResult<bool> {
        for (number, topic) in topics.iter().enumerate() {
            let wanting =
                |(read, of): &&mut (Read<'_>, usize)| *of == number && read.is_any_queue();
            let count = reads.iter_mut().filter(wanting).count();
            if count > 0 {
                let chosen = self.choose_many.bind(py).call1((&topic.name, count))?;
                let Some(chosen) = memory::extracted::<i32>(&chosen) else {
                    return Ok(false);
                };
                for ((read, _), queue) in reads.iter_mut().filter(wanting).zip(chosen) {
                    read.fields.queue = queue;
                }
            }
        }
        Ok(true)
    }
}

/// A new `bytearray`, each byte of which the caller writes: to zero them before costs a tenth of a
/// put.
fn unwritten(py: Python<'_>, length: usize) -> PyResult<Bound<'_, PyByteArray>> {
    let length = ffi::Py_ssize_t::try_from(length)?;
    unsafe {
        let made = ffi::PyByteArray_FromStringAndSize(std::ptr::null(), length);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into()?)
    }
}

/// The index in `pairs` of the hosts of a message; new hosts are added. `None` without memory.
#[inline(always)]
fn pair_of(pairs: &mut Vec<Arc<HostPair>>, read: &Read<'_>) -> PyResult<Option<usize>> {
    let Some(pair) = &read.hosts else {
        return Ok(Some(0));
    };
    if let Some(at) = pairs.iter().rposition(|known| known.is_of(pair)) {
        return Ok(Some(at));
    }
    let added = memory::push(pairs, Arc::new(HostPair::of(pair)?));
    Ok(added.map(|()| pairs.len() - 1))
}

/// The index in `queues` of a queue; a new one is added. `None` without memory.
fn queue_of(
    py: Python<'_>,
    queues: &mut Vec<Queue>,
    topics: &[Topic],
    topic: usize,
    id: i32,
) -> PyResult<Option<usize>> {
    // The latest first: most batches have few queues, and runs of one.
    if let Some(at) = queues.iter().rposition(|known| known.topic == topic && known.id == id) {
        return Ok(Some(at));
    }
    let name = topics[topic].name.bind(py).clone().into_any();
    let key = memory::tuple(py, [name, memory::long(py, id as i64)?])?.unbind();
    let added = memory::push(queues, Queue { key, topic, id, queued: 0, first: 0, next: 0 });
    Ok(added.map(|()| queues.len() - 1))
}

#[pymethods]
impl Batch {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.buffer)
    }

    /// Fill in queue offsets, physical offsets, store time and record checksums.
    fn place(
        &mut self,
        py: Python<'_>,
        position: i64,
        remaining: i64,
        queue_offsets: &Bound<'_, PyAny>,
        now_ms: i64,
    ) -> PyResult<Py<PyAny>> {
        if (self.bytes(py).len() + BLANK_BYTES) as i64 > remaining {
            return Ok(self.shared.end_of_file.clone_ref(py));
        }
        for queue in self.queues.iter_mut().filter(|queue| queue.queued > 0) {
            queue.first =
                queue_offsets.call_method1(names::NEXT.get(py), (&queue.key,))?.extract()?;
        }
        self.place_at(py, position, now_ms);
        Ok(self.shared.placed.clone_ref(py))
    }

    /// Take the queue offsets that `place` used, after the bytes were written.
    fn advance(&self, py: Python<'_>, queue_offsets: &Bound<'_, PyAny>) -> PyResult<()> {
        for queue in self.queues.iter().filter(|queue| queue.queued > 0) {
            queue_offsets.call_method1(names::ADVANCE.get(py), (&queue.key, queue.queued))?;
        }
        Ok(())
    }

    /// The result of each message, in order; only after `place`.
    fn results(&self, py: Python<'_>, status: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Some((position, now)) = self.placed else {
            return Err(PyRuntimeError::new_err("results of a batch that was not placed"));
        };
        if self.count >= COLUMNS_FROM {
            return self.columns(py, status, position, now);
        }
        let found = PyList::empty(py);
        let mut place = position;
        for entry in &self.entries {
            let queue = &self.queues[entry.queue];
            let topic = queue.key.bind(py).get_borrowed_item(0)?;
            let numbers = [entry.queue_offset, place, entry.size as i64, now];
            let host = &self.pairs[entry.pair].store_host;
            let topic = topic.as_ptr();
            found.append(self.shared.result(py, status, topic, queue.id, numbers, host)?)?;
            place += entry.size as i64;
        }
        Ok(found.into_any().unbind())
    }
}

impl Batch {
    /// The records; complete once they are placed.
    pub fn bytes<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        // It has no other user until then: a batch is used for one append.
        unsafe { self.buffer.bind(py).as_bytes() }
    }

    /// Fill in the fields that depend on the place; each queue has its `first`.
    pub fn place_at(&mut self, py: Python<'_>, position: i64, now_ms: i64) {
        for queue in &mut self.queues {
            queue.next = queue.first;
        }
        let mut rest = unsafe { self.buffer.bind(py).as_bytes_mut() };
        let mut place = position;
        for entry in &mut self.entries {
            entry.queue_offset = 0;
            if entry.is_queued {
                let queue = &mut self.queues[entry.queue];
                entry.queue_offset = queue.next;
                queue.next += 1;
            }
            let (to, behind) = rest.split_at_mut(entry.size);
            let hosts = &self.pairs[entry.pair].hosts;
            record::place(to, hosts, entry.queue_offset, place, now_ms, self.shared.sealed);
            place += entry.size as i64;
            rest = behind;
        }
        self.placed = Some((position, now_ms));
    }

    /// A `BatchResult`.
    fn columns(
        &self,
        py: Python<'_>,
        status: &Bound<'_, PyAny>,
        position: i64,
        now: i64,
    ) -> PyResult<Py<PyAny>> {
        let column = |value: &mut dyn FnMut(&Entry) -> i64| -> PyResult<Bound<'_, PyAny>> {
            let raw = memory::collected(self.entries.iter().map(|each| value(each).to_ne_bytes()));
            let raw = raw.ok_or_else(|| PyMemoryError::new_err(()))?;
            let raw = memory::bytes(py, raw.as_flattened())?;
            self.shared.from_buffer.bind(py).call1((raw, "=i8"))
        };
        let mut place = position;
        let queues =
            self.entries.iter().map(|each| Ok(self.queues[each.queue].key.bind(py).clone()));
        let queues = memory::list(py, queues)?;
        let hosts =
            self.entries.iter().map(|each| Ok(self.pairs[each.pair].store_host.bind(py).clone()));
        let hosts = memory::list(py, hosts)?;
        let made = self.shared.batch_result.bind(py).call1((
            status,
            queues,
            column(&mut |each| each.queue_offset)?,
            column(&mut |each| {
                place += each.size as i64;
                place - each.size as i64
            })?,
            column(&mut |each| each.size as i64)?,
            now,
            hosts,
        ))?;
        Ok(made.unbind())
    }
}
