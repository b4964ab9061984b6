//! A queue offset by store time: a binary search over an owner's units and the heads of records, as
//! `lakelog/reading/bytime.py`. Whatever is unusual is left to Python.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::frame::{stated_time, Head};
use crate::get::{read, Unit};
use crate::message::queue_id;
use crate::page::{LogBounds, OpenSegments};
use crate::query::time_ms;
use crate::run::{answer, octets};

/// So few units are read at one go.
const AT_ONCE: i64 = 512;
const UNIT_BYTES: i64 = 20;

/// Searches queues; one for the owner's part of an open store.
#[pyclass(module = "lakelog_native", frozen)]
pub struct TimeFinder {
    log: LogBounds,
    bounds: Py<PyAny>,
    plain: Py<PyAny>,
    segments: OpenSegments,
}

/// An open file of units: a queue offset, where its unit stands, and how many there is room for
/// from there on.
struct File<'py> {
    opened: Bound<'py, PyAny>,
    first: i64,
    position: i64,
    room: i64,
}

impl File<'_> {
    fn holds(&self, start: i64, count: i64) -> bool {
        self.first <= start && start - self.first <= self.room - count
    }
}

/// One queue, for the length of one call.
struct Queue<'a, 'py> {
    finder: &'a TimeFinder,
    name: Bound<'py, PyTuple>,
    minimum: i64,
    file: Option<File<'py>>,
    /// Units that were read, from a queue offset on.
    held: (i64, Vec<Unit>),
    /// A segment, and where it starts.
    segment: Option<(i64, PyBuffer<u8>)>,
}

#[pymethods]
impl TimeFinder {
    #[new]
    fn new(parts: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(TimeFinder {
            log: LogBounds::of(&parts.getattr("memory")?, &parts.getattr("layout")?)?,
            bounds: parts.getattr("bounds")?.unbind(),
            plain: parts.getattr("plain")?.unbind(),
            segments: OpenSegments::of(parts)?,
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.bounds)?;
        visit.call(&self.plain)?;
        self.segments.visit(&visit)
    }

    /// The queue offset; `None` where Python has to look.
    fn search(
        &self,
        topic: &Bound<'_, PyAny>,
        queue: &Bound<'_, PyAny>,
        timestamp_ms: &Bound<'_, PyAny>,
        boundary: &Bound<'_, PyAny>,
    ) -> PyResult<Option<i64>> {
        let py = topic.py();
        let Some((is_lower, wanted_ms)) = asked(topic, queue, timestamp_ms, boundary) else {
            return Ok(None);
        };
        let Some((minimum, _)) = self.log.now() else {
            return Ok(None);
        };
        let name = PyTuple::new(py, [topic, queue])?;
        let Some(bounds) = answer(py, self.bounds.bind(py).call1((&name, minimum)))? else {
            return Ok(None);
        };
        let Ok((first, end)) = bounds.extract::<(i64, i64)>() else {
            return Ok(None);
        };
        let held = (0, Vec::new());
        let mut queue = Queue { finder: self, name, minimum, file: None, held, segment: None };
        let (mut before, mut behind) = (first, end);
        let (mut low, mut high) = (first, end);
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(ms) = queue.time_ms(low, middle, high)? else {
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
}

impl<'py> Queue<'_, 'py> {
    /// Store time of the message at queue offset `at`, where `low` to `high` are still searched.
    fn time_ms(&mut self, low: i64, at: i64, high: i64) -> PyResult<Option<i64>> {
        let Some(unit) = self.unit(low, at, high)? else {
            return Ok(None);
        };
        let Some((minimum, end)) = self.finder.log.now() else {
            return Ok(None);
        };
        if !unit.is_between(minimum, end) {
            return Ok(None);
        }
        let segments = &self.finder.segments;
        let start = unit.offset - unit.offset % segments.segment_bytes;
        if self.segment.as_ref().is_none_or(|(held, _)| *held != start) {
            let view = segments.view(self.name.py(), start, segments.segment_bytes)?;
            self.segment = view.map(|buffer| (start, buffer));
        }
        let data = self.segment.as_ref().and_then(|(_, buffer)| octets(buffer));
        Ok(data.and_then(|data| {
            let at = (unit.offset - start) as usize;
            let record = data.get(at..at.checked_add(unit.size as usize)?)?;
            stated_time(&Head::of(record), unit.offset, unit.size)
        }))
    }

    fn unit(&mut self, low: i64, at: i64, high: i64) -> PyResult<Option<Unit>> {
        let held = |(first, units): &(i64, Vec<Unit>)| {
            usize::try_from(at - first).ok().and_then(|at| units.get(at).copied())
        };
        if let Some(unit) = held(&self.held) {
            return Ok(Some(unit));
        }
        for first in [low, at] {
            if !self.file.as_ref().is_some_and(|file| file.holds(at, 1)) {
                self.file = self.file_at(first)?;
            }
        }
        let Some(file) = self.file.as_ref().filter(|file| file.holds(at, 1)) else {
            return Ok(None);
        };
        let is_all = high - low <= AT_ONCE && file.holds(low, high - low);
        let (start, count) = if is_all { (low, high - low) } else { (at, 1) };
        let position = file.position + (start - file.first) * UNIT_BYTES;
        let Some(units) = read(&file.opened, position, count as usize) else {
            return Ok(None);
        };
        self.held = (start, units);
        Ok(held(&self.held))
    }

    /// Where the unit of a queue offset stands; `None` where Python has to look for it.
    fn file_at(&self, at: i64) -> PyResult<Option<File<'py>>> {
        let py = self.name.py();
        let place = self.finder.plain.bind(py).call1((&self.name, self.minimum, at));
        let Some(place) = answer(py, place)? else {
            return Ok(None);
        };
        let place = place.extract::<(i64, i64, Bound<'py, PyAny>, i64, i64)>().ok();
        Ok(place.map(|(_, _, opened, position, room)| File { opened, first: at, position, room }))
    }
}

/// Whether the lower boundary is asked for, and the time; `None` where Python says what is wrong.
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
