//! From a `lakelog.MessageColumns` to the fields of records, where they are of the usual shape.

use pyo3::buffer::PyBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::message::{body, exact_bool, int, long, queue_id, text, Read, NO_QUEUE};
use crate::record::Fields;

/// One value for all, or one for each; the objects are held, so that no list can let them go.
enum Column<'py> {
    Same(Bound<'py, PyAny>),
    Each(Vec<Bound<'py, PyAny>>),
}

impl<'py> Column<'py> {
    fn of(value: Bound<'py, PyAny>) -> Option<Column<'py>> {
        match items(&value) {
            Some(each) => Some(Column::Each(each)),
            None if value.is_none() || value.is_exact_instance_of::<PyString>() => {
                Some(Column::Same(value))
            }
            None if value.is_exact_instance_of::<pyo3::types::PyInt>() => Some(Column::Same(value)),
            None => None,
        }
    }

    #[inline(always)]
    fn get(&self, at: usize) -> *mut ffi::PyObject {
        match self {
            Column::Same(value) => value.as_ptr(),
            Column::Each(each) => each[at].as_ptr(),
        }
    }

    fn is_of(&self, count: usize) -> bool {
        matches!(self, Column::Same(_)) || matches!(self, Column::Each(each) if each.len() == count)
    }
}

fn items<'py>(value: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = value.cast_exact::<PyList>() {
        return Some(list.iter().collect());
    }
    value.cast_exact::<PyTuple>().ok().map(|tuple| tuple.iter().collect())
}

enum Bodies<'py> {
    Objects(Vec<Bound<'py, PyAny>>),
    /// A `BodyColumn`: one buffer, and where each body starts in it.
    Buffer(PyBuffer<u8>, Vec<usize>),
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
        let offsets = PyBuffer::<i64>::get(&value.getattr("offsets")?)?.to_vec(value.py())?;
        let length = data.len_bytes() as i64;
        let ascends = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        let fits = offsets.first().is_some_and(|&first| first >= 0)
            && offsets.last().is_some_and(|&last| last <= length);
        if !(ascends && fits && data.is_c_contiguous()) {
            return Ok(None);
        }
        Ok(Some(Bodies::Buffer(data, offsets.into_iter().map(|at| at as usize).collect())))
    }

    fn count(&self) -> usize {
        match self {
            Bodies::Objects(objects) => objects.len(),
            Bodies::Buffer(_, offsets) => offsets.len() - 1,
        }
    }

    #[inline(always)]
    fn get(&self, at: usize) -> Option<&[u8]> {
        match self {
            Bodies::Objects(objects) => unsafe { body(objects[at].as_ptr()) },
            Bodies::Buffer(data, offsets) => {
                let (from, to) = (offsets[at], offsets[at + 1]);
                // Ascending and inside of the buffer, which is held for as long as the slice lives.
                Some(unsafe {
                    std::slice::from_raw_parts((data.buf_ptr() as *const u8).add(from), to - from)
                })
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
    shared: Fields<'static>,
    wait: bool,
}

impl<'py> Columns<'py> {
    /// `None` where Python has to look at them.
    ///
    /// # Errors
    /// Where an attribute is missing.
    pub fn of(messages: &Bound<'py, PyAny>, now: i64) -> PyResult<Option<Columns<'py>>> {
        let get = |name| messages.getattr(name);
        let (properties, born_host, store_host) =
            (get("properties")?, get("born_host")?, get("store_host")?);
        if ![properties, born_host, store_host].iter().all(|each| each.is_none()) {
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
        Ok(Some(Columns { topic, bodies, queue_ids, tags, keys, shared, wait }))
    }

    pub fn count(&self) -> usize {
        self.bodies.count()
    }

    /// One message; `None` where Python has to look at it.
    #[inline(always)]
    pub fn read(&self, at: usize) -> Option<Read<'_>> {
        let queue = self.queue_ids.get(at);
        let fields = unsafe {
            Fields {
                body: self.bodies.get(at)?,
                tags: text(self.tags.get(at))?,
                keys: text(self.keys.get(at))?,
                queue: if queue == ffi::Py_None() { NO_QUEUE } else { queue_id(queue)? },
                ..self.shared
            }
        };
        let objects = [std::ptr::null_mut(); 3]; // held by the columns
        Some(Read { topic: self.topic.as_ptr(), fields, objects, wait: self.wait })
    }
}

/// # Safety
/// Only in that it calls what takes objects, which these are.
unsafe fn shared(numbers: &[Bound<'_, PyAny>; 6], now: i64) -> Option<(Fields<'static>, bool)> {
    let [flag, sys_flag, born, reconsumed, prepared, wait] = numbers;
    let fields = Fields {
        body: &[],
        tags: None,
        keys: None,
        queue: NO_QUEUE,
        flag: int(flag.as_ptr())?,
        sys_flag: long(sys_flag.as_ptr())?,
        born: if born.is_none() { now } else { long(born.as_ptr())? },
        reconsumed: int(reconsumed.as_ptr())?,
        prepared: long(prepared.as_ptr())?,
    };
    Some((fields, exact_bool(wait.as_ptr())? == ffi::Py_True()))
}
