//! From `lakelog.Message` objects to the fields of a record, where they are of the usual shape.

use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyType};

use crate::record::Fields;
use crate::slots::{is_exact, Slots};

const FIELDS: usize = 14;
/// The store has to choose the queue.
pub const NO_QUEUE: i32 = -1;

/// Where the fields of a `Message` stand.
pub struct Messages(Slots);

/// One message: its topic, its fields, and whether its put waits.
pub struct Read<'a> {
    pub topic: *mut ffi::PyObject,
    pub fields: Fields<'a>,
    /// The objects that the slices of `fields` are of.
    pub objects: [*mut ffi::PyObject; 3],
    pub wait: bool,
}

impl Read<'_> {
    /// Whether the store has to choose the queue.
    pub fn is_any_queue(&self) -> bool {
        self.fields.queue == NO_QUEUE
    }
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
}

impl Messages {
    pub fn of(class: &Bound<'_, PyType>) -> PyResult<Messages> {
        Ok(Messages(Slots::of(class, FIELDS)?))
    }

    /// `None` where Python has to look at it.
    ///
    /// # Safety
    /// `message` is an object; the slices live as long as it keeps its fields, which whoever holds
    /// the interpreter lock and runs no Python code can rely on.
    #[inline(always)]
    pub unsafe fn read<'a>(&self, message: *mut ffi::PyObject, now: i64) -> Option<Read<'a>> {
        let class = self.0.class.as_ptr() as *mut ffi::PyTypeObject;
        if !is_exact(message, class) {
            return None;
        }
        let none = ffi::Py_None();
        let at = |field| self.0.get(message, field);
        if at(4) != none || at(9) != none || at(10) != none {
            return None; // properties, hosts
        }
        let topic = at(0);
        if topic.is_null() || !is_exact(topic, &raw mut ffi::PyUnicode_Type) {
            return None;
        }
        let queue = at(5);
        let born = at(8);
        let wait = ffi::PyObject_IsTrue(exact_bool(at(13))?);
        let fields = Fields {
            body: body(at(1))?,
            tags: text(at(2))?,
            keys: text(at(3))?,
            queue: if queue == none { NO_QUEUE } else { queue_id(queue)? },
            flag: int(at(6))?,
            sys_flag: long(at(7))?,
            born: if born == none { now } else { long(born)? },
            reconsumed: int(at(11))?,
            prepared: long(at(12))?,
        };
        Some(Read { topic, fields, objects: [at(1), at(2), at(3)], wait: wait != 0 })
    }
}

/// # Safety
/// The slice lives as long as the object.
#[inline(always)]
pub unsafe fn body<'a>(object: *mut ffi::PyObject) -> Option<&'a [u8]> {
    if object.is_null() || !is_exact(object, &raw mut ffi::PyBytes_Type) {
        return None;
    }
    let data = ffi::PyBytes_AsString(object) as *const u8;
    Some(std::slice::from_raw_parts(data, ffi::PyBytes_Size(object) as usize))
}

/// A plain text or nothing: `None` where it is neither. Plain texts need no closer look, neither as
/// tags nor as keys: ASCII that can be printed, without space and `|`.
///
/// # Safety
/// The slice lives as long as the object.
#[inline(always)]
pub unsafe fn text<'a>(object: *mut ffi::PyObject) -> Option<Option<&'a [u8]>> {
    if object == ffi::Py_None() {
        return Some(None);
    }
    if object.is_null() || !is_exact(object, &raw mut ffi::PyUnicode_Type) {
        return None;
    }
    let mut length: ffi::Py_ssize_t = 0;
    let data = ffi::PyUnicode_AsUTF8AndSize(object, &mut length);
    if data.is_null() {
        ffi::PyErr_Clear();
        return None;
    }
    let text = std::slice::from_raw_parts(data as *const u8, length as usize);
    text.iter().all(|&b| (0x21..0x7f).contains(&b) && b != b'|').then_some(Some(text))
}

/// # Safety
/// `object` is an object, or null.
#[inline(always)]
pub unsafe fn long(object: *mut ffi::PyObject) -> Option<i64> {
    if object.is_null() || !is_exact(object, &raw mut ffi::PyLong_Type) {
        return None;
    }
    let value = ffi::PyLong_AsLongLong(object);
    if value == -1 && !ffi::PyErr_Occurred().is_null() {
        ffi::PyErr_Clear();
        return None;
    }
    Some(value)
}

/// # Safety
/// `object` is an object, or null.
#[inline(always)]
pub unsafe fn int(object: *mut ffi::PyObject) -> Option<i32> {
    long(object).and_then(|value| i32::try_from(value).ok())
}

/// # Safety
/// `object` is an object, or null.
#[inline(always)]
pub unsafe fn queue_id(object: *mut ffi::PyObject) -> Option<i32> {
    int(object).filter(|&id| id >= 0)
}

/// # Safety
/// `object` is an object, or null.
#[inline(always)]
pub unsafe fn exact_bool(object: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
    (object == ffi::Py_True() || object == ffi::Py_False()).then_some(object)
}

/// The part of a record between body and properties, and the magic number that goes with it.
pub struct Topic {
    pub name: Py<PyString>,
    pub magic: u32,
    pub block: Vec<u8>,
}

impl Topic {
    /// `None` where Python refuses it.
    pub fn of(
        name: &Bound<'_, PyString>,
        topic_block: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Topic>> {
        let Ok(made) = topic_block.call1((name,)) else {
            return Ok(None);
        };
        Ok(Some(Topic {
            name: name.clone().unbind(),
            magic: made.getattr("magic")?.extract()?,
            block: made.getattr("data")?.cast::<PyBytes>()?.as_bytes().to_vec(),
        }))
    }
}
