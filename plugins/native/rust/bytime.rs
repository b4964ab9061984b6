//! A queue offset by store time: a binary search over units and the heads of records, as
//! `lakelog_queues/finding/search.py`. Unusual cases are left to Python.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::frame::{stated_time, Head, HEAD_BYTES};
use crate::log::{Bounds, Piece};
use crate::lookups::{Parts, Queue};
use crate::memory;
use crate::message::queue_id;
use crate::query::time_ms;
use crate::units::{Unit, Units};

/// Up to this many units are read at once.
const AT_ONCE: i64 = 128;

/// The queue offset; `None` to leave it to Python.
pub fn search(
    parts: &Parts,
    topic: &Bound<'_, PyAny>,
    queue: &Bound<'_, PyAny>,
    timestamp_ms: &Bound<'_, PyAny>,
    boundary: &Bound<'_, PyAny>,
) -> PyResult<Option<i64>> {
    let py = topic.py();
    let Some((is_lower, wanted_ms)) = asked(topic, queue, timestamp_ms, boundary) else {
        return Ok(None);
    };
    let Some(bounds) = parts.begin(py, true)? else {
        return Ok(None);
    };
    let name = memory::tuple(py, [topic.clone(), queue.clone()])?;
    let Some(Queue { first, end, units }) = parts.queue(&name, bounds.0, None)? else {
        return Ok(None);
    };
    let mut search = Search { parts, name, bounds, units, held: None, piece: None };
    let (mut before, mut behind) = (first, end);
    let (mut low, mut high) = (first, end);
    while low < high {
        let middle = low + (high - low) / 2;
        let Some(ms) = search.time_ms(low, middle, high)? else {
            return Ok(None);
        };
        if ms > wanted_ms || (is_lower && ms == wanted_ms) {
            (behind, high) = (middle, middle);
        } else {
            (before, low) = (middle, middle + 1);
        }
    }
    Ok(Some(if is_lower { behind } else { before }))
}

/// One queue, for the length of one call.
struct Search<'a, 'py> {
    parts: &'a Parts,
    name: Bound<'py, PyTuple>,
    bounds: Bounds,
    units: Option<Units<'py>>,
    /// Units that were read, from a queue offset on.
    held: Option<(i64, Vec<Unit>)>,
    /// The offset at which a segment starts, and the segment.
    piece: Option<(i64, Piece)>,
}

impl Search<'_, '_> {
    /// Store time of the message at queue offset `at`, where `low` to `high` are still searched.
    fn time_ms(&mut self, low: i64, at: i64, high: i64) -> PyResult<Option<i64>> {
        let Some(unit) = self.unit(low, at, high)? else {
            return Ok(None);
        };
        let log = &self.parts.log;
        if !log.later(self.bounds).is_some_and(|bounds| unit.is_between(bounds)) {
            return Ok(None);
        }
        let start = log.start(unit.offset);
        if self.piece.as_ref().is_none_or(|(held, _)| *held != start) {
            let piece = log.whole(self.name.py(), start);
            self.piece = piece.map(|piece| (start, piece));
        }
        let mut read = Vec::new();
        let length = (unit.size as i64).min(HEAD_BYTES as i64);
        let is_inside = unit.end().is_some_and(|end| log.start(end - 1) == start);
        let piece = self.piece.as_ref().filter(|_| is_inside);
        let head = piece.and_then(|(_, piece)| piece.bytes(unit.offset, length, &mut read));
        let head = head.filter(|head| head.len() as i64 == length);
        Ok(head.and_then(|head| stated_time(&Head::of(head), unit.offset, unit.size)))
    }

    fn unit(&mut self, low: i64, at: i64, high: i64) -> PyResult<Option<Unit>> {
        if let Some((first, units)) = &self.held {
            if let Some(unit) = usize::try_from(at - first).ok().and_then(|at| units.get(at)) {
                return Ok(Some(*unit));
            }
        }
        for first in [low, at] {
            if !self.units.as_ref().is_some_and(|units| units.holds(at, 1)) {
                let queue = self.parts.queue(&self.name, self.bounds.0, Some(first))?;
                self.units = queue.and_then(|queue| queue.units);
            }
        }
        let Some(units) = &self.units else {
            return Ok(None);
        };
        if units.are_in_memory() {
            return Ok(units.one(at));
        }
        let is_all = high - low <= AT_ONCE && units.holds(low, high - low);
        let (start, count) = if is_all { (low, high - low) } else { (at, 1) };
        let Some(read) = units.read(start, count) else {
            return Ok(None);
        };
        let unit = read.get((at - start) as usize).copied();
        self.held = Some((start, read));
        Ok(unit)
    }
}

/// Whether the lower boundary is requested, and the time in ms; `None` if Python must raise an
/// error.
fn asked(
    topic: &Bound<'_, PyAny>,
    queue: &Bound<'_, PyAny>,
    timestamp_ms: &Bound<'_, PyAny>,
    boundary: &Bound<'_, PyAny>,
) -> Option<(bool, i64)> {
    topic.cast_exact::<PyString>().ok()?;
    unsafe { queue_id(queue.as_ptr())? };
    let is_lower = match boundary.cast_exact::<PyString>().ok()?.to_str().ok()? {
        "lower" => true,
        "upper" => false,
        _ => return None,
    };
    Some((is_lower, time_ms(timestamp_ms)?))
}
