//! A plain call for messages of an owner's queue: bounds, units, records and result in one go, as
//! `lakelog/reading/shortway.py`. Whatever is not plain is left to Python.

use pyo3::buffer::PyBuffer;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};

use crate::frame::RECORD_MIN_BYTES;
use crate::message::{long, queue_id};
use crate::page::LogBounds;
use crate::run::{answer, octets};
use crate::slots::{new_ref, Slots};
use crate::stored::{Decoder, Wanted};

const UNIT_BYTES: usize = 20;
const RESULT_FIELDS: usize = 5;

/// Gets messages; one for the owner's part of an open store.
#[pyclass(module = "lakelog_native", frozen)]
pub struct Getter {
    decoder: Py<Decoder>,
    bounds: LogBounds,
    plain: Py<PyAny>,
    view: Py<PyAny>,
    segment_bytes: i64,
    most_messages: i64,
    most_bytes: i64,
    result: Slots,
    status: Py<PyAny>,
}

/// What is asked for.
struct Asked<'py> {
    queue: Bound<'py, PyTuple>,
    offset: i64,
    most: i64,
}

/// Where a record stands, by its unit.
#[derive(Clone, Copy)]
pub struct Unit {
    pub offset: i64,
    pub size: i32,
}

impl Unit {
    fn of(raw: &[u8]) -> Option<Unit> {
        let offset = i64::from_be_bytes(raw.get(..8)?.try_into().ok()?);
        Some(Unit { offset, size: i32::from_be_bytes(raw.get(8..12)?.try_into().ok()?) })
    }

    fn end(self) -> Option<i64> {
        self.offset.checked_add(self.size as i64)
    }

    /// Whether it leads to what may be a record between two offsets.
    pub fn is_between(self, first: i64, end: i64) -> bool {
        self.size >= RECORD_MIN_BYTES as i32
            && self.offset >= first
            && self.end().is_some_and(|own| own <= end)
    }
}

/// Bounds of a queue, and its units from where they are asked for.
struct Found {
    first: i64,
    end: i64,
    units: Vec<Unit>,
}

#[pymethods]
impl Getter {
    #[new]
    fn new(decoder: Py<Decoder>, parts: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Getter {
            decoder,
            bounds: LogBounds::of(&parts.getattr("memory")?, &parts.getattr("layout")?)?,
            plain: parts.getattr("plain")?.unbind(),
            view: parts.getattr("view")?.unbind(),
            segment_bytes: parts.getattr("segment_bytes")?.extract()?,
            most_messages: parts.getattr("most_messages")?.extract()?,
            most_bytes: parts.getattr("most_bytes")?.extract()?,
            result: Slots::of(parts.getattr("result")?.cast::<PyType>()?, RESULT_FIELDS)?,
            status: parts.getattr("status")?.unbind(),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.plain)?;
        visit.call(&self.view)?;
        visit.call(&self.status)
    }

    /// A `GetResult`; `None` where Python has to look.
    fn get(
        &self,
        topic: &Bound<'_, PyAny>,
        queue_id: &Bound<'_, PyAny>,
        offset: &Bound<'_, PyAny>,
        max_messages: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let Some(asked) = self.asked(topic, queue_id, offset, max_messages) else {
            return Ok(None);
        };
        let py = topic.py();
        let Some(found) = self.found(py, &asked)? else {
            return Ok(None);
        };
        let Some(messages) = self.messages(py, &found.units)? else {
            return Ok(None);
        };
        self.result(py, &asked, &found, messages).map(Some)
    }
}

impl Getter {
    /// `None` where Python has to say what is wrong with an argument, if anything is.
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
        let queue = PyTuple::new(topic.py(), [topic, queue]).ok()?;
        Some(Asked { queue, offset, most })
    }

    fn found(&self, py: Python<'_>, asked: &Asked<'_>) -> PyResult<Option<Found>> {
        let Some((minimum, _)) = self.bounds.now() else {
            return Ok(None);
        };
        let place = self.plain.bind(py).call1((&asked.queue, minimum, asked.offset));
        let Some(place) = answer(py, place)? else {
            return Ok(None);
        };
        let Ok((first, end, opened, position, room)) =
            place.extract::<(i64, i64, Bound<'_, PyAny>, i64, i64)>()
        else {
            return Ok(None);
        };
        let count = asked.most.min(end.saturating_sub(asked.offset));
        if count < 1 || count > room {
            return Ok(None);
        }
        // Behind the units: what is in a queue is in the log.
        let units = read(&opened, position, count as usize);
        let (Some(units), Some((minimum, log_end))) = (units, self.bounds.now()) else {
            return Ok(None);
        };
        let total: i64 = units.iter().map(|unit| unit.size as i64).sum();
        let are_good = units.iter().all(|unit| unit.is_between(minimum, log_end));
        let is_plain = are_good && total <= self.most_bytes;
        Ok(is_plain.then_some(Found { first, end, units }))
    }

    /// The messages; `None` where one is not whole, or cannot be had.
    fn messages(&self, py: Python<'_>, units: &[Unit]) -> PyResult<Option<Vec<Py<PyAny>>>> {
        let mut messages = Vec::with_capacity(units.len());
        let segment = |unit: &Unit| unit.offset / self.segment_bytes;
        for run in units.chunk_by(|one, next| segment(one) == segment(next)) {
            let first = run.iter().map(|unit| unit.offset).min().unwrap_or(0);
            let end = run.iter().filter_map(|unit| unit.end()).max().unwrap_or(0);
            if (end - 1) / self.segment_bytes != first / self.segment_bytes {
                return Ok(None); // a filler, too, whose length no segment has
            }
            let view = self.view.bind(py).call1((first, end - first));
            let Some(view) = answer(py, view)? else {
                return Ok(None);
            };
            let Ok(buffer) = PyBuffer::<u8>::get(&view) else {
                return Ok(None);
            };
            let Some(data) = octets(&buffer).filter(|data| data.len() as i64 == end - first) else {
                return Ok(None);
            };
            let wanted: Vec<Wanted> = run
                .iter()
                .map(|unit| (unit.offset - first, unit.size, Some(unit.offset)))
                .collect();
            if !self.decoder.get().add(py, data, &wanted, true, &mut messages)? {
                return Ok(None);
            }
        }
        Ok(Some(messages))
    }

    fn result(
        &self,
        py: Python<'_>,
        asked: &Asked<'_>,
        found: &Found,
        messages: Vec<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let next = asked.offset + messages.len() as i64;
        let messages = PyList::new(py, messages)?;
        unsafe {
            let made = Bound::from_owned_ptr_or_err(py, self.result.instance())?;
            // In the order of the class.
            let values = [
                new_ref(self.status.as_ptr()),
                messages.into_ptr(),
                ffi::PyLong_FromLongLong(next),
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

/// Units as they stand in a file, an `Opened`; `None` where it has fewer.
pub fn read(opened: &Bound<'_, PyAny>, position: i64, count: usize) -> Option<Vec<Unit>> {
    let py = opened.py();
    let mut raw = vec![0u8; count * UNIT_BYTES];
    if opened.getattr(intern!(py, "dropped")).ok()?.is_truthy().ok()? {
        return None;
    }
    let descriptor: i32 = opened.getattr(intern!(py, "descriptor")).ok()?.extract().ok()?;
    // The interpreter lock is held from the look at `dropped` on: nobody closes the file meanwhile.
    let length = unsafe {
        libc::pread(descriptor, raw.as_mut_ptr().cast(), raw.len(), position as libc::off_t)
    };
    if usize::try_from(length).ok()? != raw.len() {
        return None;
    }
    raw.chunks_exact(UNIT_BYTES).map(Unit::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(offset: i64, size: i32) -> Unit {
        let mut raw = [7u8; UNIT_BYTES];
        raw[..8].copy_from_slice(&offset.to_be_bytes());
        raw[8..12].copy_from_slice(&size.to_be_bytes());
        Unit::of(&raw).unwrap()
    }

    #[test]
    fn only_what_may_be_a_record_between_the_bounds_is_looked_at() {
        assert!(unit(100, 91).is_between(100, 191));
        assert!(!unit(99, 91).is_between(100, 191));
        assert!(!unit(101, 91).is_between(100, 191));
        for (offset, size) in [(0, 90), (0, 0), (0, -1), (-5, 100), (i64::MAX, 91)] {
            assert!(!unit(offset, size).is_between(0, i64::MAX));
        }
        assert!(Unit::of(&[0; 11]).is_none());
    }
}
