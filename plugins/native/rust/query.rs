//! Messages by key, from index files and the log in one go, as
//! `lakelog_queues/finding/search.py`. Unusual cases are left to Python.

use std::ops::ControlFlow::{self, Break, Continue};

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::dispatch::hash_on;
use crate::frame::{Head, RECORD_MIN_BYTES};
use crate::index::{fetch, Chain, File, Wanted};
use crate::log::Bounds;
use crate::lookups::Parts;
use crate::maps::own_map;
use crate::memory;
use crate::message::long;
use crate::names;
use crate::run::{answer, ALONE_BYTES};
use crate::stored::frame;

const FOREVER_MS: i64 = i64::MAX;
/// Records up to this size are read completely by the first read.
const NEAR_BYTES: i64 = 4096;
/// A short record.
const FETCHED_BYTES: usize = 256;

/// The query, and the messages found so far.
struct Search<'a> {
    topic: &'a str,
    key: &'a str,
    wanted: Wanted,
    most: usize,
    bounds: Bounds,
    buried: i64,
    /// Offsets from the index count only between these.
    minimum: i64,
    limit: i64,
    last: i64,
    found: Vec<Py<PyAny>>,
}

/// The messages, newest first; `None` to leave it to Python.
pub fn query<'py>(
    parts: &Parts,
    topic: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    times: [&Bound<'py, PyAny>; 2],
    max_messages: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let py = topic.py();
    let Some(mut search) = Search::of(topic, key, times, max_messages) else {
        return Ok(None);
    };
    let Some(bounds) = parts.begin(py, true)? else {
        return Ok(None);
    };
    search.bounds = bounds;
    match parts.through(&mut search, topic)? {
        Some(()) => {
            let found = search.found.into_iter().map(|each| Ok(each.into_bound(py)));
            memory::list(py, found).map(Some)
        }
        None => Ok(None),
    }
}

/// A `HashFile`, which is open while the object lives; `None` if Python must raise an error.
fn file_of<'py>(
    file: &Bound<'py, PyAny>,
    (slots, entries): (usize, usize),
) -> PyResult<Option<File<'py>>> {
    let py = file.py();
    let known = file.getattr(names::OWN_MAP.get(py)).ok();
    if let Some(map) = known.and_then(|map| map.cast_into_exact().ok()) {
        return Ok(Some(File { descriptor: -1, own_map: Some(map), slots, entries }));
    }
    let found = answer(py, file.call_method0(names::FILENO.get(py)))?;
    let descriptor = found.and_then(|found| found.extract().ok());
    Ok(descriptor.map(|descriptor| {
        let own_map = own_map(file, descriptor);
        File { descriptor, own_map, slots, entries }
    }))
}

impl Parts {
    /// Search all files, newest first, and the keys that a reader keeps in memory.
    fn through(&self, search: &mut Search<'_>, topic: &Bound<'_, PyAny>) -> PyResult<Option<()>> {
        let py = topic.py();
        type Files<'py> = (Bound<'py, PyTuple>, Bound<'py, PyAny>, i64, i64, usize, usize);
        let found = self.hash_files(py)?.and_then(|found| found.extract::<Files<'_>>().ok());
        let Some((files, memory, minimum, limit, slots, entries)) = found else {
            return Ok(None);
        };
        (search.minimum, search.limit) = (minimum, limit);
        let shape = (slots, entries);
        let newest = files.iter().next_back().map(|file| file_of(&file, shape));
        let mut newest = newest.transpose()?.flatten();
        if let Some(file) = &newest {
            file.fetch_slot(&search.wanted); // it is loaded while Python is called
        }
        let (Some(buried), Some(others)) = (self.buried(topic)?, search.others(&memory)?) else {
            return Ok(None);
        };
        search.buried = buried;
        let mut others = others.into_iter().peekable();
        for file in files.iter().rev() {
            let found = match newest.take() {
                Some(newest) => Some(newest),
                None => file_of(&file, shape)?,
            };
            let Some(mut chain) = found.and_then(|file| Chain::of(file, search.wanted)) else {
                return Ok(None);
            };
            loop {
                let Some(next) = chain.next() else {
                    return Ok(None);
                };
                let Some(offset) = next else {
                    break;
                };
                while let Some(other) = others.next_if(|&other| other > offset) {
                    if let Break(found) = self.visit(py, search, other)? {
                        return Ok(found);
                    }
                }
                if let Break(found) = self.visit(py, search, offset)? {
                    return Ok(found);
                }
            }
        }
        for other in others {
            if let Break(found) = self.visit(py, search, other)? {
                return Ok(found);
            }
        }
        Ok(Some(()))
    }

    /// Check one offset from the index; ends the search if enough is found, or to leave it to
    /// Python.
    fn visit(
        &self,
        py: Python<'_>,
        search: &mut Search<'_>,
        offset: i64,
    ) -> PyResult<ControlFlow<Option<()>>> {
        if offset == search.last {
            return Ok(Continue(()));
        }
        if offset > search.last {
            return Ok(Break(None));
        }
        search.last = offset;
        if !(search.minimum..search.limit).contains(&offset) {
            return Ok(Continue(()));
        }
        if search.found.len() >= search.most {
            return Ok(Break(Some(())));
        }
        let Some((minimum, end)) = self.log.later(search.bounds) else {
            return Ok(Break(None));
        };
        if offset < search.buried {
            return Ok(Continue(()));
        }
        // A segment deleted just now may be in an archive.
        let is_there = (minimum..end).contains(&offset);
        let good = is_there && self.look(py, search, offset, end)?;
        Ok(if good { Continue(()) } else { Break(None) })
    }

    /// Add the message of the record at `offset`, if it matches.
    ///
    /// Returns whether there is a whole record.
    fn look(
        &self,
        py: Python<'_>,
        search: &mut Search<'_>,
        offset: i64,
        end: i64,
    ) -> PyResult<bool> {
        let mut length = NEAR_BYTES.min(end - offset);
        let mut read = Vec::new();
        let record = loop {
            let Some(piece) = self.log.piece(py, offset, length)? else {
                return Ok(false);
            };
            let Some(data) = piece.bytes(offset, length, &mut read) else {
                return Ok(false);
            };
            fetch(data, FETCHED_BYTES);
            let size = Head::of(data).size();
            if size < RECORD_MIN_BYTES as i32 || size as i64 > end - offset {
                return Ok(false);
            }
            // A copy, since the bytes may change meanwhile.
            match data.get(..size as usize) {
                Some(record) => break memory::copied(record),
                None if length == size as i64 => return Ok(false),
                None => length = size as i64,
            }
        };
        match record {
            Some(record) => self.take(py, search, offset, &record),
            None => Ok(false),
        }
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
            Some(true) => {
                let made = self.decoder.get().alone(py, record, &head, &frame)?;
                Ok(made.and_then(|made| memory::push(&mut search.found, made)).is_some())
            }
            Some(false) => Ok(true),
            None => Ok(false),
        }
    }
}

impl<'a> Search<'a> {
    /// `None` for an argument that Python must check.
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
        let parts = [topic, "#", key];
        let hash = parts.iter().try_fold(0, |hash, part| hash_on(hash, part.as_bytes()))?;
        let key_hash = hash.checked_abs().unwrap_or(0);
        let wanted = Wanted { key_hash, begin_ms, end_ms };
        Some(Search {
            topic,
            key,
            wanted,
            most,
            bounds: (0, 0),
            buried: 0,
            minimum: 0,
            limit: 0,
            last: i64::MAX,
            found: Vec::new(),
        })
    }

    /// Offsets of keys that a reader keeps in memory, newest first.
    fn others(&self, memory: &Bound<'_, PyAny>) -> PyResult<Option<Vec<i64>>> {
        if memory.is_none() {
            return Ok(Some(Vec::new()));
        }
        let Wanted { key_hash, begin_ms, end_ms } = self.wanted;
        let found = answer(memory.py(), memory.call1((key_hash, begin_ms, end_ms)))?;
        Ok(found.and_then(|found| memory::extracted(&found)))
    }
}

fn text<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a str> {
    object.cast_exact::<PyString>().ok()?.to_str().ok().filter(|text| !text.is_empty())
}

/// A time in ms that Python accepts, too: see `time_ms` of `lakelog_queues/arguments.py`.
pub fn time_ms(object: &Bound<'_, PyAny>) -> Option<i64> {
    let value = unsafe { long(object.as_ptr())? };
    let is_meant = value == FOREVER_MS
        || (0..100_000_000).contains(&value)
        || (100_000_000_000..100_000_000_000_000).contains(&value);
    is_meant.then_some(value)
}

/// Whether `key` is the unique key, or one of the keys; `None` if the properties are not UTF-8.
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
