//! Converts common `lakelog.Message` objects to the fields of a record.

use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::buffer::PyBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyType};
use pyo3::{PyTraverseError, PyVisit};

use crate::record::{Fields, Hosts, Properties};
use crate::slots::{is_exact, Slots};

const FIELDS: usize = 16;
const LIGHT: &[u8] = b"INNER_MULTI_DISPATCH";
const SEAL_NAME: &[u8] = b"__CRC32#";
/// The store has to choose the queue.
pub const NO_QUEUE: i32 = -1;

/// The slots of the fields of a `Message`, and the Python functions for unusual values.
pub struct Messages {
    slots: Slots,
    pub unusual: Unusual,
}

/// One message. It holds its objects, so that the slices of `fields` stay valid.
pub struct Read<'py> {
    pub topic: Bound<'py, PyString>,
    pub fields: Fields<'static>,
    pub wait: bool,
    /// A `HostPair`, if the message has a host.
    pub hosts: Option<Bound<'py, PyAny>>,
    #[allow(dead_code)] // it only has to live
    pub held: Held<'py>,
}

/// The owners of the slices of a message's fields.
#[allow(dead_code)] // they only have to live
#[derive(Default)]
pub struct Held<'py> {
    pub objects: Option<[Bound<'py, PyAny>; 3]>,
    pub body: Option<PyBuffer<u8>>,
    pub properties: Option<Bound<'py, PyBytes>>,
}

/// A `HostPair`.
pub struct HostPair {
    pub hosts: Hosts,
    pub store_host: Py<PyString>,
    pair: Py<PyAny>,
}

impl HostPair {
    /// # Errors
    /// Where `pair` is none.
    pub fn of(pair: &Bound<'_, PyAny>) -> PyResult<HostPair> {
        Ok(HostPair {
            hosts: Hosts {
                born: pair.getattr("born")?.extract()?,
                store: pair.getattr("store")?.extract()?,
                sys_flag: pair.getattr("sys_flag")?.extract()?,
            },
            store_host: pair.getattr("store_host")?.cast_into::<PyString>()?.unbind(),
            pair: pair.clone().unbind(),
        })
    }

    pub fn is_of(&self, pair: &Bound<'_, PyAny>) -> bool {
        pair.is(&self.pair)
    }
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

/// The result of Python for unusual fields; `None` if it refuses them.
pub struct Unusual {
    message_properties: Py<PyAny>,
    hosts_of: Py<PyAny>,
    has_light_queues: bool,
}

impl Unusual {
    pub fn of(encoder: &Bound<'_, PyAny>, classes: &Bound<'_, PyAny>) -> PyResult<Unusual> {
        Ok(Unusual {
            message_properties: classes.getattr("message_properties")?.unbind(),
            hosts_of: encoder.getattr("hosts_of")?.unbind(),
            has_light_queues: !encoder.getattr("max_light_queues")?.is_none(),
        })
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.message_properties)?;
        visit.call(&self.hosts_of)
    }

    /// The property string; not of messages for light queues.
    pub fn properties<'py>(
        &self,
        py: Python<'py>,
        tags: &Bound<'py, PyAny>,
        keys: &Bound<'py, PyAny>,
        properties: &Bound<'py, PyAny>,
    ) -> Option<Bound<'py, PyBytes>> {
        if let Some(plain) = self.plain(tags, keys, properties) {
            return Some(plain);
        }
        let made = self.message_properties.bind(py).call1((tags, keys, properties)).ok()?;
        let made = made.cast_into_exact::<PyBytes>().ok()?;
        let is_light = self.has_light_queues && holds(made.as_bytes(), LIGHT);
        (!is_light).then_some(made)
    }

    /// A property string that is stored without further checks; `None` for any other.
    fn plain<'py>(
        &self,
        tags: &Bound<'py, PyAny>,
        keys: &Bound<'py, PyAny>,
        properties: &Bound<'py, PyAny>,
    ) -> Option<Bound<'py, PyBytes>> {
        let given = properties.cast_exact::<PyBytes>().ok()?;
        let text = given.as_bytes();
        let is_plain = tags.is_none()
            && keys.is_none()
            && !text.contains(&0)
            && !holds(text, SEAL_NAME)
            && !(self.has_light_queues && holds(text, LIGHT));
        is_plain.then(|| given.clone())
    }

    /// The `HostPair` of a message, or of columns.
    pub fn hosts<'py>(&self, message: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        self.hosts_of.bind(message.py()).call1((message,)).ok()
    }
}

/// Whether `text` has `piece` somewhere.
fn holds(text: &[u8], piece: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte == piece[0]) {
        if rest[at..].starts_with(piece) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// A slice of an object that is held at least as long as the slice is used.
///
/// # Safety
/// The caller guarantees that.
pub unsafe fn held(slice: &[u8]) -> &'static [u8] {
    std::slice::from_raw_parts(slice.as_ptr(), slice.len())
}

impl Messages {
    pub fn of(encoder: &Bound<'_, PyAny>, classes: &Bound<'_, PyAny>) -> PyResult<Messages> {
        let class = classes.getattr("Message")?.cast_into::<PyType>()?;
        Ok(Messages { slots: Slots::of(&class, FIELDS)?, unusual: Unusual::of(encoder, classes)? })
    }

    /// `None` to leave it to Python.
    #[inline(always)]
    pub fn read<'py>(&self, message: &Bound<'py, PyAny>, now: i64) -> Option<Read<'py>> {
        let py = message.py();
        let object = message.as_ptr();
        // The fields of an object of exactly this class are at the offsets in `slots`. Each is held
        // from here on: Python code that runs below may put another one in its place.
        let field = |at| unsafe {
            let found = self.slots.get(object, at);
            (!found.is_null()).then(|| Bound::from_borrowed_ptr(py, found))
        };
        unsafe {
            let class = self.slots.class.as_ptr() as *mut ffi::PyTypeObject;
            if !is_exact(object, class) {
                return None;
            }
            let none = ffi::Py_None();
            let at = |field| self.slots.get(object, field);
            if at(14) != none || at(15) != none {
                return None; // a time of delivery
            }
            let (queue, born) = (at(5), at(8));
            let mut fields = Fields {
                body: &[],
                properties: Properties::Encoded(&[]),
                queue: if queue == none { NO_QUEUE } else { queue_id(queue)? },
                flag: int(at(6))?,
                sys_flag: long(at(7))?,
                born: if born == none { now } else { long(born)? },
                reconsumed: int(at(11))?,
                prepared: long(at(12))?,
            };
            let wait = exact_bool(at(13))? == ffi::Py_True();
            let has_hosts = at(9) != none || at(10) != none;
            let topic = field(0)?.cast_into_exact::<PyString>().ok()?;
            let properties = if at(4) == none { None } else { Some(field(4)?) };
            let held_fields = [field(1)?, field(2)?, field(3)?];
            let [body_object, tags, keys] = &held_fields;
            let (bytes, buffer) = body_of(body_object)?;
            fields.body = bytes;
            let mut encoded = None;
            match (properties, text(tags.as_ptr()), text(keys.as_ptr())) {
                (None, Some(tags), Some(keys)) => {
                    fields.properties = Properties::Plain { tags, keys }
                }
                (properties, ..) => {
                    let none = py.None().into_bound(py);
                    let properties = properties.as_ref().unwrap_or(&none);
                    let made = self.unusual.properties(py, tags, keys, properties)?;
                    fields.properties = Properties::Encoded(held(made.as_bytes()));
                    encoded = Some(made);
                }
            }
            let hosts = if has_hosts { Some(self.unusual.hosts(message)?) } else { None };
            let held = Held { objects: Some(held_fields), body: buffer, properties: encoded };
            Some(Read { topic, fields, wait, hosts, held })
        }
    }
}

/// The bytes of a body, and their owner if it is not the object itself.
///
/// # Safety
/// The slice lives as long as both.
#[inline(always)]
pub unsafe fn body_of(object: &Bound<'_, PyAny>) -> Option<(&'static [u8], Option<PyBuffer<u8>>)> {
    if let Some(bytes) = body(object.as_ptr()) {
        return Some((bytes, None));
    }
    let buffer = PyBuffer::<u8>::get(object).ok().filter(|found| found.is_c_contiguous())?;
    if buffer.len_bytes() == 0 {
        return Some((&[], None));
    }
    let bytes = std::slice::from_raw_parts(buffer.buf_ptr() as *const u8, buffer.len_bytes());
    Some((bytes, Some(buffer)))
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

/// A plain text, or `Some(None)` for Python's `None`; `None` for anything else. Plain texts are
/// printable ASCII without space and `|`; they need no further check, neither as tags nor as keys.
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
    /// `None` if Python refuses it.
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
            block: made.getattr("data")?.cast::<PyBytes>()?.as_bytes().to_vec(), // of bounded length
        }))
    }
}
