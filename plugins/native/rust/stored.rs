//! Records to messages: objects of lakelog's own class, made without its `__init__`. As
//! `lakelog/format/record.py`.

use std::ffi::CStr;
use std::sync::Mutex;

use pyo3::buffer::PyBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString, PyType};

use crate::frame::{Frame, Head, AT_BORN_HOST, MAGIC_V1, RECORD_MIN_BYTES};
use crate::memory;
use crate::run::{long, numbers, octets, ALONE_BYTES};
use crate::slots::{new_ref, Slots};

const FIELDS: usize = 17;
const PROPERTIES: usize = 8;
const MOST_HOSTS: usize = 32;
const LINE_BYTES: usize = 64;
/// A size that fits in a processor's cache.
const FETCHED_BYTES: i64 = 256 << 10;

/// A cache of repeated texts as Python objects.
#[derive(Default)]
struct Known {
    topic: Option<(Vec<u8>, Py<PyString>)>,
    hosts: Vec<(Vec<u8>, Py<PyString>)>,
}

impl Known {
    /// `None` if it is not UTF-8.
    fn topic(&mut self, py: Python<'_>, text: &[u8]) -> Option<Py<PyString>> {
        if let Some((bytes, name)) = &self.topic {
            if bytes == text {
                return Some(name.clone_ref(py));
            }
        }
        let name = memory::text(py, text).ok()?.unbind();
        self.topic = Some((memory::copied(text)?, name.clone_ref(py)));
        Some(name)
    }

    fn host(&mut self, py: Python<'_>, raw: &[u8]) -> Option<Py<PyString>> {
        if let Some((_, name)) = self.hosts.iter().find(|(bytes, _)| bytes == raw) {
            return Some(name.clone_ref(py));
        }
        let name = memory::text(py, host(raw)?.as_bytes()).ok()?.unbind();
        if self.hosts.len() == MOST_HOSTS {
            self.hosts.clear();
        }
        memory::push(&mut self.hosts, (memory::copied(raw)?, name.clone_ref(py)))?;
        Some(name)
    }
}

extern "C" {
    fn inet_ntop(
        family: libc::c_int,
        from: *const libc::c_void,
        to: *mut libc::c_char,
        length: libc::socklen_t,
    ) -> *const libc::c_char;
}

/// `address:port`, as `decode_host` of `lakelog/format/message_id.py`, by the same function of
/// the C library.
fn host(raw: &[u8]) -> Option<String> {
    let (address, port) = raw.split_at(raw.len().checked_sub(4)?);
    let port = i32::from_be_bytes(port.try_into().ok()?);
    let family = match address.len() {
        4 => libc::AF_INET,
        16 => libc::AF_INET6,
        _ => return None,
    };
    let mut text = [0u8; 64];
    // The address has the length of its family, and the text has room for the longest.
    let written = unsafe {
        let (from, to) = (address.as_ptr().cast(), text.as_mut_ptr().cast());
        inet_ntop(family, from, to, text.len() as libc::socklen_t)
    };
    if written.is_null() {
        return None;
    }
    let text = CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?;
    Some(match family {
        libc::AF_INET => format!("{text}:{port}"), // of bounded length
        _ => format!("[{text}]:{port}"),           // of bounded length
    })
}

/// Makes messages; one object per process.
#[pyclass(module = "lakelog_native", frozen)]
pub struct Decoder {
    class: Slots,
    known: Mutex<Known>,
    magic_v1: Py<PyInt>,
}

/// One record: its start in the buffer, its length, and the offset that it must contain. Where
/// that is not known, sectors are counted from the start of the buffer.
pub type Wanted = (i64, i32, Option<i64>);

#[pymethods]
impl Decoder {
    #[new]
    fn new(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let magic_v1 = PyInt::new(class.py(), MAGIC_V1).unbind();
        Ok(Decoder { class: Slots::of(class, FIELDS)?, known: Mutex::default(), magic_v1 })
    }

    /// The message of the record that starts at `at`; `None` where it is not whole.
    fn message(
        &self,
        py: Python<'_>,
        view: PyBuffer<u8>,
        at: &Bound<'_, PyAny>,
        offset: Option<&Bound<'_, PyAny>>,
        verify: bool,
    ) -> PyResult<Option<Py<PyAny>>> {
        let (Some(data), Some(at)) = (octets(&view), long(at)) else {
            return Ok(None);
        };
        let given = offset.map(long);
        if given == Some(None) {
            return Ok(None); // no record states a number that is so large
        }
        let offset = given.flatten();
        let Some(rest) = usize::try_from(at).ok().and_then(|at| data.get(at..)) else {
            return Ok(None);
        };
        let wanted = [(at, Head::of(rest).size(), offset)];
        let Some(verify) = checked(py, data, &wanted, verify) else {
            return Ok(None);
        };
        self.made(py, &mut Before::default(), data, wanted[0], verify)
    }

    /// The messages of some records; `None` where one is not whole.
    fn messages(
        &self,
        py: Python<'_>,
        view: PyBuffer<u8>,
        starts: &Bound<'_, PyAny>,
        sizes: &Bound<'_, PyAny>,
        offsets: Option<&Bound<'_, PyAny>>,
        verify: bool,
    ) -> PyResult<Option<Py<PyList>>> {
        let Some(data) = octets(&view) else {
            return Ok(None);
        };
        let Some(wanted) = wanted(starts, sizes, offsets) else {
            return Ok(None);
        };
        let Some(mut found) = memory::with_room(wanted.len()) else {
            return Ok(None);
        };
        if !self.add(py, data, &wanted, verify, &mut found)? {
            return Ok(None);
        }
        let found = found.into_iter().map(|each| Ok(each.into_bound(py)));
        Ok(Some(memory::list(py, found)?.unbind()))
    }
}

fn wanted(
    starts: &Bound<'_, PyAny>,
    sizes: &Bound<'_, PyAny>,
    offsets: Option<&Bound<'_, PyAny>>,
) -> Option<Vec<Wanted>> {
    let (starts, sizes): (Vec<i64>, Vec<i32>) = (numbers(starts)?, numbers(sizes)?);
    let offsets: Vec<Option<i64>> = match offsets {
        Some(offsets) => memory::collected(numbers(offsets)?.into_iter().map(Some))?,
        None => memory::filled(None, starts.len())?,
    };
    if starts.len() != sizes.len() || starts.len() != offsets.len() {
        return None;
    }
    let zipped = starts.into_iter().zip(sizes).zip(offsets);
    memory::collected(zipped.map(|((start, size), offset)| (start, size, offset)))
}

/// Prefetch all records of a call: those of a queue are apart in the log, and
/// each cache miss would be waited for separately.
fn fetch(data: &[u8], wanted: &[Wanted]) {
    let bytes: i64 = wanted.iter().map(|&(_, size, _)| size as i64).sum();
    if bytes <= FETCHED_BYTES {
        let lines = wanted.iter().filter_map(|&each| slice(data, each));
        let lines = lines.flat_map(|record| record.iter().step_by(LINE_BYTES));
        std::hint::black_box(lines.fold(0, |found, byte| found ^ byte));
    }
}

/// Verify many bytes without the interpreter lock; leave few to the caller.
///
/// Returns whether they are still to be verified; `None` if one is not whole.
fn checked(py: Python<'_>, data: &[u8], wanted: &[Wanted], verify: bool) -> Option<bool> {
    let bytes: i64 = wanted.iter().map(|&(_, size, _)| size as i64).sum();
    if !verify || bytes < ALONE_BYTES as i64 {
        return Some(verify);
    }
    let whole = |&each: &Wanted| slice(data, each).and_then(|record| frame(record, each, true));
    py.detach(|| wanted.iter().all(|each| whole(each).is_some())).then_some(false)
}

pub fn slice(data: &[u8], (start, size, _): Wanted) -> Option<&[u8]> {
    let (start, size) = (usize::try_from(start).ok()?, usize::try_from(size).ok()?);
    data.get(start..start.checked_add(size)?)
}

/// The parts of the record that fills `record`; `None` unless it is whole, and the requested one.
#[inline(always)]
pub fn frame(record: &[u8], wanted: Wanted, verify: bool) -> Option<(Head, Frame)> {
    let (start, _, offset) = wanted;
    if record.len() < RECORD_MIN_BYTES {
        return None;
    }
    let head = Head::of(record);
    let is_meant = offset.is_none_or(|offset| head.physical_offset() == offset);
    if head.size() as i64 != record.len() as i64 || !is_meant {
        return None;
    }
    let frame = Frame::read(&head, record)?;
    (!verify || frame.holds(&head, record, offset.unwrap_or(start))).then_some((head, frame))
}

/// The values of the previous record, as objects: most values of a call repeat.
#[derive(Default)]
struct Before {
    copy: Vec<u8>,
    texts: [Option<(Vec<u8>, Py<PyString>)>; 3],
    ints: [Option<(i64, Py<PyAny>)>; 3],
}

impl Before {
    #[inline(always)]
    fn text(&self, py: Python<'_>, at: usize, text: &[u8]) -> Option<Py<PyString>> {
        match &self.texts[at] {
            Some((bytes, made)) if bytes == text => Some(made.clone_ref(py)),
            _ => None,
        }
    }

    /// A new reference; null where there is no memory.
    #[inline(always)]
    unsafe fn int(&mut self, py: Python<'_>, at: usize, value: i64) -> *mut ffi::PyObject {
        match &self.ints[at] {
            Some((same, made)) if *same == value => new_ref(made.as_ptr()),
            _ => {
                let made = ffi::PyLong_FromLongLong(value);
                let kept = Bound::from_borrowed_ptr_or_opt(py, made);
                self.ints[at] = kept.map(|kept| (value, kept.unbind()));
                made
            }
        }
    }
}

impl Decoder {
    /// Add the messages of some records to `found`; returns whether all are whole.
    pub fn add(
        &self,
        py: Python<'_>,
        data: &[u8],
        wanted: &[Wanted],
        verify: bool,
        found: &mut Vec<Py<PyAny>>,
    ) -> PyResult<bool> {
        fetch(data, wanted);
        let Some(verify) = checked(py, data, wanted, verify) else {
            return Ok(false);
        };
        let mut before = Before::default();
        for &each in wanted {
            let Some(message) = self.made(py, &mut before, data, each, verify)? else {
                return Ok(false);
            };
            if memory::push(found, message).is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The message of one record, made from a copy, since its bytes may change concurrently.
    #[inline(always)]
    fn made(
        &self,
        py: Python<'_>,
        before: &mut Before,
        data: &[u8],
        wanted: Wanted,
        verify: bool,
    ) -> PyResult<Option<Py<PyAny>>> {
        let Some(record) = slice(data, wanted) else {
            return Ok(None);
        };
        let mut copy = std::mem::take(&mut before.copy);
        copy.clear();
        if memory::extend(&mut copy, record).is_none() {
            return Ok(None);
        }
        let record = std::hint::black_box(&copy[..]);
        let Some((head, frame)) = frame(record, wanted, verify) else {
            return Ok(None);
        };
        let made = self.of_parts(py, Some(before), record, &head, &frame)?;
        before.copy = copy;
        Ok(made)
    }

    /// Whether `holds` is true for the property string of a message that this decoder made.
    pub fn properties_are(
        &self,
        message: &Bound<'_, PyAny>,
        holds: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let found = unsafe {
            let field = self.class.get(message.as_ptr(), PROPERTIES);
            Bound::from_borrowed_ptr_or_opt(message.py(), field)
        };
        found
            .is_some_and(|found| found.cast::<PyBytes>().is_ok_and(|found| holds(found.as_bytes())))
    }

    /// The message of a verified record that cannot change.
    pub fn alone(
        &self,
        py: Python<'_>,
        record: &[u8],
        head: &Head,
        frame: &Frame,
    ) -> PyResult<Option<Py<PyAny>>> {
        self.of_parts(py, None, record, head, frame)
    }

    #[inline(always)]
    fn of_parts(
        &self,
        py: Python<'_>,
        mut before: Option<&mut Before>,
        record: &[u8],
        head: &Head,
        frame: &Frame,
    ) -> PyResult<Option<Py<PyAny>>> {
        let suffix = frame.body_at - 16;
        let Some([topic, born, store]) = self.texts(
            py,
            before.as_deref_mut(),
            &record[frame.topic_at..frame.topic_end()],
            head.bytes(AT_BORN_HOST, frame.stored_at),
            head.bytes(frame.stored_at + 8, suffix),
        ) else {
            return Ok(None);
        };
        unsafe {
            let made = Bound::from_owned_ptr_or_err(py, self.class.instance())?;
            let int = |at| ffi::PyLong_FromLong(head.int(at) as _);
            let unsigned = |value: u32| ffi::PyLong_FromUnsignedLong(value as _);
            let int64 = |at| ffi::PyLong_FromLongLong(head.long(at));
            let mut again = |at, value| match &mut before {
                Some(before) => before.int(py, at, value),
                None => ffi::PyLong_FromLongLong(value),
            };
            let magic = match head.magic() {
                MAGIC_V1 => new_ref(self.magic_v1.as_ptr()),
                other => unsigned(other),
            };
            let bytes = |part: &[u8]| {
                ffi::PyBytes_FromStringAndSize(part.as_ptr().cast(), part.len() as ffi::Py_ssize_t)
            };
            // In the order of the class.
            let values = [
                topic.into_ptr(),
                int(12),
                int64(20),
                int64(28),
                again(0, head.size() as i64),
                magic,
                bytes(&record[frame.body_at..frame.body_end]),
                unsigned(head.body_crc()),
                bytes(&record[frame.properties_at..]),
                int(16),
                int(36),
                again(1, head.long(40)),
                born.into_ptr(),
                again(2, head.long(frame.stored_at)),
                store.into_ptr(),
                int(suffix),
                int64(suffix + 4),
            ];
            for (field, value) in values.into_iter().enumerate() {
                self.class.set(made.as_ptr(), field, value);
            }
            if values.iter().any(|value| value.is_null()) {
                return Err(PyErr::fetch(py));
            }
            Ok(Some(made.unbind()))
        }
    }

    /// Topic, born host and store host as objects; `None` if one cannot be decoded.
    fn texts(
        &self,
        py: Python<'_>,
        before: Option<&mut Before>,
        topic: &[u8],
        born: &[u8],
        store: &[u8],
    ) -> Option<[Py<PyString>; 3]> {
        let given = [topic, born, store];
        let same = |at: usize| before.as_ref()?.text(py, at, given[at]);
        if let (Some(topic), Some(born), Some(store)) = (same(0), same(1), same(2)) {
            return Some([topic, born, store]);
        }
        // Held for no longer than texts are made, which runs no Python code.
        let mut known = self.known.try_lock().ok()?;
        let made = [known.topic(py, topic)?, known.host(py, born)?, known.host(py, store)?];
        if let Some(before) = before {
            let texts = |at: usize| Some((memory::copied(given[at])?, made[at].clone_ref(py)));
            before.texts = std::array::from_fn(texts);
        }
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_written_as_python_writes_them() {
        assert_eq!(host(&[127, 0, 0, 1, 0, 0, 42, 159]).unwrap(), "127.0.0.1:10911");
        let mut v6 = [0u8; 20];
        v6[15] = 1;
        v6[16] = 0xff;
        assert_eq!(host(&v6).unwrap(), "[::1]:-16777216");
        assert_eq!(host(&[1, 2, 3]), None);
        assert_eq!(host(&[0; 9]), None);
    }

    #[test]
    fn nothing_outside_of_the_buffer_is_looked_at() {
        let data = [0u8; 100];
        for (start, size) in [(-1, 91), (10, 91), (i64::MAX, i32::MAX), (0, -1)] {
            assert!(slice(&data, (start, size, None)).is_none());
        }
        assert!(frame(&data, (0, 100, None), true).is_none());
        assert!(frame(&data[..90], (0, 90, None), false).is_none());
    }
}
