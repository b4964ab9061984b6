//! Extracts data of many records for queues and index: units by queue, and hashes of keys. As
//! `lakelog_queues/dispatching/grouping.py` and `lakelog_hash_index/keys.py`.

use std::collections::HashMap;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyTuple};

use crate::frame::{Frame, Head};
use crate::memory;
use crate::octets::Octets;
use crate::run::{numbers, octets};

/// For up to this many records, the interpreter lock is kept.
const ALONE: usize = 64;
const UNIT_BYTES: usize = 20;
pub const PREPARED: i32 = 0x4;
const TRANSACTION: i32 = 0xC;
const ROLLBACK: i32 = 0xC;
const NAME_ENDS: u8 = 1;
const VALUE_ENDS: u8 = 2;

/// One record of a buffer.
pub struct Record<'a> {
    pub head: Head,
    pub frame: Frame,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// `None` if no record with a UTF-8 topic starts here.
    #[inline(always)]
    fn at(data: &'a [u8], start: i64) -> Option<Record<'a>> {
        let rest = data.get(usize::try_from(start).ok()?..)?;
        let head = Head::of(rest);
        let bytes = rest.get(..usize::try_from(head.size()).ok()?)?;
        let frame = Frame::read(&head, bytes)?;
        frame.has_text(bytes).then_some(Record { head, frame, bytes })
    }

    fn topic(&self) -> &'a [u8] {
        &self.bytes[self.frame.topic_at..self.frame.topic_end()]
    }

    fn properties(&self) -> &'a [u8] {
        &self.bytes[self.frame.properties_at..]
    }
}

pub fn without_lock<T: Send>(py: Python<'_>, records: usize, work: impl FnOnce() -> T + Send) -> T {
    if records < ALONE {
        work()
    } else {
        py.detach(work)
    }
}

/// Continue Java's `String.hashCode` over UTF-16 units, with U+FFFD for invalid UTF-8; `None`
/// without memory.
#[inline(always)]
pub fn hash_on(before: i32, text: &[u8]) -> Option<i32> {
    let (mut value, mut all) = (before, 0);
    for &byte in text {
        value = value.wrapping_mul(31).wrapping_add(byte as i32);
        all |= byte;
    }
    if all < 0x80 {
        return Some(value);
    }
    let copy = memory::copied(text)?; // the bytes may change while they are read
    let add = |value: i32, unit: u16| value.wrapping_mul(31).wrapping_add(unit as i32);
    Some(copy.utf8_chunks().fold(before, |before, chunk| {
        let value = chunk.valid().encode_utf16().fold(before, add);
        if chunk.invalid().is_empty() {
            value
        } else {
            add(value, 0xfffd)
        }
    }))
}

/// The last value of each of some names that is not empty.
#[inline(always)]
fn values<'a, const N: usize>(properties: &'a [u8], names: [&[u8]; N]) -> [&'a [u8]; N] {
    let mut found: [&[u8]; N] = [&[]; N];
    for piece in properties.split(|&byte| byte == VALUE_ENDS) {
        for (name, value) in names.iter().zip(&mut found) {
            let rest = piece.strip_prefix(*name);
            if let Some([NAME_ENDS, said @ ..]) = rest {
                if !said.is_empty() {
                    *value = said;
                }
            }
        }
    }
    found
}

/// The records of one queue.
pub struct Group {
    pub topic: Vec<u8>,
    pub queue_id: i32,
    pub count: usize,
    /// The queue offsets that the first and the last record state.
    pub first: i64,
    last: i64,
    /// Whether the queue offsets are consecutive.
    follow: bool,
}

impl Group {
    #[inline(always)]
    fn add(&mut self, stated: i64) {
        if self.count == 0 {
            self.first = stated;
        } else {
            self.follow &= self.last.checked_add(1) == Some(stated);
        }
        self.last = stated;
        self.count += 1;
    }

    /// Add a record if its queue offset follows the last, or is a possible first one; returns
    /// whether.
    #[inline(always)]
    pub fn add_next(&mut self, stated: i64) -> bool {
        let follows = match self.count {
            0 => stated >= 0,
            _ => self.last.checked_add(1) == Some(stated),
        };
        if follows {
            self.add(stated);
        }
        follows
    }
}

/// Records by queue: the number of each, and its unit.
struct Units {
    records: Vec<u8>,
    units: Vec<u8>,
    groups: Vec<Group>,
}

/// The queues of records, in the order of their first records.
#[derive(Default)]
pub struct Groups {
    topics: HashMap<Vec<u8>, usize>,
    last_topic: (Vec<u8>, usize),
    numbers: HashMap<(usize, i32), usize>,
    last: usize,
    pub found: Vec<Group>,
}

impl Groups {
    /// The number of a queue in `found`; a new queue is added.
    #[inline(always)]
    ///
    /// `None` without memory, as the next two.
    pub fn number(&mut self, topic: &[u8], queue_id: i32) -> Option<usize> {
        let last = self.found.get(self.last);
        if !last.is_some_and(|last| last.queue_id == queue_id && last.topic == topic) {
            self.last = self.another(topic, queue_id)?;
        }
        Some(self.last)
    }

    fn another(&mut self, topic: &[u8], queue_id: i32) -> Option<usize> {
        if self.topics.is_empty() || self.last_topic.0 != topic {
            let next = self.topics.len();
            self.topics.try_reserve(1).ok()?;
            let number = *self.topics.entry(memory::copied(topic)?).or_insert(next); // there is room
            self.last_topic = (memory::copied(topic)?, number);
        }
        let key = (self.last_topic.1, queue_id);
        if let Some(&known) = self.numbers.get(&key) {
            return Some(known);
        }
        let (topic, number) = (memory::copied(topic)?, self.found.len());
        self.numbers.try_reserve(1).ok()?;
        let group = Group { topic, queue_id, count: 0, first: 0, last: 0, follow: true };
        memory::push(&mut self.found, group)?;
        self.numbers.insert(key, number); // there is room
        Some(number)
    }

    #[inline(always)]
    fn add(&mut self, record: &Record<'_>) -> Option<usize> {
        let number = self.number(record.topic(), record.head.int(12))?;
        self.found[number].add(record.head.long(20));
        Some(number)
    }
}

/// `None` to leave the records to Python.
fn units_of(data: &[u8], starts: &[i64]) -> Option<Units> {
    let mut groups = Groups::default();
    let mut rows = memory::with_room(starts.len())?;
    for (at, &start) in starts.iter().enumerate() {
        let record = Record::at(data, start)?;
        if record.head.sys_flag() & PREPARED != 0 {
            continue;
        }
        let [tags] = values(record.properties(), [b"TAGS"]);
        let mut unit = [0; UNIT_BYTES];
        unit[..8].copy_from_slice(&record.head.physical_offset().to_be_bytes());
        unit[8..12].copy_from_slice(&record.head.size().to_be_bytes());
        unit[12..].copy_from_slice(&(hash_on(0, tags)? as i64).to_be_bytes());
        memory::push(&mut rows, (groups.add(&record)?, at as i64, unit))?;
    }
    let groups = groups.found;
    let mut next = memory::with_room(groups.len())?;
    groups.iter().try_fold(0, |place, group| {
        memory::push(&mut next, place)?;
        Some(place + group.count)
    })?;
    let mut records = memory::filled(0, rows.len() * 8)?;
    let mut units = memory::filled(0, rows.len() * UNIT_BYTES)?;
    for (group, record, unit) in rows {
        let place = next[group];
        records[place * 8..][..8].copy_from_slice(&record.to_ne_bytes());
        units[place * UNIT_BYTES..][..UNIT_BYTES].copy_from_slice(&unit);
        next[group] += 1;
    }
    Some(Units { records, units, groups })
}

impl Group {
    /// Topic, queue id, number of records, and the first queue offset, if the others follow it.
    fn object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let topic = memory::text(py, &self.topic)?;
        let first = match self.follow {
            true => memory::long(py, self.first)?,
            false => py.None().into_bound(py),
        };
        let (queue, count) =
            (memory::long(py, self.queue_id as i64)?, memory::long(py, self.count as i64)?);
        memory::tuple(py, [topic.into_any(), queue, count, first])
    }
}

/// As ``queue_groups``: the number of each record, and its unit, by queue; and for each queue its
/// topic, its id, the number of records, and the first queue offset, if the others follow it.
#[pyfunction]
#[allow(clippy::type_complexity)] // Python gets a triple
pub fn queue_units<'py>(
    py: Python<'py>,
    view: PyBuffer<u8>,
    starts: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyMemoryView>, Bound<'py, PyMemoryView>, Bound<'py, PyList>)>> {
    let (Some(data), Some(starts)) = (octets(&view), numbers(starts)) else {
        return Ok(None);
    };
    let Some(found) = without_lock(py, starts.len(), || units_of(data, &starts)) else {
        return Ok(None);
    };
    // A topic may have changed meanwhile.
    if found.groups.iter().any(|group| std::str::from_utf8(&group.topic).is_err()) {
        return Ok(None);
    }
    let groups = memory::list(py, found.groups.iter().map(|group| group.object(py)))?;
    Ok(Some((Octets::view(py, found.records)?, Octets::view(py, found.units)?, groups)))
}

/// Call `take` with the number of the record of each key, the record, and the key's hash; `None`
/// to leave the records to Python.
pub fn each_key(
    data: &[u8],
    starts: &[i64],
    mut take: impl FnMut(usize, &Record<'_>, i32) -> Option<()>,
) -> Option<()> {
    for (at, &start) in starts.iter().enumerate() {
        let record = Record::at(data, start)?;
        if record.head.sys_flag() & TRANSACTION == ROLLBACK {
            continue;
        }
        let [unique, keys] = values(record.properties(), [b"UNIQ_KEY", b"KEYS"]);
        if unique.is_empty() && keys.is_empty() {
            continue;
        }
        let before = hash_on(hash_on(0, record.topic())?, b"#")?;
        let pieces = keys.split(|&byte| byte == b' ');
        for key in std::iter::once(unique).chain(pieces).filter(|key| !key.is_empty()) {
            take(at, &record, hash_on(before, key)?.checked_abs().unwrap_or(0))?;
        }
    }
    Some(())
}

/// As ``find_keys``: ``int64``, the record of each key; and ``int32``, its hash.
#[pyfunction]
pub fn keys<'py>(
    py: Python<'py>,
    view: PyBuffer<u8>,
    starts: &Bound<'py, PyAny>,
) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (data, starts) = (octets(&view)?, numbers(starts)?);
    let (mut records, mut hashes) = (memory::with_room(starts.len() * 8)?, Vec::new());
    without_lock(py, starts.len(), || {
        each_key(data, &starts, |record, _, hash| {
            memory::extend(&mut records, &(record as i64).to_ne_bytes())?;
            memory::extend(&mut hashes, &hash.to_ne_bytes())
        })
    })?;
    Some((memory::bytes(py, &records).ok()?, memory::bytes(py, &hashes).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(hash_on(0, b"TagA"), Some(2598919));
        assert_eq!(hash_on(hash_on(0, b"Ta").unwrap(), b"gA"), Some(2598919));
        assert_eq!(hash_on(0, b""), Some(0));
        assert_eq!(hash_on(0, "é".as_bytes()), Some(0xe9));
        assert_eq!(hash_on(0, &[0xff]), Some(0xfffd));
    }

    #[test]
    fn the_last_value_that_is_not_empty_counts() {
        let text = b"TAGS\x01a\x02XTAGS\x01b\x02TAGS\x01c\x01d\x02TAGS\x01\x02TAGS";
        assert_eq!(values(text, [b"TAGS"]), [b"c\x01d"]);
        assert_eq!(values(b"", [b"TAGS"]), [b""]);
    }

    #[test]
    fn what_stands_outside_of_the_buffer_is_not_judged() {
        for start in [-1, 1, 200, i64::MIN, i64::MAX] {
            assert!(units_of(&[0; 200], &[start]).is_none());
            assert!(each_key(&[0; 200], &[start], |_, _, _| Some(())).is_none());
        }
    }
}
