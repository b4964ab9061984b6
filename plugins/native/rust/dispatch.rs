//! What queues and index need of many records: tags codes, topics told apart, hashes of keys. As
//! `lakelog/consumequeue/tags.py` and `topicgroups.py`, and `lakelog_hash_index/keys.py`.

use std::collections::HashMap;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::run::{numbers, octets};

/// For so few records, the interpreter lock is not given up.
const ALONE: usize = 64;
const TRANSACTION: i32 = 0xC;
const ROLLBACK: i32 = 0xC;
const NAME_ENDS: u8 = 1;
const VALUE_ENDS: u8 = 2;

/// Stretches of a buffer, one per record.
struct Spans<'a> {
    data: &'a [u8],
    positions: Vec<i64>,
    lengths: Vec<i64>,
}

impl<'a> Spans<'a> {
    /// `None` where a column is not what it should be.
    fn of(
        buffer: &'a PyBuffer<u8>,
        positions: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
    ) -> Option<Spans<'a>> {
        let (positions, lengths): (Vec<i64>, Vec<i64>) = (numbers(positions)?, numbers(lengths)?);
        let data = octets(buffer)?;
        (positions.len() == lengths.len()).then_some(Spans { data, positions, lengths })
    }

    fn len(&self) -> usize {
        self.positions.len()
    }

    /// The bytes of one record's; `None` where not all of them are in the buffer.
    #[inline(always)]
    fn get(&self, record: usize) -> Option<&'a [u8]> {
        let start = usize::try_from(self.positions[record]).ok()?;
        let length = usize::try_from(self.lengths[record]).ok()?;
        self.data.get(start..start.checked_add(length)?)
    }
}

fn without_lock<T: Send>(py: Python<'_>, records: usize, work: impl FnOnce() -> T + Send) -> T {
    if records < ALONE {
        work()
    } else {
        py.detach(work)
    }
}

/// Go on with Java's `String.hashCode`: over the UTF-16 units, with U+FFFD for broken UTF-8.
#[inline(always)]
pub fn hash_on(before: i32, text: &[u8]) -> i32 {
    let (mut value, mut all) = (before, 0);
    for &byte in text {
        value = value.wrapping_mul(31).wrapping_add(byte as i32);
        all |= byte;
    }
    if all < 0x80 {
        return value;
    }
    let copy = text.to_vec(); // the bytes may change while they are looked at
    String::from_utf8_lossy(&copy)
        .encode_utf16()
        .fold(before, |value, unit| value.wrapping_mul(31).wrapping_add(unit as i32))
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

fn column<'py, const N: usize>(
    py: Python<'py>,
    values: impl ExactSizeIterator<Item = [u8; N]>,
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, values.len() * N, |out| {
        for (to, value) in out.chunks_exact_mut(N).zip(values) {
            to.copy_from_slice(&value);
        }
        Ok(())
    })
}

/// As ``tags_codes``: ``int64``, a code for each record.
#[pyfunction]
pub fn tags_codes<'py>(
    py: Python<'py>,
    view: PyBuffer<u8>,
    positions: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let Some(properties) = Spans::of(&view, positions, lengths) else {
        return Ok(None);
    };
    let codes = without_lock(py, properties.len(), || codes_of(&properties));
    codes.map(|codes| column(py, codes.into_iter().map(i64::to_ne_bytes))).transpose()
}

fn codes_of(properties: &Spans<'_>) -> Option<Vec<i64>> {
    (0..properties.len())
        .map(|record| {
            let [tags] = values(properties.get(record)?, [b"TAGS"]);
            Some(hash_on(0, tags) as i64)
        })
        .collect()
}

/// As ``topic_groups``: ``int64``, the number of each record's topic; and the first record of each
/// topic, in the order of these.
#[pyfunction]
#[allow(clippy::type_complexity)] // what Python sees is a pair
pub fn topic_numbers<'py>(
    py: Python<'py>,
    view: PyBuffer<u8>,
    positions: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyBytes>, Vec<usize>)>> {
    let Some(topics) = Spans::of(&view, positions, lengths) else {
        return Ok(None);
    };
    let Some((numbers, firsts)) = without_lock(py, topics.len(), || groups_of(&topics)) else {
        return Ok(None);
    };
    let numbers = column(py, numbers.into_iter().map(i64::to_ne_bytes))?;
    Ok(Some((numbers, firsts)))
}

fn groups_of(topics: &Spans<'_>) -> Option<(Vec<i64>, Vec<usize>)> {
    let mut known: HashMap<Vec<u8>, i64> = HashMap::new();
    let (mut numbers, mut firsts) = (Vec::with_capacity(topics.len()), Vec::new());
    let mut last: Option<(Vec<u8>, i64)> = None;
    for record in 0..topics.len() {
        let topic = topics.get(record)?;
        if let Some((name, number)) = &last {
            if name == topic {
                numbers.push(*number);
                continue;
            }
        }
        let name = topic.to_vec();
        let number = *known.entry(name.clone()).or_insert_with(|| {
            firsts.push(record);
            firsts.len() as i64 - 1
        });
        numbers.push(number);
        last = Some((name, number));
    }
    Some((numbers, firsts))
}

/// As ``find_keys``: ``int64``, the record of each key; and ``int32``, its hash.
#[pyfunction]
#[allow(clippy::type_complexity)] // what Python sees is a pair
#[allow(clippy::too_many_arguments)] // columns of one batch
pub fn keys<'py>(
    py: Python<'py>,
    view: PyBuffer<u8>,
    topic_positions: &Bound<'py, PyAny>,
    topic_lengths: &Bound<'py, PyAny>,
    property_positions: &Bound<'py, PyAny>,
    property_lengths: &Bound<'py, PyAny>,
    sys_flags: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
    let (Some(topics), Some(properties), Some(flags)) = (
        Spans::of(&view, topic_positions, topic_lengths),
        Spans::of(&view, property_positions, property_lengths),
        numbers::<i32>(sys_flags),
    ) else {
        return Ok(None);
    };
    if topics.len() != properties.len() || topics.len() != flags.len() {
        return Ok(None);
    }
    let found = without_lock(py, topics.len(), || keys_of(&topics, &properties, &flags));
    let Some((records, hashes)) = found else {
        return Ok(None);
    };
    let records = column(py, records.into_iter().map(i64::to_ne_bytes))?;
    Ok(Some((records, column(py, hashes.into_iter().map(i32::to_ne_bytes))?)))
}

fn keys_of(
    topics: &Spans<'_>,
    properties: &Spans<'_>,
    flags: &[i32],
) -> Option<(Vec<i64>, Vec<i32>)> {
    let (mut records, mut hashes) = (Vec::with_capacity(flags.len()), Vec::new());
    hashes.reserve(flags.len());
    for (record, flags) in flags.iter().enumerate() {
        let (topic, properties) = (topics.get(record)?, properties.get(record)?);
        if flags & TRANSACTION == ROLLBACK {
            continue;
        }
        let [unique, keys] = values(properties, [b"UNIQ_KEY", b"KEYS"]);
        if unique.is_empty() && keys.is_empty() {
            continue;
        }
        let before = hash_on(hash_on(0, topic), b"#");
        let pieces = keys.split(|&byte| byte == b' ');
        for key in std::iter::once(unique).chain(pieces).filter(|key| !key.is_empty()) {
            records.push(record as i64);
            hashes.push(hash_on(before, key).checked_abs().unwrap_or(0));
        }
    }
    Some((records, hashes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(hash_on(0, b"TagA"), 2598919);
        assert_eq!(hash_on(hash_on(0, b"Ta"), b"gA"), 2598919);
        assert_eq!(hash_on(0, b""), 0);
        assert_eq!(hash_on(0, "é".as_bytes()), 0xe9);
        assert_eq!(hash_on(0, &[0xff]), 0xfffd);
    }

    #[test]
    fn the_last_value_that_is_not_empty_counts() {
        let text = b"TAGS\x01a\x02XTAGS\x01b\x02TAGS\x01c\x01d\x02TAGS\x01\x02TAGS";
        assert_eq!(values(text, [b"TAGS"]), [b"c\x01d"]);
        assert_eq!(values(b"", [b"TAGS"]), [b""]);
    }

    #[test]
    fn what_stands_outside_of_the_buffer_is_not_judged() {
        for (position, length) in [(-1, 1), (0, 5), (5, 0), (0, -1), (i64::MAX, i64::MAX)] {
            let spans = Spans { data: &[0; 4], positions: vec![position], lengths: vec![length] };
            assert!(codes_of(&spans).is_none());
            assert!(groups_of(&spans).is_none());
            assert!(keys_of(&spans, &spans, &[0]).is_none());
        }
    }
}
