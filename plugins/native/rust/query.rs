//! Messages by key, from an owner's index files and segments in one go, as
//! `lakelog/reading/query.py`. Whatever is unusual is left to Python.

use pyo3::buffer::PyBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::dispatch::hash_on;
use crate::frame::{Head, RECORD_MIN_BYTES};
use crate::index::{Chain, File, Wanted};
use crate::message::long;
use crate::page::{LogBounds, OpenSegments};
use crate::run::{answer, octets, ALONE_BYTES};
use crate::stored::{frame, Decoder};

const FOREVER_MS: i64 = i64::MAX;
/// All of a record that is no longer is had with the first look.
const NEAR_BYTES: i64 = 4096;

/// Finds messages; one for the owner's part of an open store.
#[pyclass(module = "lakelog_native", frozen)]
pub struct KeyFinder {
    decoder: Py<Decoder>,
    bounds: LogBounds,
    hash_files: Py<PyAny>,
    buried: Py<PyAny>,
    segments: OpenSegments,
}

/// What is asked for, and what of it was found.
struct Search<'a> {
    topic: &'a str,
    key: &'a str,
    wanted: Wanted,
    most: usize,
    buried: i64,
    last: i64,
    found: Vec<Py<PyAny>>,
}

/// How it goes on behind an entry.
enum Next {
    More,
    Enough,
}

#[pymethods]
impl KeyFinder {
    #[new]
    fn new(decoder: Py<Decoder>, parts: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(KeyFinder {
            decoder,
            bounds: LogBounds::of(&parts.getattr("memory")?, &parts.getattr("layout")?)?,
            hash_files: parts.getattr("hash_files")?.unbind(),
            buried: parts.getattr("buried")?.unbind(),
            segments: OpenSegments::of(parts)?,
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.hash_files)?;
        visit.call(&self.buried)?;
        self.segments.visit(&visit)
    }

    /// The messages, the newest first; `None` where Python has to look.
    fn find<'py>(
        &self,
        topic: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        since_ms: &Bound<'py, PyAny>,
        until_ms: &Bound<'py, PyAny>,
        max_messages: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let py = topic.py();
        let Some(mut search) = Search::of(topic, key, [since_ms, until_ms], max_messages) else {
            return Ok(None);
        };
        let Some(buried) = answer(py, self.buried.bind(py).call1((topic,)))? else {
            return Ok(None);
        };
        let Some(files) = answer(py, self.hash_files.bind(py).call0())? else {
            return Ok(None);
        };
        search.buried = match buried.extract() {
            Ok(offset) => offset,
            Err(_) => return Ok(None),
        };
        match self.through(py, &mut search, &files)? {
            Some(()) => PyList::new(py, search.found).map(Some),
            None => Ok(None),
        }
    }
}

impl KeyFinder {
    /// Look through all files, the newest first.
    fn through(
        &self,
        py: Python<'_>,
        search: &mut Search<'_>,
        files: &Bound<'_, PyAny>,
    ) -> PyResult<Option<()>> {
        let Ok((files, minimum, slots, entries)) =
            files.extract::<(Bound<'_, PyTuple>, i64, usize, usize)>()
        else {
            return Ok(None);
        };
        for file in files.iter().rev() {
            let map = file.getattr(intern!(py, "map")).and_then(|map| PyBuffer::<u8>::get(&map));
            let Ok(map) = map else {
                return Ok(None);
            };
            let file = octets(&map).and_then(|data| File::of(data, slots, entries));
            let Some(mut chain) = file.and_then(|file| Chain::of(file, search.wanted)) else {
                return Ok(None);
            };
            loop {
                match chain.next() {
                    Some(Some(offset)) => match self.visit(py, search, minimum, offset)? {
                        Some(Next::More) => {}
                        Some(Next::Enough) => return Ok(Some(())),
                        None => return Ok(None),
                    },
                    Some(None) => break,
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(()))
    }

    /// One place to which the index points; `None` where Python has to look.
    fn visit(
        &self,
        py: Python<'_>,
        search: &mut Search<'_>,
        minimum: i64,
        offset: i64,
    ) -> PyResult<Option<Next>> {
        if offset == search.last {
            return Ok(Some(Next::More));
        }
        if offset > search.last {
            return Ok(None);
        }
        search.last = offset;
        if offset < minimum {
            return Ok(Some(Next::More));
        }
        if search.found.len() >= search.most {
            return Ok(Some(Next::Enough));
        }
        let Some((log_minimum, end)) = self.bounds.now() else {
            return Ok(None);
        };
        if offset < search.buried {
            return Ok(Some(Next::More));
        }
        // What was deleted just now may be in an archive.
        let is_there = (log_minimum..end).contains(&offset);
        let good = is_there && self.look(py, search, offset, end)?;
        Ok(good.then_some(Next::More))
    }

    /// Add the message whose record stands at `offset`, if it is one that is asked for.
    ///
    /// Gives whether a whole record stands there.
    fn look(
        &self,
        py: Python<'_>,
        search: &mut Search<'_>,
        offset: i64,
        end: i64,
    ) -> PyResult<bool> {
        let mut length = NEAR_BYTES.min(end - offset);
        let record = loop {
            let Some(view) = self.segments.view(py, offset, length)? else {
                return Ok(false);
            };
            let Some(data) = octets(&view) else {
                return Ok(false);
            };
            let size = Head::of(data).size();
            if size < RECORD_MIN_BYTES as i32 || size as i64 > end - offset {
                return Ok(false);
            }
            // A copy, since the bytes may change meanwhile.
            match data.get(..size as usize) {
                Some(record) => break record.to_vec(),
                None if length == size as i64 => return Ok(false),
                None => length = size as i64,
            }
        };
        self.take(py, search, offset, &record)
    }

    fn take(
        &self,
        py: Python<'_>,
        search: &mut Search<'_>,
        offset: i64,
        record: &[u8],
    ) -> PyResult<bool> {
        let wanted = (0, record.len() as i32, Some(offset));
        let check = || frame(record, wanted, true).filter(|(_, frame)| frame.has_text(record));
        let found = if record.len() < ALONE_BYTES { check() } else { py.detach(check) };
        let Some((head, frame)) = found else {
            return Ok(false);
        };
        let topic = &record[frame.topic_at..frame.topic_end()];
        if topic != search.topic.as_bytes() || !search.wanted.has_time(head.long(frame.stored_at)) {
            return Ok(true);
        }
        match has_key(&record[frame.properties_at..], search.key.as_bytes()) {
            Some(true) => self.decoder.get().add(py, record, &[wanted], false, &mut search.found),
            Some(false) => Ok(true),
            None => Ok(false),
        }
    }
}

impl<'a> Search<'a> {
    /// `None` where Python has to say what is wrong with an argument, if anything is.
    fn of(
        topic: &'a Bound<'_, PyAny>,
        key: &'a Bound<'_, PyAny>,
        times: [&Bound<'_, PyAny>; 2],
        most: &Bound<'_, PyAny>,
    ) -> Option<Search<'a>> {
        let (topic, key) = (text(topic)?, text(key)?);
        let time_or = |time: &Bound<'_, PyAny>, default| {
            if time.is_none() {
                Some(default)
            } else {
                time_ms(time)
            }
        };
        let (begin_ms, end_ms) = (time_or(times[0], 0)?, time_or(times[1], FOREVER_MS)?);
        let most = usize::try_from(unsafe { long(most.as_ptr())? }).ok()?;
        if most == 0 || begin_ms > end_ms || key.contains(' ') {
            return None;
        }
        let hash = [topic, "#", key].iter().fold(0, |hash, part| hash_on(hash, part.as_bytes()));
        let key_hash = hash.checked_abs().unwrap_or(0);
        let wanted = Wanted { key_hash, begin_ms, end_ms };
        Some(Search { topic, key, wanted, most, buried: 0, last: i64::MAX, found: Vec::new() })
    }
}

fn text<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a str> {
    object.cast_exact::<PyString>().ok()?.to_str().ok().filter(|text| !text.is_empty())
}

/// A time that Python takes, too: see `time_ms` of `lakelog/arguments.py`.
pub fn time_ms(object: &Bound<'_, PyAny>) -> Option<i64> {
    let value = unsafe { long(object.as_ptr())? };
    let is_meant = value == FOREVER_MS
        || (0..100_000_000).contains(&value)
        || (100_000_000_000..100_000_000_000_000).contains(&value);
    is_meant.then_some(value)
}

/// Whether it is the unique key, or one of the keys; `None` where they are no UTF-8.
fn has_key(properties: &[u8], key: &[u8]) -> Option<bool> {
    if !properties.is_ascii() {
        std::str::from_utf8(properties).ok()?;
    }
    let (mut unique, mut keys) = (&b""[..], &b""[..]);
    for piece in properties.split(|&byte| byte == 2) {
        match piece {
            [b'U', b'N', b'I', b'Q', b'_', b'K', b'E', b'Y', 1, value @ ..] => unique = value,
            [b'K', b'E', b'Y', b'S', 1, value @ ..] => keys = value,
            _ => {}
        }
    }
    Some(unique == key || keys.split(|&byte| byte == b' ').any(|each| each == key))
}

#[cfg(test)]
mod tests {
    use super::has_key;

    #[test]
    fn the_last_value_of_a_property_counts() {
        let text = b"KEYS\x01a\x02KEYS\x01b  c\x02XKEYS\x01d\x02UNIQ_KEY\x01e f\x02KEYS";
        for (key, expected) in [(&b"a"[..], false), (b"b", true), (b"c", true), (b"d", false)] {
            assert_eq!(has_key(text, key), Some(expected));
        }
        assert_eq!(has_key(text, b"e f"), Some(true));
        assert_eq!(has_key(b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01\x02", b"a"), Some(false));
        assert_eq!(has_key(b"KEYS\x01\xff\x02", b"a"), None);
        assert_eq!(has_key("KEYS\x01é\x02".as_bytes(), "é".as_bytes()), Some(true));
    }
}
