//! Converts common `lakelog.MessageColumns` to the fields of records.

use pyo3::buffer::PyBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::memory;
use crate::message::{self, body_of, exact_bool, int, long, queue_id, text};
use crate::message::{Held, Read, Unusual, NO_QUEUE};
use crate::record::{Fields, Properties};
use crate::run::numbers;

/// One value for all, or one for each; holds the objects, so that a changed list cannot free them.
enum Column<'py> {
    Same(Bound<'py, PyAny>),
    Each(Vec<Bound<'py, PyAny>>),
}

impl<'py> Column<'py> {
    fn of(value: Bound<'py, PyAny>) -> Option<Column<'py>> {
        let is_one = value.is_none()
            || value.is_instance_of::<PyString>()
            || value.is_instance_of::<pyo3::types::PyInt>();
        if is_one {
            return Some(Column::Same(value));
        }
        if value.hasattr("tolist").ok()? {
            return items(&value.call_method0("tolist").ok()?).map(Column::Each);
            // NumPy's
        }
        items(&value).map(Column::Each)
    }

    #[inline(always)]
    fn get(&self, at: usize) -> &Bound<'py, PyAny> {
        match self {
            Column::Same(value) => value,
            Column::Each(each) => &each[at],
        }
    }

    fn is_of(&self, count: usize) -> bool {
        matches!(self, Column::Same(_)) || matches!(self, Column::Each(each) if each.len() == count)
    }
}

fn items<'py>(value: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = value.cast_exact::<PyList>() {
        return memory::collected(list.iter());
    }
    memory::collected(value.cast_exact::<PyTuple>().ok()?.iter())
}

enum Bodies<'py> {
    Objects(Vec<Bound<'py, PyAny>>),
    /// A `BodyColumn`: one buffer, and the position of each body in it.
    Buffer(PyBuffer<u8>, Vec<i64>),
}

impl<'py> Bodies<'py> {
    fn of(value: &Bound<'py, PyAny>) -> PyResult<Option<Bodies<'py>>> {
        if let Some(objects) = items(value) {
            return Ok(Some(Bodies::Objects(objects)));
        }
        if value.get_type().name()? != "BodyColumn" {
            return Ok(None);
        }
        let data = PyBuffer::<u8>::get(&value.getattr("data")?)?;
        let Some(offsets) = numbers::<i64>(&value.getattr("offsets")?) else {
            return Ok(None);
        };
        let length = data.len_bytes() as i64;
        let ascends = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        let fits = offsets.first().is_some_and(|&first| first >= 0)
            && offsets.last().is_some_and(|&last| last <= length);
        if !(ascends && fits && data.is_c_contiguous()) {
            return Ok(None);
        }
        Ok(Some(Bodies::Buffer(data, offsets)))
    }

    fn count(&self) -> usize {
        match self {
            Bodies::Objects(objects) => objects.len(),
            Bodies::Buffer(_, offsets) => offsets.len() - 1,
        }
    }

    /// A body, and its owner unless these columns own it; `None` if the value is not a body.
    #[inline(always)]
    fn get(&self, at: usize) -> Option<(&'static [u8], Option<PyBuffer<u8>>)> {
        match self {
            Bodies::Objects(objects) => unsafe { body_of(&objects[at]) },
            Bodies::Buffer(data, offsets) => {
                let (from, to) = (offsets[at] as usize, offsets[at + 1] as usize);
                // Ascending and inside of the buffer, which is held for as long as the slice lives.
                let start = (data.buf_ptr() as *const u8).wrapping_add(from);
                Some((unsafe { std::slice::from_raw_parts(start, to - from) }, None))
            }
        }
    }
}

/// All fields of some messages of one topic.
pub struct Columns<'py> {
    pub topic: Bound<'py, PyString>,
    bodies: Bodies<'py>,
    queue_ids: Column<'py>,
    tags: Column<'py>,
    keys: Column<'py>,
    properties: Bound<'py, PyAny>,
    /// The property string, if all have the same.
    same: Option<Bound<'py, PyBytes>>,
    hosts: Option<Bound<'py, PyAny>>,
    shared: Fields<'static>,
    wait: bool,
}

impl<'py> Columns<'py> {
    /// `None` to leave them to Python.
    ///
    /// # Errors
    /// If an attribute is missing.
    pub fn of(
        messages: &Bound<'py, PyAny>,
        unusual: &Unusual,
        now: i64,
    ) -> PyResult<Option<Columns<'py>>> {
        let get = |name| messages.getattr(name);
        let names_hosts = !get("born_host")?.is_none() || !get("store_host")?.is_none();
        let hosts = if names_hosts { unusual.hosts(messages) } else { None };
        if names_hosts && hosts.is_none() {
            return Ok(None);
        }
        let Ok(topic) = get("topic")?.cast_into_exact::<PyString>() else {
            return Ok(None);
        };
        let Some(bodies) = Bodies::of(&get("bodies")?)? else {
            return Ok(None);
        };
        let (Some(queue_ids), Some(tags), Some(keys)) =
            (Column::of(get("queue_ids")?), Column::of(get("tags")?), Column::of(get("keys")?))
        else {
            return Ok(None);
        };
        let numbers = [
            get("flag")?,
            get("sys_flag")?,
            get("born_timestamp_ms")?,
            get("reconsume_times")?,
            get("prepared_transaction_offset")?,
            get("wait_store_ok")?,
        ];
        let Some((shared, wait)) = (unsafe { shared(&numbers, now) }) else {
            return Ok(None);
        };
        let count = bodies.count();
        if ![&queue_ids, &tags, &keys].iter().all(|each| each.is_of(count)) {
            return Ok(None);
        }
        let properties = get("properties")?;
        let mut same = None;
        if let (Column::Same(tags), Column::Same(keys)) = (&tags, &keys) {
            same = unusual.properties(messages.py(), tags, keys, &properties);
            if same.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(Columns {
            topic,
            bodies,
            queue_ids,
            tags,
            keys,
            properties,
            same,
            hosts,
            shared,
            wait,
        }))
    }

    pub fn count(&self) -> usize {
        self.bodies.count()
    }

    /// One message; `None` to leave it to Python.
    #[inline(always)]
    pub fn read(&self, unusual: &Unusual, at: usize) -> Option<Read<'py>> {
        let (queue, tags, keys) = (self.queue_ids.get(at), self.tags.get(at), self.keys.get(at));
        let (body, buffer) = self.bodies.get(at)?;
        let mut held = Held { body: buffer, ..Held::default() };
        let mut fields = Fields { body, ..self.shared };
        if !queue.is_none() {
            fields.queue = unsafe { queue_id(queue.as_ptr())? };
        }
        // The columns or the message hold the objects to which the slices belong.
        fields.properties = unsafe {
            match (&self.same, text(tags.as_ptr()), text(keys.as_ptr())) {
                (Some(same), ..) => Properties::Encoded(message::held(same.as_bytes())),
                (None, Some(tags), Some(keys)) if self.properties.is_none() => {
                    Properties::Plain { tags, keys }
                }
                _ => {
                    let made = unusual.properties(tags.py(), tags, keys, &self.properties)?;
                    let text = message::held(made.as_bytes());
                    held.properties = Some(made);
                    Properties::Encoded(text)
                }
            }
        };
        let (topic, hosts, wait) = (self.topic.clone(), self.hosts.clone(), self.wait);
        Some(Read { topic, fields, wait, hosts, held })
    }
}

/// # Safety
/// The called functions take pointers to objects; `numbers` holds these objects.
unsafe fn shared(numbers: &[Bound<'_, PyAny>; 6], now: i64) -> Option<(Fields<'static>, bool)> {
    let [flag, sys_flag, born, reconsumed, prepared, wait] = numbers;
    let fields = Fields {
        body: &[],
        properties: Properties::Encoded(&[]),
        queue: NO_QUEUE,
        flag: int(flag.as_ptr())?,
        sys_flag: long(sys_flag.as_ptr())?,
        born: if born.is_none() { now } else { long(born.as_ptr())? },
        reconsumed: int(reconsumed.as_ptr())?,
        prepared: long(prepared.as_ptr())?,
    };
    Some((fields, exact_bool(wait.as_ptr())? == ffi::Py_True()))
}
