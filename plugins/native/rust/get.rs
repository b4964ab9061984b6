//! A plain `get` or `get_records` of a queue: bounds, units, records and result in one call, as
//! `lakelog_queues/finding/get.py` does it, also by tags.
//! Whatever is not plain is left to Python.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::log::Piece;
use crate::lookups::Parts;
use crate::memory;
use crate::message::{long, queue_id};
use crate::slots::new_ref;
use crate::stored::{frame, slice, Wanted};
use crate::units::Unit;

/// Records with at most so many bytes between them come from one read of a file, as in
/// `lakelog_queues/finding/records.py`.
const GAP_BYTES: i64 = 64 << 10;

/// The longest read of a file; longer ones are left to Python.
const MOST_READ_BYTES: i64 = 8 << 20;

/// The request.
struct Asked<'py> {
    queue: Bound<'py, PyTuple>,
    offset: i64,
    most: i64,
}

/// Bounds of a queue, the next offset, and the requested units.
struct Found {
    first: i64,
    end: i64,
    next: i64,
    units: Vec<Unit>,
    places: Vec<i64>,
}

/// The fields of a `RecordsResult` behind the status.
pub type Records<'py> = (Bound<'py, PyList>, Bound<'py, PyList>, i64, i64, i64);

/// A `TagFilter`.
struct Filter {
    hashes: Vec<i32>,
    tags: Vec<Vec<u8>>,
}

impl Filter {
    /// `None` to leave filtering to Python.
    fn of(filter: &Bound<'_, PyAny>) -> Option<Filter> {
        if !filter.getattr("by_code").ok()?.is_truthy().ok()? {
            return None;
        }
        let mut tags = Vec::new();
        for tag in filter.getattr("tags").ok()?.try_iter().ok()? {
            let tag = tag.ok()?.cast_into::<PyString>().ok()?;
            memory::push(&mut tags, memory::copied(tag.to_str().ok()?.as_bytes())?)?;
        }
        Some(Filter { hashes: memory::extracted(&filter.getattr("hashes").ok()?)?, tags })
    }

    /// As `TagFilter.may_match`.
    fn may_match(&self, unit: &Unit) -> bool {
        unit.tags_code < i32::MIN as i64 || self.hashes.contains(&(unit.tags_code as i32))
    }

    /// Whether the message certainly has one of the tags.
    fn has(&self, properties: &[u8]) -> bool {
        let mut found =
            properties.split(|&byte| byte == 2).filter_map(|each| each.strip_prefix(b"TAGS\x01"));
        match (found.next(), found.next()) {
            (Some(tag), None) => self.tags.iter().any(|each| each == tag),
            _ => false,
        }
    }
}

/// A `GetResult`; `None` to leave it to Python.
pub fn get(
    parts: &Parts,
    topic: &Bound<'_, PyAny>,
    queue_id: &Bound<'_, PyAny>,
    offset: &Bound<'_, PyAny>,
    max_messages: &Bound<'_, PyAny>,
    tag_filter: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Py<PyAny>>> {
    let filter = tag_filter.map(Filter::of);
    let (Some(asked), false) =
        (parts.asked(topic, queue_id, offset, max_messages), matches!(filter, Some(None)))
    else {
        return Ok(None);
    };
    let (py, filter) = (topic.py(), filter.flatten());
    let Some(found) = parts.found(py, &asked, filter.as_ref(), i64::MAX)? else {
        return Ok(None);
    };
    let Some(messages) = parts.messages(py, &found.units)? else {
        return Ok(None);
    };
    if let Some(filter) = filter {
        let decoder = parts.decoder.get();
        let has =
            |each: &Py<PyAny>| decoder.properties_are(each.bind(py), |found| filter.has(found));
        if !messages.iter().all(has) {
            return Ok(None); // other tags of the same hash
        }
    }
    parts.result(py, &found, messages).map(Some)
}

/// Records as stored, at least one and otherwise at most `most_bytes`; `None` to leave it to
/// Python.
pub fn records<'py>(
    parts: &Parts,
    queue: [&Bound<'py, PyAny>; 2],
    offset: &Bound<'py, PyAny>,
    max_records: &Bound<'py, PyAny>,
    most_bytes: i64,
    verify: bool,
    tag_filter: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Records<'py>>> {
    let filter = tag_filter.map(Filter::of);
    let (Some(asked), false) =
        (parts.asked(queue[0], queue[1], offset, max_records), matches!(filter, Some(None)))
    else {
        return Ok(None);
    };
    let (py, filter) = (offset.py(), filter.flatten());
    let Some(found) = parts.found(py, &asked, filter.as_ref(), most_bytes)? else {
        return Ok(None);
    };
    let Some(mut records) = memory::with_room(found.units.len()) else {
        return Ok(None);
    };
    let are_whole = parts.each_run(py, &found.units, |data, wanted| {
        for &each in wanted {
            let Some(record) = slice(data, each) else {
                return Ok(false);
            };
            let record = memory::bytes(py, record)?;
            let copy = record.as_bytes();
            if !frame(copy, each, verify).is_some_and(|(_, frame)| frame.has_text(copy)) {
                return Ok(false);
            }
            if memory::push(&mut records, record).is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    if !are_whole {
        return Ok(None);
    }
    let records = memory::list(py, records.into_iter().map(Ok))?;
    let places = memory::list(py, found.places.iter().map(|&at| memory::long(py, at)))?;
    Ok(Some((records, places, found.next, found.first, found.end)))
}

impl Parts {
    /// `None` for an argument that Python must check.
    fn asked<'py>(
        &self,
        topic: &Bound<'py, PyAny>,
        queue: &Bound<'py, PyAny>,
        offset: &Bound<'py, PyAny>,
        most: &Bound<'py, PyAny>,
    ) -> Option<Asked<'py>> {
        topic.cast_exact::<PyString>().ok()?;
        let (offset, most) = unsafe {
            queue_id(queue.as_ptr())?;
            (long(offset.as_ptr())?, long(most.as_ptr())?)
        };
        if offset < 0 || !(1..=self.most_messages).contains(&most) {
            return None;
        }
        let queue = memory::tuple(topic.py(), [topic.clone(), queue.clone()]).ok()?;
        Some(Asked { queue, offset, most })
    }

    fn found(
        &self,
        py: Python<'_>,
        asked: &Asked<'_>,
        filter: Option<&Filter>,
        most_bytes: i64,
    ) -> PyResult<Option<Found>> {
        let Some(bounds) = self.begin(py, false)? else {
            return Ok(None);
        };
        let Some(queue) = self.queue(&asked.queue, bounds.0, Some(asked.offset))? else {
            return Ok(None);
        };
        let (first, end) = (queue.first, queue.end);
        let reach = filter.map_or(asked.most, |_| self.filtered_units.max(asked.most));
        let count = reach.min(end.saturating_sub(asked.offset));
        let units = queue.units.and_then(|units| units.read(asked.offset, count.min(units.room())));
        // Read after the units: a record in a queue is in the log.
        let (Some(units), Some(bounds)) = (units, self.log.later(bounds)) else {
            return Ok(None);
        };
        let most = units.len().min(asked.most as usize);
        let (Some(mut wanted), Some(mut places)) =
            (memory::with_room(most), memory::with_room(most))
        else {
            return Ok(None);
        };
        let mut next = asked.offset;
        let (mut total, mut is_full) = (0, false);
        for unit in units {
            if !unit.is_between(bounds) {
                return Ok(None);
            }
            // The unit is compared with the limits before its tags are checked, as in Python.
            let is_beyond = total + unit.size as i64 > most_bytes;
            is_full = wanted.len() as i64 == asked.most || (is_beyond && !wanted.is_empty());
            if is_full {
                break;
            }
            if filter.is_none_or(|filter| filter.may_match(&unit)) {
                let added = memory::push(&mut wanted, unit);
                if added.and_then(|()| memory::push(&mut places, next)).is_none() {
                    return Ok(None);
                }
                total += unit.size as i64;
            }
            next += 1;
        }
        let are_all = is_full || next == asked.offset + count;
        let is_plain = are_all && total <= self.most_bytes;
        Ok(is_plain.then_some(Found { first, end, next, units: wanted, places }))
    }

    /// The messages; `None` if one is not whole or cannot be read.
    fn messages(&self, py: Python<'_>, units: &[Unit]) -> PyResult<Option<Vec<Py<PyAny>>>> {
        let Some(mut messages) = memory::with_room(units.len()) else {
            return Ok(None);
        };
        let are_whole = self.each_run(py, units, |data, wanted| {
            self.decoder.get().add(py, data, wanted, true, &mut messages)
        })?;
        Ok(are_whole.then_some(messages))
    }

    /// Whether two units come from one read: from one segment and, in a file, close together.
    fn are_together(&self, one: &Unit, next: &Unit) -> bool {
        let are_close =
            || one.end().is_some_and(|end| (0..=GAP_BYTES).contains(&(next.offset - end)));
        self.log.start(one.offset) == self.log.start(next.offset)
            && (self.log.is_mapped() || are_close())
    }

    /// Read units, some together; returns whether `take` accepted all.
    fn each_run(
        &self,
        py: Python<'_>,
        units: &[Unit],
        mut take: impl FnMut(&[u8], &[Wanted]) -> PyResult<bool>,
    ) -> PyResult<bool> {
        let mut read = Vec::new();
        for run in units.chunk_by(|one, next| self.are_together(one, next)) {
            let first = run.iter().map(|unit| unit.offset).min().unwrap_or(0);
            let end = run.iter().filter_map(|unit| unit.end()).max().unwrap_or(0);
            if self.log.start(end - 1) != self.log.start(first) {
                return Ok(false); // a filler, too, whose length no segment has
            }
            let Some(piece) = self.log.piece(py, first, end - first)? else {
                return Ok(false);
            };
            if matches!(piece, Piece::File(..)) && end - first > MOST_READ_BYTES {
                return Ok(false);
            }
            let data = piece.bytes(first, end - first, &mut read);
            let Some(data) = data.filter(|data| data.len() as i64 == end - first) else {
                return Ok(false);
            };
            let wanted = run.iter().map(|unit| (unit.offset - first, unit.size, Some(unit.offset)));
            let Some(wanted) = memory::collected::<Wanted>(wanted) else {
                return Ok(false);
            };
            if !take(data, &wanted)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn result(
        &self,
        py: Python<'_>,
        found: &Found,
        messages: Vec<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let status = if messages.is_empty() { &self.no_match } else { &self.status };
        let messages = messages.into_iter().map(|each| Ok(each.into_bound(py)));
        let messages = memory::list(py, messages)?;
        unsafe {
            let made = Bound::from_owned_ptr_or_err(py, self.result.instance())?;
            // In the order of the class.
            let values = [
                new_ref(status.as_ptr()),
                messages.into_ptr(),
                ffi::PyLong_FromLongLong(found.next),
                ffi::PyLong_FromLongLong(found.first),
                ffi::PyLong_FromLongLong(found.end),
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
}
